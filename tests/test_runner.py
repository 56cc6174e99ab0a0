"""The suite's own runner: what one bad test costs, and what makes a run red."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.runner import history
from tests.runner.__main__ import DISTRIBUTION
from tests.runner.outcomes import Outcome
from tests.runner.verdict import ONLY_ALONE_LIMIT, SECOND_RUN_LIMIT, has_clock, judge, second_run
from tests.waiting import patient

CONFTEST = """
from tests.runner.plugin import pytest_addoption, pytest_configure, pytest_xdist_make_scheduler
"""
SETTINGS = """
[pytest]
testpaths = checks
addopts =
    --import-mode=importlib -p no:cacheprovider -p no:anyio -p no:platformdirs
    -p no:hypothesispytest -p no:trimaran.cluster.testing.plugin
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""
ONCE = """
import os, signal
from pathlib import Path

def first_time(name):
    mark = Path(__file__).parent / f"{name}.mark"
    is_first = not mark.exists()
    mark.touch()
    return is_first
"""


class Suite:
    """A small suite in a directory of its own, run by the runner as ours is."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.write("pytest.ini", SETTINGS)
        self.write("checks/conftest.py", CONFTEST)

    def write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, workers: int = 2) -> tuple[int, str]:
        """Run the suite; return the exit status and what was printed."""
        history_file = str(self.directory / "history.jsonl")
        return self._run("tests.runner", "--workers", str(workers), "--history", history_file)

    def run_once(self) -> tuple[int, str]:
        """Run the suite in one worker, and what fails not once more."""
        return self._run("pytest", "-n", "1", *DISTRIBUTION)

    def _run(self, *module_and_arguments: str) -> tuple[int, str]:
        ended = subprocess.run(
            [sys.executable, "-m", *module_and_arguments],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patient(120),
        )
        return ended.returncode, ended.stdout


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


@pytest.mark.slow
def test_a_killed_worker_costs_the_test_that_it_ran_and_no_other(suite: Suite) -> None:
    """Two workers die while their replacements collect: xdist's own scheduler ends the run by a KeyError there."""
    deadly = "\n".join(f"def test_{number}(): pass" for number in range(3))
    for name in ("a", "b"):
        suite.write(
            f"checks/test_{name}.py",
            f"{ONCE}\n{deadly}\ndef test_dies(): os.kill(os.getpid(), signal.SIGKILL)\ndef test_last(): pass\n",
        )

    status, printed = suite.run()

    assert status == 1
    assert "INTERNALERROR" not in printed
    assert "2 failed, 8 passed" in printed
    assert printed.splitlines()[-2:] == [f"red: checks/test_{name}.py::test_dies failed alone, too" for name in "ab"]


@pytest.mark.slow
def test_a_test_over_its_limit_shows_its_stacks_and_the_rest_goes_on(suite: Suite) -> None:
    """Each way to hang: in a coroutine, on uvloop, in a task that swallows what ends it, and out of Python's reach."""
    suite.write("pytest.ini", SETTINGS + "test_limit_s = 0.5\n")
    suite.write(
        "checks/test_hangs.py",
        """
import asyncio, threading, uvloop

async def hangs_in_a_coroutine():
    await asyncio.sleep(1000)

async def test_in_a_coroutine(): await hangs_in_a_coroutine()
def test_on_uvloop(): uvloop.run(hangs_in_a_coroutine())
async def test_busy():
    while True:
        await asyncio.sleep(0)
def test_out_of_reach():
    while True:
        try:
            threading.Event().wait()
        except BaseException:
            pass
def test_last(): pass
""",
    )

    status, printed = suite.run_once()

    assert status == 1
    assert "4 failed, 1 passed" in printed
    assert "in hangs_in_a_coroutine" in printed
    assert "test_out_of_reach: cannot be interrupted" in printed


@pytest.mark.slow
def test_what_passes_alone_is_said_last_and_is_red_the_second_time(suite: Suite) -> None:
    suite.write("checks/test_flaky.py", f'{ONCE}\ndef test_flaky(): assert not first_time("a"), "by chance"\n')

    first_status, first = suite.run(workers=1)
    (suite.directory / "checks" / "a.mark").unlink()
    second_status, second = suite.run(workers=1)

    assert first_status == 0
    assert first.splitlines()[-2] == "passed only alone: 1"
    assert first.splitlines()[-1].startswith("  checks/test_flaky.py::test_flaky: AssertionError: by chance")
    assert second_status == 1
    assert second.splitlines()[-1] == "red: checks/test_flaky.py::test_flaky passed only alone twice in 5 runs"


