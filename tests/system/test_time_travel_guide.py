"""docs/time-travel.md runs as it is printed: a cluster with a past, its states, other code on its log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.system.guide import run_guide, steps_of

GUIDE = ROOT / "docs" / "time-travel.md"
WHAT_IF = "trimaran replay past/node-0 --service bank:Bank --what-if bank:StrictBank"


def lay_out(directory: Path) -> None:
    """Make the files with a name in their first line."""
    for name, body in re.findall(r"```python\n# (\S+)\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL):
        (directory / name).write_text(body)


@pytest.mark.slow
def test_time_travel_goes_as_the_page_says(tmp_path: Path) -> None:
    lay_out(tmp_path)

    steps = run_guide(GUIDE, tmp_path, PYTHONPATH=str(ROOT))

    for step in steps:
        step.check(expected_status=10 if step.command == WHAT_IF else 0)
    (compared,) = [step for step in steps if step.command == WHAT_IF]
    assert compared.printed.count("refused") == 2
    states = [
        line.split("balances=")[1].strip() for step in steps for line in step.printed.splitlines() if "bal" in line
    ]
    assert states == ["{'ann': -250, 'bob': 15}", "{'ann': -50, 'bob': 15}", "{}", "{'ann': -250, 'bob': 15}"]
    verified = next(step for step in steps if "--verify-snapshots" in step.command)
    assert len(re.findall(r"^ +\d+ +\d+ ", verified.printed, flags=re.MULTILINE)) == 2


def test_the_python_of_the_page_is_python() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)

    assert len(blocks) == 4
    for block in blocks:
        compile(block, "time-travel.md", "exec")
    assert all(step.command for step in steps_of(GUIDE))
