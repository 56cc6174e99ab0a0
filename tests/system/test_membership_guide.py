"""docs/membership.md runs as it is printed: every command, in one shell, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.places import ROOT
from tests.system.guide import run_guide

REFUSED = 12


@pytest.mark.slow
def test_members_come_and_go_as_the_page_says(tmp_path: Path) -> None:
    for step in run_guide(ROOT / "docs" / "membership.md", tmp_path):
        step.check(expected_status=REFUSED if step.command.endswith(("--id 7", "--to 3")) else 0)
