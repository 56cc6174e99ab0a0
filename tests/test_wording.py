"""Tests compare errors and what commands print by facts: no test needs a sentence to stay as it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.modules import parsed, python_files
from tests.places import ROOT

WORD_LIMIT = 3
"""So many plain words in a row are a key word or a name, and more are a sentence."""
SAID = re.compile(r"^str\(|\b(?:stderr|stdout|output|err|errors|detail|reason|refused|message|problem|said|told)\b")
"""Expressions for the text of an error, or for what a command printed."""

REMOVING = re.compile(
    r"\b(?:remove|delete)\b(?: \w+){0,3}? (?:member|member's|node's|its|that)(?: \w+)? directory\b", re.I
)
"""Advice to remove a member's directory, which may be the last valid copy of what was acknowledged."""


def text_of(node: ast.expr) -> str:
    """Return a literal's text, with `{}` for each value in it; what is no literal has none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return text_of(node.args[0]) if isinstance(node, ast.Call) and node.args else ""


def is_sentence(text: str) -> bool:
    """True if more plain words follow each other than a name has; our own commands are names."""
    run = 0
    for word in re.sub(r"trimaran( [a-z-]+)+", "trimaran.", text).replace(".*", " . ").split():
        run = run + 1 if re.fullmatch("[a-z]+[,;:]?", word) else 0
        if run > WORD_LIMIT:
            return True
        if word.endswith(","):  # a list of names
            run = 0
    return False


def compared_texts(function: ast.AST) -> Iterator[ast.expr]:
    """Each literal that a test compares with an error or with what was printed, also from its table of cases."""
    tables: dict[str, list[ast.expr]] = {}
    for decorator in getattr(function, "decorator_list", ()):
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.parametrize":
            for name in re.findall(r"\w+", ast.unparse(decorator.args[0])):
                tables[name] = [node for node in ast.walk(decorator.args[1]) if isinstance(node, ast.expr)]
    for node in ast.walk(function):
        found: list[ast.expr] = []
        match node:
            case ast.keyword(arg="match", value=value):
                found = [value]
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[said]):
                found = [left] if SAID.search(ast.unparse(said)) else []
            case ast.Compare(left=said, ops=[ast.Eq()], comparators=[right]):
                found = [right] if ast.unparse(said).startswith("str(") else []
            case ast.Call(func=ast.Name(id="has_facts"), args=[_, *facts]):
                found = facts
        for each in found:
            yield from tables.get(each.id, ()) if isinstance(each, ast.Name) else [each]


def sentences_in(tree: ast.AST) -> list[str]:
    """Each sentence that a module compares with."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return sorted(
        {text for function in functions for each in compared_texts(function) if is_sentence(text := text_of(each))}
    )


def advice_in(text: str) -> list[str]:
    """Each place where a page, or a module with texts over several lines, advises to remove a member's directory."""
    return [found[0] for found in REMOVING.finditer(re.sub(r"\s+", " ", re.sub(r'"\s+f?"', "", text)))]


def test_nothing_advises_to_remove_the_directory_of_a_member() -> None:
    files = (*python_files("archive", "client", "cluster", "service_api"), *(ROOT / "docs").rglob("*.md"))

    assert [f"{file.name}: {each}" for file in files for each in advice_in(file.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "text",
    [
        "remove this member's directory",
        "bring it back: remove its directory and start it",
        "remove the member's directory",
    ],
)
def test_advice_to_remove_a_directory_is_found(text: str) -> None:
    assert advice_in(text)


def test_no_test_compares_with_a_sentence() -> None:
    found = [f"{module}: {text!r}" for module, tree in parsed("tests") for text in sentences_in(tree)]

    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "with pytest.raises(E, match='the member is not there'): pass",
        "with pytest.raises(E, match=f'no such member as {name}'): pass",
        "assert 'no member is there' in result.stderr",
        "assert str(caught.value) == 'it is not there'",
        "assert has_facts(result.output, 'member_id=3', 'it is not there')",
    ],
)
def test_the_check_finds_each_kind(line: str) -> None:
    assert len(sentences_in(ast.parse(f"def test() -> None:\n    {line}"))) == 1


def test_the_check_finds_a_sentence_in_a_table() -> None:
    table = "@pytest.mark.parametrize(('name', 'said'), [('a', 'no such name here'), ('b c d', 'name=b')])"
    test = "def test(name: str, said: str) -> None:\n    with pytest.raises(E, match=said): pass"

    assert sentences_in(ast.parse(f"{table}\n{test}")) == ["no such name here"]


def test_facts_and_key_words_may_be_compared() -> None:
    facts = ("member_id=3 expected=1", "wrong checksum", "not 3 of 5", r"group 1 of 2.*at member 1", "trimaran node up")

    assert [fact for fact in facts if is_sentence(fact)] == []
