"""docs/full-disk.md runs as it is printed: every command, in one shell, with real processes and a small file system."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.places import ROOT
from tests.system.guide import run_guide

AS_ROOT: Final = ("unshare", "--user", "--map-root-user", "--mount")
"""Whoever runs the test is root of a namespace of its own, and the small file system goes with it."""


@pytest.mark.campaign
@pytest.mark.slow
def test_a_full_disk_is_what_the_page_says(tmp_path: Path) -> None:
    """Nothing is forked here: a forked member would not see the file system, which makes this a test for campaigns."""
    if shutil.which("unshare") is None or subprocess.run([*AS_ROOT, "true"], capture_output=True).returncode:
        pytest.skip("no namespace with a file system of its own can be made here")

    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for step in run_guide(ROOT / "docs" / "full-disk.md", tmp_path, run_by=AS_ROOT, PATH=path):
        step.check()
