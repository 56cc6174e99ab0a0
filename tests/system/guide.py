"""Runs a page of docs/ as it is printed: its commands in one shell, and what each prints beside what the page says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.system.forked_command import commands_on_path
from tests.waiting import patient
from trimaran.cluster.settings.variables import clean_environment

DEADLINE_S = 150

SHORT_LOGS: Final = {"TRIMARAN_TERM_LENGTH_BYTES": "1MiB", "TRIMARAN_SEGMENT_LENGTH_BYTES": "1MiB"}
"""A segment of the default length is 128 MiB that are written when a member starts, and freed when the test ends."""

_MARK: Final = "@@@@"


@dataclass(slots=True)
class Step:
    """A command, and what the page says that it prints."""

    command: str
    lines: list[str] = field(default_factory=list)
    printed: str = ""
    status: int | None = None

    def check(self, *, expected_status: int = 0) -> None:
        """Expect each line of the page among those that were printed, but for numbers, and the exit status."""
        actual = [plain(line) for line in self.printed.splitlines()]
        for line in self.lines:
            assert any(plain(line) in printed_line for printed_line in actual), f"{self.command}\n{self.printed}"
        assert self.status == expected_status, f"{self.command}\n{self.printed}"


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
    line = re.sub(r" of cluster [0-9a-f]{16}\b", "", line)  # in its first second it has no id yet
    line = re.sub(r"\bcluster [0-9a-f]{16}\b", "cluster N", line)
    words = " ".join(re.sub(r"\d[\d,.:TZ-]*", "N", line).split())
    return re.sub(r"\bN (ms|s)\b", "N s", words)  # how long something took, in whichever unit


def run_guide(page: Path, directory: Path, *, run_by: tuple[str, ...] = (), **environment: str) -> list[Step]:
    """Run the commands of a page in one shell in `directory`; gives them with what each printed.

    `run_by` is a command that starts the shell, such as one that makes a namespace for it.
    """
    steps = steps_of(page)
    clean = clean_environment()
    path = f"{commands_on_path()}:{Path(sys.executable).parent}:{clean['PATH']}"
    clean |= {"PATH": path, "COLUMNS": "160"} | SHORT_LOGS | environment
    script = "\n".join(f"{step.command}\necho '{_MARK}' $?" for step in steps)

    with (directory / "output").open("wb") as output:
        shell = subprocess.Popen(
            [*run_by, "bash", "-m", "-c", script],
            cwd=directory,
            env=clean,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            shell.wait(patient(DEADLINE_S))
        finally:
            _leave_nothing_behind(shell)

    text = (directory / "output").read_text()
    *parts, rest = re.split(rf"{_MARK} (\d+)\n", text)
    assert len(parts) == 2 * len(steps), text
    assert rest == "", text
    for step, printed, status in zip(steps, parts[0::2], parts[1::2], strict=True):
        step.printed, step.status = printed, int(status)
    return steps


def _leave_nothing_behind(shell: subprocess.Popen[bytes]) -> None:
    """End the shell's group, and with it `trimaran up`, whose members end with it."""
    try:
        os.killpg(shell.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    shell.wait()
