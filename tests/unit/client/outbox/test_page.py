"""The code of docs/calling-other-systems.md runs as it is printed."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import pytest

from tests.places import ROOT


def test_the_code_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "calling-other-systems.md").read_text(encoding="utf-8")
    module = ModuleType("calling_other_systems")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "calling-other-systems.md", "exec"), module.__dict__)

    module.test_a_seat_is_charged_when_the_leader_dies()
