"""docs/writing-a-service.md: its service passes its tests, and the lint finds nothing in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.places import ROOT


def blocks_of(page: str) -> dict[str, str]:
    """The Python files of a page by their names, which their first lines say."""
    found = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    return dict(found)


def test_the_service_of_the_page_passes_the_tests_of_the_page(tmp_path: Path) -> None:
    files = blocks_of("docs/writing-a-service.md")
    assert sorted(files) == ["auction.py", "test_auction.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    arguments = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_auction.py"]
    result = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    assert "1 passed" in result.stdout, result.stdout + result.stderr
