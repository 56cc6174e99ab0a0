"""The glossary is kept: its tables are sorted, and names in the code avoid the words that it rules out."""

from __future__ import annotations

import ast
import re

import pytest

from tests.modules import parsed
from tests.places import ROOT
from trimaran.cluster.settings.config import NodeConfig

PACKAGES = ("archive", "client", "cluster", "service_api", "benchmarks", "notebooks")
RULED_OUT = re.compile(
    r"(?:^|_)(?:alike|franchise|desk|office|unsaid|whoever)(?:_|$)|Desk|Office|Franchise|_right_frames"
)
"""No identifier of the product has these parts: the words of the glossary's last table that are never fitting."""

RULED_OUT_IN_PROSE = re.compile(
    r"\b(?:whoever|franchise|alike|unsaid|lest|anew|let go of|right frames|(?:no|a) right frame|right headers"
    r"|(?:query|answering|operation) desk)\b",
    re.IGNORECASE,
)
"""Words of the last table that mean one thing only, so that a sentence with one of them needs another word."""
HYPHENATED = re.compile(r"`[^`]*`|\b[\w.]+(?:[-_][\w.]+)+")
"""Code spans and names such as `node-state-anew`: they are identifiers, and other tests look at identifiers."""
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")} - {ROOT / "docs" / "glossary.md"})


def table(document: str, heading: str) -> list[list[str]]:
    """The rows of the first table after a heading, each a list of cells."""
    text = (ROOT / "docs" / document).read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def names_of(tree: ast.AST) -> set[str]:
    """Every name that a module defines or uses."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
    return found


def docstrings_of(tree: ast.AST) -> list[str]:
    """Every docstring of a module, those of fields included."""
    return [
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


def ruled_out_words(prose: str) -> list[str]:
    """The words of a text that the glossary rules out."""
    return RULED_OUT_IN_PROSE.findall(HYPHENATED.sub(" ", " ".join(prose.split())))


@pytest.mark.parametrize("heading", ["Raft", "Aeron", "Ours"])
def test_each_table_is_in_alphabetical_order_and_has_one_line_a_word(heading: str) -> None:
    rows = table("glossary.md", heading)

    words = [row[0] for row in rows]
    assert words == sorted(words, key=str.casefold)
    assert all(meaning for _, meaning in rows)


def test_no_word_is_explained_twice() -> None:
    words = [word for heading in ("Raft", "Aeron", "Ours") for word, _ in table("glossary.md", heading)]

    assert sorted(words) == sorted(set(words))


def test_names_in_the_code_avoid_the_words_that_are_ruled_out() -> None:
    offending = {
        f"{module}: {name}" for module, tree in parsed(*PACKAGES) for name in names_of(tree) if RULED_OUT.search(name)
    }

    assert offending == set()


def test_the_pattern_finds_a_word_that_is_ruled_out() -> None:
    assert all(RULED_OUT.search(name) for name in ("QueryDesk", "count_alike", "has_franchise", "skip_right_frames"))
    assert not any(RULED_OUT.search(name) for name in ("copyright", "bisect_right", "desktop"))


def test_docstrings_avoid_the_words_that_are_ruled_out() -> None:
    offending = [
        f"{module}: {word}"
        for module, tree in parsed(*PACKAGES)
        for docstring in docstrings_of(tree)
        for word in ruled_out_words(docstring)
    ]

    assert offending == []


def test_pages_avoid_the_words_that_are_ruled_out() -> None:
    """Text outside of blocks of code; the glossary itself has to name the words."""
    pages = {page: re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL) for page in PAGES}

    assert [f"{page.name}: {word}" for page, text in pages.items() for word in ruled_out_words(text)] == []


def test_the_pattern_for_prose_finds_a_word_that_is_ruled_out() -> None:
    assert ruled_out_words("It lets whoever asks\nlet go of the right\nframes, written anew") == [
        "whoever",
        "let go of",
        "right frames",
        "anew",
    ]
    assert ruled_out_words("the plant node-state-anew, `whoever`, the right side, at the right frame") == []


def test_the_defaults_in_the_page_of_differences_are_the_settings() -> None:
    """Our column of the table, against a configuration in which nothing is set."""
    defaults = {name: field.default for name, field in NodeConfig.model_fields.items()}
    written = {
        name.strip("`"): {"on": True, "off": False}.get(ours, ours)
        for name, _, ours, _ in table("differences.md", "Changed defaults")
    }

    assert written.keys() <= defaults.keys()
    assert {name: str(value) for name, value in written.items()} == {name: str(defaults[name]) for name in written}
