"""docs/groups.md runs as it is printed: every command, in one shell, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.places import ROOT
from tests.system.guide import run_guide


@pytest.mark.slow
def test_groups_do_what_the_page_says(tmp_path: Path) -> None:
    """Whatever leads; `plain` passes over numbers."""
    for step in run_guide(ROOT / "docs" / "groups.md", tmp_path):
        step.check()
