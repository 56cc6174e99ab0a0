"""The hunt for tests that fail by chance: what it runs next, and what it keeps."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hunt import (
    FEW_PASSES,
    MANY_PASSES,
    Record,
    choose_batch,
    count_outcomes,
    mark_new,
    read_state,
    table,
    write_state,
)
from tests.places import ROOT
from tests.runner.outcomes import Outcome
from tests.waiting import patient

STEADY, FLAKY = "tests/a/test_a.py::test_steady", "tests/b/test_b.py::test_flaky[1-x]"


def state_of(*nodeids: str) -> dict[str, Record]:
    return {nodeid: Record() for nodeid in nodeids}


def passed(nodeid: str) -> Outcome:
    return Outcome(nodeid, "passed", "", 0.5)


def failed(nodeid: str) -> Outcome:
    return Outcome(nodeid, "failed", "AssertionError: late | early", 0.5)


def test_a_test_is_done_after_a_few_passes_in_a_row() -> None:
    state = state_of(STEADY)

    for _ in range(FEW_PASSES):
        assert choose_batch(state, [STEADY], random.Random(1)) == [STEADY]
        count_outcomes(state, [STEADY], [passed(STEADY)])

    assert choose_batch(state, [STEADY], random.Random(1)) == []


def test_a_test_that_failed_or_is_new_needs_many() -> None:
    state = state_of(STEADY, FLAKY)
    mark_new(state, {("tests/a/test_a.py", "test_steady")})
    count_outcomes(state, [FLAKY], [passed(FLAKY)])
    count_outcomes(state, [FLAKY], [failed(FLAKY)])

    assert {nodeid: record.runs_left for nodeid, record in state.items()} == dict.fromkeys((STEADY, FLAKY), MANY_PASSES)


def test_a_batch_is_of_one_file() -> None:
    state = state_of(STEADY, FLAKY)

    batches = {tuple(choose_batch(state, [*state], random.Random(seed))) for seed in range(20)}

    assert batches == {(STEADY,), (FLAKY,)}


def test_a_test_that_cannot_run_here_is_done() -> None:
    state = state_of(STEADY)

    count_outcomes(state, [STEADY], [Outcome(STEADY, "skipped", "no redis-server", 0.0)])

    assert choose_batch(state, [STEADY], random.Random(1)) == []


def test_a_file_that_cannot_be_collected_ends_the_hunt() -> None:
    state = state_of(STEADY)

    with pytest.raises(SystemExit, match=r"tests/a/test_a\.py"):
        count_outcomes(state, [STEADY], [Outcome("tests/a/test_a.py", "failed", "ModuleNotFoundError", 0.0)])


def test_the_table_begins_with_who_fails_most(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "hunt.json"
    state = state_of(STEADY, FLAKY, "tests/a/test_a.py::test_not_run_yet")
    count_outcomes(state, [STEADY], [passed(STEADY)])
    count_outcomes(state, [FLAKY], [failed(FLAKY)])
    write_state(file, state)

    rows = table(read_state(file))

    assert rows[2:-1] == [f"| 100.0% | 1 | 0 | 0 | {FLAKY} | AssertionError: late \\| early |"]
    assert rows[-1] == "2 runs of 3 tests; 1 failed at least once; 3 not done"


@pytest.mark.slow
def test_a_hunt_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    file, test = tmp_path / "hunt.json", "tests/test_waiting.py::test_a_deadline_lasts_longer_on_a_slow_machine[1.0-11]"
    write_state(file, {test: Record(passes=1, passes_in_a_row=1)})
    command = [sys.executable, "-m", "tests.hunt", "--busy", "1", "--state", str(file), "--minutes", "0.001", test]

    subprocess.run(command, cwd=ROOT, check=True, timeout=patient(120), capture_output=True)

    assert {nodeid: record.passes for nodeid, record in read_state(file).items()} == {test: 2}
