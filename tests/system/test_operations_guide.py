"""docs/operations.md runs as it is printed: every command, in one shell, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.places import ROOT
from tests.system.guide import run_guide, steps_of

GUIDE = ROOT / "docs" / "operations.md"

EXPECTED_STATUSES = {
    "trimaran health": 3,  # at the end, when nothing runs
    "trimaran archive verify hour/node-1/archive -o jsonl | grep -c wrong": 1,  # grep has found nothing
}


@pytest.mark.slow
def test_the_hour_with_a_cluster_goes_as_the_page_says(tmp_path: Path) -> None:
    for step in run_guide(GUIDE, tmp_path):
        step.check(expected_status=EXPECTED_STATUSES.get(step.command, 0))


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
