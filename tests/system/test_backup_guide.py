"""docs/backup.md runs as it is printed: every command, in one shell, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.places import ROOT
from tests.system.guide import run_guide

GUIDE = ROOT / "docs" / "backup.md"


@pytest.mark.slow
def test_the_hour_with_a_backup_goes_as_the_page_says(tmp_path: Path) -> None:
    for step in run_guide(GUIDE, tmp_path):
        step.check(expected_status=1 if "grep -c" in step.command else 0)  # grep has found nothing
