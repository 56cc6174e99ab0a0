"""docs/testing.md as a newcomer follows it: an empty directory, the README's counter, the page's files, pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.waiting import patient

PLUGIN = "trimaran.cluster.testing.plugin"
FEWER = """
from hypothesis import settings
from trimaran.cluster.testing import machines

settings.register_profile("fewer", deadline=None, max_examples=20)
settings.load_profile("fewer")
machines._RUN_COUNT = 15
"""
"""The page's conftest.py with fewer examples than a user's tests have."""


def blocks(page: str) -> list[str]:
    """Every Python block of a page, in order."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("conftest", [FEWER, pytest.param(None, marks=pytest.mark.campaign)], ids=["fewer", "all"])
def test_the_tests_of_the_page_pass_as_they_are_printed(tmp_path: Path, conftest: str | None) -> None:
    """Each block says in its first line how its file is called."""
    (tmp_path / "counter.py").write_text(blocks("README.md")[0])
    count = 0
    for block in blocks("docs/testing.md"):
        name, text = block.split("\n", 1)
        (tmp_path / name.removeprefix("# ")).write_text(text)
        count += len(re.findall(r"^(?:(?:async )?def test_|Test\w+ = )", text, flags=re.MULTILINE))
    if conftest is not None:
        (tmp_path / "conftest.py").write_text(conftest)

    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:cacheprovider", "-p", "no:asyncio"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
        capture_output=True,
        text=True,
        timeout=patient(170),
        check=False,
    )

    assert f"{count} passed" in result.stdout, result.stdout + result.stderr
