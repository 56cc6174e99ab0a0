"""Runs commands of `trimaran` that end by themselves, each in a process of its own.

The process is forked from one that has imported the commands already, as members are (`fork_server`): a command that
asks a cluster something takes a tenth of a second, and importing takes three times as long. Tests of how a command
starts, is killed or reads its terminal start `python -m trimaran`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.system.fork_server import ForkedProcess, fork_server
from tests.waiting import patient, wait_until
from trimaran.cluster.settings.variables import clean_environment

TIMEOUT_S = 60.0


@dataclass(slots=True, frozen=True)
class Printed:
    """What one run of a command printed."""

    exit_status: int
    output: str
    errors: str


async def run_trimaran(*arguments: str, **environment: str) -> Printed:
    """Run `trimaran` as a user would who has set no `TRIMARAN_` variables but these.

    Raises:
        AssertionError: it has not ended in time, and was killed.
    """
    with started(*arguments, **environment) as (process, read):
        what = f"the end of trimaran {' '.join(arguments)}"
        await wait_until(lambda: process.poll() is not None, timeout_s=TIMEOUT_S, what=what)
        return read()


def run_trimaran_blocking(*arguments: str, **environment: str) -> Printed:
    """Do the same where there is no event loop.

    Raises:
        subprocess.TimeoutExpired: it has not ended in time, and was killed.
    """
    with started(*arguments, **environment) as (process, read):
        process.wait(patient(TIMEOUT_S))
        return read()


@contextmanager
def started(*arguments: str, **environment: str) -> Iterator[tuple[ForkedProcess, Callable[[], Printed]]]:
    """A process that is killed when the block ends, and what reads what it printed once it has ended."""
    own = clean_environment()
    with tempfile.TemporaryDirectory() as directory:
        output, errors = Path(directory, "output"), Path(directory, "errors")
        with Path(os.devnull).open("rb") as nothing, output.open("wb") as one, errors.open("wb") as other:
            files = [nothing.fileno(), one.fileno(), other.fileno()]
            process = fork_server().fork("trimaran", arguments, own | environment, files)
        try:
            yield process, lambda: Printed(process.wait(), output.read_text(), errors.read_text())
        finally:
            process.kill()
            process.wait()
