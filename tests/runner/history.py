"""Tests that passed only alone, run by run: a file in the checkout that nobody commits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.places import ROOT

FILE: Final = ROOT / ".tests" / "only-alone.jsonl"
KEPT_RUNS: Final = 200
COUNTED_RUNS: Final = 5
"""Runs, the present one included, in which a test may pass only alone once."""


def read_runs(file: Path = FILE) -> list[dict[str, str]]:
    """Return each run's tests with the first line of their reasons, the oldest run first."""
    if not file.exists():
        return []
    return [json.loads(line)["only_alone"] for line in file.read_text(encoding="utf-8").splitlines()]


def add_run(only_alone: Mapping[str, str], file: Path = FILE) -> None:
    """Write down the run that has ended: its tests that passed only alone, with the first line of the reason."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    entry = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "only_alone": dict(only_alone)}
    kept = [*lines, json.dumps(entry)][-KEPT_RUNS:]
    file.write_text("".join(line + "\n" for line in kept), encoding="utf-8")


def seen_before(only_alone: Mapping[str, str], runs: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the tests of the present run that passed only alone in one of the last runs before, too."""
    recent = runs[-(COUNTED_RUNS - 1) :]
    return sorted(nodeid for nodeid in only_alone if any(nodeid in run for run in recent))
