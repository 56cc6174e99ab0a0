"""docs/archive-tool.md is run as it is printed, and tells of every command."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from tests.places import ROOT
from trimaran.cluster.cli.archive import app

GUIDE = (ROOT / "docs" / "archive-tool.md").read_text()

ON_OTHER_PAGES = {"export", "export-aeron", "import", "serve"}
"""Commands that the page names and other pages tell of."""


@dataclass(slots=True)
class Step:
    """A command, what the page says that it prints, and the exit status behind that, 0 unless there is a number."""

    command: str
    lines: list[str] = field(default_factory=list)
    status: int = 0


def steps() -> list[Step]:
    """Every command of the page, in order."""
    found: list[Step] = []
    for block in re.findall(r"```console\n(.*?)```", GUIDE, flags=re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:]))
            elif line.isdecimal():
                found[-1].status = int(line)
            else:
                found[-1].lines.append(line)
    return found


def plain(text: str) -> str:
    """A line without how its columns are filled up."""
    return " ".join(text.split())


def test_the_page_runs_as_it_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)

    for step in steps():
        words = shlex.split(step.command)
        if words[:2] != ["trimaran", "archive"]:
            subprocess.run(words, check=True)
            continue
        result = CliRunner().invoke(app, words[2:])
        printed = [plain(line) for line in result.output.splitlines()]
        assert result.exit_code == step.status, f"{step.command}\n{result.output}"
        assert step.lines, step.command
        for line in step.lines:
            assert any(plain(line) in other for other in printed), f"{step.command}\n{line}\n{result.output}"


def test_the_page_shows_every_command() -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    shown = {step.command.split()[2] for step in steps() if step.command.startswith("trimaran archive")}

    assert set(group.commands) - ON_OTHER_PAGES <= shown
    assert all(f"`{name}`" in GUIDE for name in set(group.commands) - shown)
