"""docs/operations.md runs as it is printed: every command, in one shell, with real processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.system.guide import run_guide, steps_of
from tests.unit.cluster.cli.test_help import command_of

GUIDE = ROOT / "docs" / "operations.md"

EXPECTED_STATUSES = {
    "trimaran health": 3,  # at the end, when nothing runs
    "trimaran archive verify hour/node-1/archive -o jsonl | grep -c wrong": 1,  # grep has found nothing
}


@pytest.mark.slow
def test_the_hour_with_a_cluster_goes_as_the_page_says(tmp_path: Path) -> None:
    for step in run_guide(GUIDE, tmp_path):
        step.check(expected_status=EXPECTED_STATUSES.get(step.command, 0))


def test_each_command_of_ours_in_the_table_for_other_systems_exists() -> None:
    """With each flag that the table gives it; each row has one of ours, and one cell for each system."""
    rows = [line.split(" | ") for line in GUIDE.read_text().partition("| you ask | etcdctl |")[2].splitlines()[2:]]

    for row in rows:
        assert len(row) == 7, row
        ours = re.findall(r"`trimaran (.*?)`", row[-1])
        assert ours, row
        for words in map(str.split, ours):
            flags = [word for word in words if word.startswith("-")]
            names = [word for word in words if not word.startswith("-") and not word.isdecimal()]
            known = {name for parameter in command_of(names).params for name in parameter.opts}
            assert known >= set(flags), words
    assert len(rows) > 20


def test_the_page_tells_of_every_command_for_operators() -> None:
    commands = " ".join(step.command for step in steps_of(GUIDE))

    for name in (
        "up",
        "status",
        "health",
        "member list",
        "sessions",
        "timers",
        "errors",
        "recording-log",
        "recovery-plan",
    ):
        assert f"trimaran {name}" in commands
