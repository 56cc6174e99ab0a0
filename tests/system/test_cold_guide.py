"""docs/cold-storage.md runs as it is printed: a log much longer than what its member keeps, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.places import ROOT
from tests.system.guide import run_guide

GUIDE = ROOT / "docs" / "cold-storage.md"


@pytest.mark.slow
def test_a_log_that_left_the_disk_is_read_as_the_page_says(tmp_path: Path) -> None:
    for step in run_guide(GUIDE, tmp_path):
        step.check()
