"""The pages of the services that are ready to run go as they are printed, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.places import ROOT
from tests.system.guide import run_guide

GUIDES = ("ready-made.md", "counters.md", "kv.md", "locks.md", "queue.md")


@pytest.mark.slow
@pytest.mark.parametrize("name", GUIDES)
def test_the_page_goes_as_it_says(name: str, tmp_path: Path) -> None:
    for step in run_guide(ROOT / "docs" / name, tmp_path):
        step.check()
