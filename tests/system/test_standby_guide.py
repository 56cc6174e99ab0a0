"""docs/standby.md runs as it is printed: every command, in one shell, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.places import ROOT
from tests.system.guide import run_guide

REFUSED = 12


@pytest.mark.slow
def test_a_standby_does_what_the_page_says(tmp_path: Path) -> None:
    steps = run_guide(ROOT / "docs" / "standby.md", tmp_path)
    for step in steps:
        is_refused = any(line.startswith("trimaran: ") for line in step.lines)
        step.check(expected_status=REFUSED if is_refused else 0)