@pytest.mark.slow
def test_what_cannot_be_collected_is_red(suite: Suite) -> None:
    suite.write("checks/test_broken.py", "import no_such_module\n")
    suite.write("checks/test_whole.py", "def test_whole(): pass\n")

    status, printed = suite.run(workers=1)

    assert status == 1
    assert "red: checks/test_broken.py failed" in printed


def failed(*nodeids: str) -> list[Outcome]:
    return [Outcome(nodeid, "failed", "AssertionError: reason", 0.1) for nodeid in nodeids]


def passed(*nodeids: str) -> list[Outcome]:
    return [Outcome(nodeid, "passed", "", 0.1) for nodeid in nodeids]


TESTS = [f"tests/system/test_it.py::test_{number}" for number in range(SECOND_RUN_LIMIT + 1)]


def test_a_run_without_failures_is_green() -> None:
    verdict = judge(passed(*TESTS), None, [], ended_well=True)

    assert (verdict.red, verdict.only_alone) == ([], {})


def test_a_few_that_pass_alone_are_green_and_more_are_red() -> None:
    few, many = TESTS[:ONLY_ALONE_LIMIT], TESTS[: ONLY_ALONE_LIMIT + 1]

    assert judge(failed(*few), passed(*few), [], ended_well=True).red == []
    assert len(judge(failed(*many), passed(*many), [], ended_well=True).red) == 1


def test_one_that_fails_alone_is_red_beside_others_that_pass() -> None:
    verdict = judge(failed(*TESTS[:2]), [*passed(TESTS[0]), *failed(TESTS[1])], [], ended_well=True)

    assert list(verdict.only_alone) == [TESTS[0]]
    assert len(verdict.red) == 1
    assert TESTS[1] in verdict.red[0]


def test_a_test_that_passes_and_then_fails_in_its_fixtures_has_failed_alone() -> None:
    verdict = judge(failed(TESTS[0]), [*passed(TESTS[0]), *failed(TESTS[0])], [], ended_well=True)

    assert verdict.only_alone == {}
    assert len(verdict.red) == 1


def test_a_test_that_ended_alone_without_an_outcome_is_red() -> None:
    assert len(judge(failed(TESTS[0]), [], [], ended_well=True).red) == 1


@pytest.mark.parametrize("folder", ["scenarios", "simulation", "unit/cluster/core", "unit/cluster/testing/simulation"])
def test_what_has_no_clock_gets_no_second_run(folder: str) -> None:
    nodeid = f"tests/{folder}/test_it.py::test_it"

    assert not has_clock(nodeid)
    assert second_run({nodeid: "", TESTS[0]: ""}) == [TESTS[0]]
    assert len(judge(failed(nodeid), passed(nodeid), [], ended_well=True).red) == 1


def test_too_many_failures_get_no_second_run() -> None:
    assert second_run(dict.fromkeys(TESTS, "")) == []
    assert len(second_run(dict.fromkeys(TESTS[1:], ""))) == SECOND_RUN_LIMIT


def test_a_pytest_that_did_not_end_well_is_red_whatever_its_tests_say() -> None:
    assert len(judge(passed(TESTS[0]), None, [], ended_well=False).red) == 1


def test_only_the_last_runs_count(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "history.jsonl"
    history.add_run({TESTS[0]: "reason"}, file)
    for _ in range(history.COUNTED_RUNS - 2):
        history.add_run({}, file)

    assert history.seen_before({TESTS[0]: ""}, history.read_runs(file)) == [TESTS[0]]
    assert history.seen_before({TESTS[1]: ""}, history.read_runs(file)) == []

    history.add_run({}, file)
    assert history.seen_before({TESTS[0]: ""}, history.read_runs(file)) == []


def test_skips_are_counted_by_reason() -> None:
    skips = [Outcome(nodeid, "skipped", "no valgrind: make peers", 0.0) for nodeid in TESTS[:2]]

    assert judge(skips, None, [], ended_well=True).lines() == ["skipped: 2 x no valgrind: make peers"]
