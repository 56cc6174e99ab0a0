"""docs/incidents.md runs as it is printed: every command, in one shell, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.places import ROOT
from tests.system.guide import run_guide

UNHEALTHY = 10


@pytest.mark.slow
def test_each_fault_is_found_as_the_page_says(tmp_path: Path) -> None:
    for step in run_guide(ROOT / "docs" / "incidents.md", tmp_path):
        step.check(expected_status=UNHEALTHY if step.command == "trimaran health" else 0)
