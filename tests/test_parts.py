"""The five parts: each test has one, and each part has a page that its owner can begin with."""

from __future__ import annotations

import re

import pytest

from tests.parts import APART, OTHER_TESTS, PARTS, UNIT, part_of, paths_of
from tests.places import ROOT

SCREEN_LINES = 50
READING_LIMIT = 9


def test_each_unit_test_is_run_by_exactly_one_part() -> None:
    """A part runs whole folders where it can, so a folder of two parts would be run by both, or by neither."""
    tests = [test for test in UNIT.rglob("test_*.py") if test.relative_to(UNIT).parts[0] not in APART]
    runs = {part: list(paths_of(part)) for part in PARTS}

    for test in tests:
        holders = [part for part, paths in runs.items() for path in paths if test.is_relative_to(path)]
        assert holders == [part_of(test)], test


@pytest.mark.parametrize(
    ("test", "part"),
    [
        ("archive/test_archive.py", "kernel"),
        ("archive/reading/vector/test_columns.py", "data"),
        ("client/test_outbox_worker.py", "services"),
        ("client/typed/test_exchange.py", "services"),
        ("cluster/cli/demo/test_demo.py", "operating"),
        ("cluster/testing/simulation/rules/test_referee.py", "lab"),
    ],
)
def test_a_test_belongs_to_the_part_of_what_it_mirrors(test: str, part: str) -> None:
    assert part_of(UNIT / test) == part


def test_other_tests_exist_and_are_of_one_part() -> None:
    places = [place for part in PARTS for place in OTHER_TESTS[part]]

    assert len(places) == len(set(places))
    assert [place for place in places if not (ROOT / place).exists()] == []


@pytest.mark.parametrize("part", PARTS)
def test_each_part_has_a_page_of_one_screen_and_a_target(part: str) -> None:
    page = (ROOT / "docs" / "parts" / f"{part}.md").read_text(encoding="utf-8")
    numbers = re.findall(r"^(\d+)\. \[", page, flags=re.MULTILINE)

    assert len(page.splitlines()) <= SCREEN_LINES
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert 1 < len(numbers) <= READING_LIMIT
    assert f"`make test-{part}`" in page
    assert re.search(rf"^(test-\w+ )*test-{part}\b.*: ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
