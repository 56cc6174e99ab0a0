"""pyright sees the types of clients as mypy does, which reads all tests in `make check`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.waiting import patient

CLIENT = Path(__file__).parents[1]
USES = (CLIENT / "typed" / "checked_use.py", CLIENT / "blocking" / "checked_use.py")


@pytest.mark.campaign
@pytest.mark.parametrize("use", USES, ids=lambda use: use.parent.name)
def test_pyright_takes_right_use_and_refuses_each_wrong_line(use: Path, tmp_path: Path) -> None:
    configuration = {
        "include": [str(use)],
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
        "extraPaths": [str(ROOT), str(ROOT / "src")],
        "enableTypeIgnoreComments": False,
        "typeCheckingMode": "standard",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(configuration))

    result = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--project", str(tmp_path), "--outputjson"],
        capture_output=True,
        text=True,
        timeout=patient(300),
        check=False,
    )

    found = json.loads(result.stdout)["generalDiagnostics"]
    refused = {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}
    expected = {number for number, line in enumerate(use.read_text().splitlines(), 1) if "type: ignore" in line}
    assert refused == expected
