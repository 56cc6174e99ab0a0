"""The tables of docs/ that name tests, scenarios and commands do not rot."""

from __future__ import annotations

import re

import pytest

from tests.places import ROOT
from trimaran.cluster.cli.app import COMMANDS
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.access.permissions import PERMISSIONS, Permission

SCENARIOS = (ROOT / "docs" / "aeron-scenarios.md").read_text()
TOOLS = (ROOT / "docs" / "cluster-tool.md").read_text()
INTERCHANGE = (ROOT / "docs" / "interchange.md").read_text()
DIFFERENCES = (ROOT / "docs" / "differences.md").read_text()
SECURITY = (ROOT / "docs" / "security.md").read_text()
ARCHIVE_TOOL_PAGE = (ROOT / "docs" / "archive-tool.md").read_text()

STATEMENTS = [
    [cell.strip() for cell in line.split(" | ")]
    for line in (ROOT / "tests" / "data" / "aeron" / "statements.txt").read_text().splitlines()
    if re.match(r"\d{3}-\d+ ", line)
]
"""Number of a page and statement, what it says, `as described` or `different`, where, and a test if there is one.

The statements are those of the five pages that differences.md names. What holds names a file and what is in it; what
is different names a row of differences.md by its section and how it begins.
"""
STATEMENT_COUNTS = {"000": 49, "001": 57, "002": 34, "003": 21, "004": 47}

CLUSTER_TOOL = (
    *("describe", "pid", "recovery-plan", "recording-log", "sort-recording-log", "seed-recording-log-from-snapshot"),
    *("errors", "list-members", "backup-query", "invalidate-latest-snapshot", "is-leader", "snapshot", "suspend"),
    *("resume", "shutdown", "abort", "describe-latest-cm-snapshot", "validate-recording-log", "standby-snapshot"),
)
ARCHIVE_TOOL = (
    *("describe", "describe-all", "dump", "errors", "pid", "count-entries", "max-entries", "capacity", "verify"),
    *("checksum", "compact", "delete-orphaned-segments", "migrate", "mark-invalid", "mark-valid"),
)


_ABSENT = ("**not covered yet**: ",)


def rows() -> dict[str, str]:
    """Scenario to what covers it."""
    found = [line.strip("| ").split(" | ", 1) for line in SCENARIOS.splitlines() if re.match(r"\| \w+\.\w+ \|", line)]
    assert len(found) == len({name for name, _ in found})
    return {row[0]: row[1] for row in found}


def test_no_scenario_is_missing_and_none_is_made_up() -> None:
    """The list was taken from the sources of Aeron's own system tests."""
    names = (ROOT / "tests" / "data" / "aeron" / "scenarios.txt").read_text().split()

    assert sorted(rows()) == sorted(names)


def test_every_scenario_is_covered_or_says_why_not() -> None:
    for name, cell in rows().items():
        is_said = cell.startswith(("`tests/", "does not apply: ", "differs on purpose, ", *_ABSENT))
        assert is_said, name


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", SCENARIOS)

    assert len(named) > 100
    for path, test in named:
        assert f"def {test}(" in (ROOT / path).read_text(), f"{path}::{test}"


def test_every_cell_of_the_interchange_matrix_names_a_test() -> None:
    """A row is a recording that is there; a key is in the lists below, and each key of these in a cell."""
    lists = dict(re.findall(r"^\| ([A-Z]\d+) \| (.*) \|$", INTERCHANGE, flags=re.MULTILINE))
    matrix = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in INTERCHANGE.splitlines()
        if line.count("|") == 8 and not line.startswith(("| recording", "|---"))
    ]

    cells = [key for row in matrix for cell in row[2:] for key in cell.split()]
    for row in matrix:
        stored = re.match(r"`([\w-]+)`", row[0])
        assert stored is None or (ROOT / "tests" / "data" / "aeron" / f"{stored[1]}.tar.gz").is_file(), row[0]
        assert any(row[2:]), row[0]
    assert len(matrix) > 15
    assert set(cells) == lists.keys()
    for what in lists.values():
        path, *_, test = what.strip("`").split("::")
        assert f"def {test}(" in (ROOT / path).read_text(), what


