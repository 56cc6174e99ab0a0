"""docs/writing-a-service.md: its service passes its tests, and the lint finds nothing in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.places import ROOT
from tests.waiting import patient
from trimaran.cluster.testing import ServiceHarness


def blocks_of(page: str) -> dict[str, str]:
    """The Python files of a page by their names, which their first lines say."""
    found = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    return dict(found)


def test_the_service_of_the_page_passes_the_tests_of_the_page(tmp_path: Path) -> None:
    files = blocks_of("docs/writing-a-service.md")
    assert sorted(files) == ["auction.py", "shop.py", "test_auction.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    arguments = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_auction.py"]
    result = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=patient(120), check=False)

    assert "1 passed" in result.stdout, result.stdout + result.stderr


def test_the_large_service_of_the_page_comes_back_from_its_snapshot(tmp_path: Path) -> None:
    space: dict[str, Any] = {"__name__": "shop"}
    sys.modules["shop"] = ModuleType("shop")  # dataclasses look their module up
    try:
        exec(blocks_of("docs/writing-a-service.md")["shop.py"], space)
        harness = ServiceHarness(space["Shop"])
        harness.service.orders = {number: space["Order"]("TRI", number) for number in range(5_000)}
        harness.service.closed = [*range(7_000)]
        before = harness.service

        harness.restart()
    finally:
        del sys.modules["shop"]

    assert before.yields_snapshots
    assert (harness.service.orders, harness.service.closed) == (before.orders, before.closed)
