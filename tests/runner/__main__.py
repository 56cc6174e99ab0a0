"""`python -m tests.runner [ARGUMENTS OF PYTEST]`: run tests, what failed once more alone, and say what that means.

Ends with 0 if the run is green, 1 if it is red, 130 after Ctrl-C, and 5 if no test was selected.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from . import history
from .outcomes import OPTION, Outcome, read_outcomes
from .verdict import failures, judge, second_run

DISTRIBUTION: Final = ("--dist", "loadscope", "--no-loadscope-reorder", "--max-worker-restart", "100000")
"""xdist's options: files go to workers by `scheduling`, and no number of dead workers ends the run."""

INTERRUPTED: Final = 128 + 2
NO_TESTS: Final = 5
WORKER_LIMIT: Final = 4
"""Processes at most, whatever the number of cores: each may start a cluster, and some a JVM."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.runner", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--workers", type=int, default=(os.cpu_count() or 1) + 1, help="processes at most; 0: this one, for a debugger"
    )
    parser.add_argument("--history", type=Path, default=history.FILE, help="file of the tests that passed only alone")
    options, passed_on = parser.parse_known_args(arguments)
    try:
        return run(passed_on, min(options.workers, WORKER_LIMIT), options.history)
    except KeyboardInterrupt:
        return INTERRUPTED


def run(arguments: Sequence[str], workers: int, history_file: Path) -> int:
    """Run what these arguments of pytest select in so many workers, judge the run, and return the exit status."""
    status, first = run_pytest(arguments, workers)
    if status == NO_TESTS:
        return NO_TESTS
    alone: list[Outcome] | None = None
    if again := second_run(failures(first)):
        print(f"\n==> once more, alone: {len(again)} of the tests that failed", flush=True)
        _, alone = run_pytest(["-m", "", *again], min(workers, 1))
    verdict = judge(first, alone, history.read_runs(history_file), ended_well=status in (0, 1))
    if verdict.only_alone or not arguments:
        history.add_run(verdict.only_alone, history_file)
    for line in verdict.lines():
        print(line, flush=True)
    return 1 if verdict.red else 0


def run_pytest(arguments: Sequence[str], workers: int) -> tuple[int, list[Outcome]]:
    """Run pytest in a process of its own; return its exit status and the outcomes.

    Raises:
        KeyboardInterrupt: Ctrl-C, once pytest has ended.
    """
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "outcomes.jsonl"
        distribution = ["-n", str(workers), *DISTRIBUTION] if workers else ["-n", "0"]
        command = [sys.executable, "-m", "pytest", *distribution, f"{OPTION}={file}", *arguments]
        with subprocess.Popen(command) as pytest_process:
            try:
                status = pytest_process.wait()
            except KeyboardInterrupt:  # the terminal has sent it to pytest, too
                pytest_process.wait()
                raise
        return status, read_outcomes(file)


if __name__ == "__main__":
    sys.exit(main())