def test_every_recording_that_is_stored_has_a_row_in_the_interchange_matrix() -> None:
    stored = {path.name.removesuffix(".tar.gz") for path in (ROOT / "tests" / "data" / "aeron").glob("*.tar.gz")}

    assert stored == set(re.findall(r"^\| `([\w-]+)`", INTERCHANGE, flags=re.MULTILINE))


def test_the_counts_in_the_introduction_are_right() -> None:
    cells = rows().values()
    covered = sum(cell.startswith("`") for cell in cells)
    different = sum(cell.startswith("differs") for cell in cells)
    elsewhere = sum(cell.startswith("does not apply") for cell in cells)
    (missing,) = (sum(cell.startswith(absent) for cell in cells) for absent in _ABSENT)

    introduction = SCENARIOS.split("\n## ")[0]
    assert [covered, different, elsewhere, missing] == [int(count) for count in re.findall(r"\b\d+\b", introduction)]


def test_every_statement_about_aeron_is_in_the_list_once() -> None:
    numbers = [f"{page}-{index + 1}" for page, count in STATEMENT_COUNTS.items() for index in range(count)]

    assert [number for number, *_ in STATEMENTS] == numbers


def test_every_statement_that_holds_names_code_and_a_test_that_exist() -> None:
    for number, _, status, where, *tests in STATEMENTS:
        if status == "as described":
            path, name = where.split(":")
            assert re.search(rf"^ *(?:(?:async )?def|class) {name}\b", (ROOT / path).read_text(), re.MULTILINE), number
            assert tests, number
        for test in tests:
            path, name = test.split("::")
            assert f"def {name}(" in (ROOT / path).read_text(), number


def test_every_statement_that_is_different_names_one_row_of_the_page_of_differences() -> None:
    sections = dict(section.split("\n", 1) for section in DIFFERENCES.split("\n## ")[1:])
    for number, _, status, where, *_ in STATEMENTS:
        if status != "as described":
            assert status == "different", number
            heading, begin = where.split(": ", 1)
            assert sections[heading].count(f"\n| {begin}") == 1, number


def test_the_counts_of_statements_in_the_page_of_differences_are_right() -> None:
    statuses = [status for _, _, status, *_ in STATEMENTS]
    said = re.findall(r"\b\d+\b", DIFFERENCES.split("\n## ")[0].split("statements", 1)[0].rsplit("Those", 1)[1])
    holding, different = re.findall(r"\b(\d+) (?:hold as described|are different)", DIFFERENCES)

    assert [int(said[0]), int(holding), int(different)] == [
        len(statuses),
        statuses.count("as described"),
        statuses.count("different"),
    ]


@pytest.mark.parametrize(
    ("page", "heading", "commands"),
    [(TOOLS, "ClusterTool", CLUSTER_TOOL), (ARCHIVE_TOOL_PAGE, "Command by command", ARCHIVE_TOOL)],
)
def test_every_command_of_their_tools_has_a_row(page: str, heading: str, commands: tuple[str, ...]) -> None:
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    named = re.findall(r"`([a-z-]+)", " ".join(re.findall(r"^\| ([^|]*) \|", section, flags=re.MULTILINE)))

    assert sorted(named) == sorted(commands)


def test_every_command_of_ours_that_a_table_names_exists() -> None:
    named = set(re.findall(r"`trimaran ([a-z-]+)", TOOLS + ARCHIVE_TOOL_PAGE))

    assert named - set(COMMANDS) == set()


def test_the_table_of_who_may_do_what_is_the_one_that_holds() -> None:
    head, _, *rows = re.findall(r"^\|.*\|$", SECURITY.split("## Who may do what\n")[1].split("\n## ")[0], re.MULTILINE)
    shown = {what: cells for what, *cells in ([cell.strip() for cell in row.strip("|").split("|")] for row in rows)}

    assert head == "| what | plain text | " + " | ".join(CallerRole) + " |"
    assert shown == {
        str(permission): [
            "yes" if allowed else "no" for allowed in (row.in_plain_text, *(role in row.roles for role in CallerRole))
        ]
        for permission, row in PERMISSIONS.items()
    }
    assert PERMISSIONS.keys() == set(Permission)
