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
SECURITY = (ROOT / "docs" / "security.md").read_text()
ARCHIVE_TOOL_PAGE = (ROOT / "docs" / "archive-tool.md").read_text()

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


def test_every_cell_of_the_interchange_matrix_names_a_test_or_a_dated_run() -> None:
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
    for key, what in lists.items():
        if key.startswith("R"):
            assert re.search(r"\| \d{4}-\d\d-\d\d: ", what), key
            continue
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
