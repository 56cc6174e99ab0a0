"""The glossary is kept: its tables are sorted, and names in the code avoid the words that it rules out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from trimaran.cluster.settings.config import NodeConfig

ROOT = Path(__file__).parent.parent
PACKAGES = ("archive", "client", "cluster", "service_api", "benchmarks", "notebooks")
RULED_OUT = re.compile(
    r"(?:^|_)(?:alike|franchise|desk|office|unsaid|whoever)(?:_|$)|Desk|Office|Franchise|_right_frames"
)
"""No identifier of the product has these parts: the words of the glossary's last table that are never fitting."""


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
        f"{path.relative_to(ROOT)}: {name}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for name in names_of(ast.parse(path.read_text()))
        if RULED_OUT.search(name)
    }

    assert offending == set()


def test_the_pattern_finds_a_word_that_is_ruled_out() -> None:
    assert all(RULED_OUT.search(name) for name in ("QueryDesk", "count_alike", "has_franchise", "skip_right_frames"))
    assert not any(RULED_OUT.search(name) for name in ("copyright", "bisect_right", "desktop"))


def test_the_defaults_in_the_page_of_differences_are_the_settings() -> None:
    """Our column of the table, against a configuration in which nothing is set."""
    defaults = {name: field.default for name, field in NodeConfig.model_fields.items()}
    written = {
        name.strip("`"): {"on": True, "off": False}.get(ours, ours)
        for name, _, ours, _ in table("differences.md", "Changed defaults")
    }

    assert written.keys() <= defaults.keys()
    assert {name: str(value) for name, value in written.items()} == {name: str(defaults[name]) for name in written}
