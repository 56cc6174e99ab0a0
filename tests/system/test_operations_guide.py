"""docs/operations.md runs as it is printed: every command, in one shell, with real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "operations.md"
DEADLINE_S = 150
MARK = "@@@@"

EXPECTED_STATUSES = {
    "quorate health": 3,  # at the end, when nothing runs
    "quorate archive verify hour/node-1/archive -o jsonl | grep -c wrong": 1,  # grep has found nothing
}


@dataclass(slots=True)
class Step:
    """A command, and what the page says that it prints."""

    command: str
    lines: list[str] = field(default_factory=list)


def steps_of(page: Path) -> list[Step]:
    """Every command of a page, in order."""
    found: list[Step] = []
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), flags=re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:]))
            else:
                found[-1].lines.append(line)
    return found


def plain(line: str) -> str:
    """A line without what differs from run to run: numbers, and how columns are filled up."""
    return " ".join(re.sub(r"\d[\d,.:TZ-]*", "N", line).split())


def as_script(steps: list[Step]) -> str:
    """All commands, each with a mark and its exit status behind it."""
    return "\n".join(f"{step.command}\necho '{MARK}' $?" for step in steps)


def leave_nothing_behind(shell: subprocess.Popen[bytes]) -> None:
    """End the shell's group, and with it `quorate up`, whose members end with it."""
    try:
        os.killpg(shell.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    shell.wait()


@pytest.mark.slow
def test_the_hour_with_a_cluster_goes_as_the_page_says(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("QUORATE_")}
    environment = clean | {"PATH": f"{Path(sys.executable).parent}:{clean['PATH']}", "COLUMNS": "160"}
    wanted = steps_of(GUIDE)

    with (tmp_path / "output").open("wb") as output:
        shell = subprocess.Popen(
            ["bash", "-m", "-c", as_script(wanted)],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            shell.wait(DEADLINE_S)
        finally:
            leave_nothing_behind(shell)

    text = (tmp_path / "output").read_text()
    parts = re.split(rf"{MARK} (\d+)\n", text)
    printed, statuses = parts[0::2][: len(wanted)], [int(status) for status in parts[1::2]]
    assert len(statuses) == len(wanted), text
    for step, output_text, status in zip(wanted, printed, statuses, strict=True):
        actual = [plain(line) for line in output_text.splitlines()]
        for line in step.lines:
            assert any(plain(line) in printed_line for printed_line in actual), f"{step.command}\n{output_text}"
        assert status == EXPECTED_STATUSES.get(step.command, 0), f"{step.command}\n{output_text}"
    assert parts[0::2][-1] == ""


def test_the_page_tells_of_every_command_for_operators() -> None:
    commands = " ".join(step.command for step in steps_of(GUIDE))

    for name in ("up", "status", "health", "members", "sessions", "timers", "errors", "recording-log", "recovery-plan"):
        assert f"quorate {name}" in commands
