"""The file of outcomes: one JSON line for each test that ended and was reported, written as the run goes on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pytest

OPTION: Final = "--outcomes"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one phase of a test ended, where that says something about the test."""

    nodeid: str
    outcome: str
    """`passed`, `failed` or `skipped`."""

    reason: str
    """First line of the reason; empty for a test that passed."""

    seconds: float


class OutcomeFile:
    """Plugin that writes outcomes, in the process that reports them: xdist's controller, or the only one."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write how a test ended: its call, and a fixture that failed or skipped it."""
        if report.when == "call" or not report.passed:
            self._write(report.nodeid, report.outcome, first_line(report), report.duration)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write what could not be collected."""
        if report.failed:
            self._write(report.nodeid, "failed", first_line(report), 0.0)

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, nodeid: str, outcome: str, reason: str, seconds: float) -> None:
        self._file.write(json.dumps(asdict(Outcome(nodeid, outcome, reason, seconds))) + "\n")


def first_line(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the first line of why a test failed or was skipped."""
    if report.passed:
        return ""
    text = report.longrepr
    if isinstance(text, tuple):
        text = text[2].removeprefix("Skipped: ")
    crash = getattr(text, "reprcrash", None)
    lines = str(crash.message if crash is not None else text).strip().splitlines()
    return lines[0][:200] if lines else ""


def read_outcomes(path: Path) -> list[Outcome]:
    """Return what a run has written; a line that was cut short is left out."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [Outcome(**json.loads(line)) for line in lines if line.endswith("\n")]
