"""The same seed gives the same run, to the event: twice in a process, and in processes that hash otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.places import ROOT
from tests.waiting import patient
from trimaran.cluster.testing.simulation.run import Options, run_seed

OPTIONS = Options(member_count=3, safety_timeouts=2)

PROGRAM = """
import gc, os, sys
from trimaran.cluster.testing.simulation.run import Options, run_seed
gc.set_threshold(int(sys.argv[1]))
os.getpid = lambda: int(sys.argv[2])
print(run_seed(int(sys.argv[3]), Options(member_count=3, safety_timeouts=2)).trace_hash)
"""


def trace_hash_elsewhere(seed: int, *, hash_seed: str, gc_threshold: int, pid: int) -> str:
    """The trace hash of a fresh interpreter that hashes text otherwise, collects garbage at other moments, and says
    that it is another process."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(gc_threshold), str(pid), str(seed)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=patient(150),
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_the_same_seed_gives_the_same_run_twice() -> None:
    first, second = run_seed(3, OPTIONS), run_seed(3, OPTIONS)

    assert first.event_count > 1_000
    assert second == first


@pytest.mark.parametrize(
    ("hash_seed", "gc_threshold", "pid"), [("1", 700, 7), pytest.param("2", 200, 4_194_304, marks=pytest.mark.campaign)]
)
def test_another_process_gives_the_same_trace(hash_seed: str, gc_threshold: int, pid: int) -> None:
    here = run_seed(0, OPTIONS)

    there = trace_hash_elsewhere(0, hash_seed=hash_seed, gc_threshold=gc_threshold, pid=pid)

    assert there == here.trace_hash


def test_another_seed_gives_another_trace() -> None:
    hashes = {run_seed(seed, Options(safety_timeouts=1)).trace_hash for seed in range(2)}

    assert len(hashes) == 2


def test_writing_the_lines_of_a_trace_does_not_change_it() -> None:
    lines: list[str] = []

    silent = run_seed(1, Options(safety_timeouts=1))
    written = run_seed(1, Options(safety_timeouts=1), write_line=lines.append)

    assert lines
    assert written.trace_hash == silent.trace_hash
