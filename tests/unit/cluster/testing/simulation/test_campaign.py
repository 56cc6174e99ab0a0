"""Which seeds a campaign runs, when it stops, and what its processes do when a seed takes them along."""

from __future__ import annotations

import faulthandler
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.facts import has_facts
from tests.waiting import patient
from trimaran.cluster.cli.sim.workers import DEATH_RULE, ENDLESS_RULE, ERROR_RULE, WorkerPool
from trimaran.cluster.runtime.ground.system_clock import SystemClock
from trimaran.cluster.testing.simulation.campaign import (
    DETERMINISM_RULE,
    Totals,
    check_determinism,
    replay_arguments,
    run_campaign,
)
from trimaran.cluster.testing.simulation.faults.nemesis import KIND_NAMES
from trimaran.cluster.testing.simulation.run import Failure, Options, RunOutcome


class RunnerHere:
    """A Runner that runs seeds in the caller, the newest first, so that they end in another order."""

    def __init__(self, simulate: Callable[[int, Options], RunOutcome], *, count: int = 2) -> None:
        self.submitted: list[int] = []
        self._simulate, self._count = simulate, count
        self._waiting: list[tuple[int, Options]] = []

    @property
    def free_count(self) -> int:
        return self._count - len(self._waiting)

    def submit(self, seed: int, options: Options) -> None:
        assert self.free_count > 0
        self.submitted.append(seed)
        self._waiting.append((seed, options))

    def wait(self) -> list[RunOutcome]:
        return [self._simulate(*self._waiting.pop())]


def fail_at(bad_seed: int) -> Callable[[int, Options], RunOutcome]:
    """What runs seeds of which one breaks a rule."""

    def simulate(seed: int, options: Options) -> RunOutcome:
        failure = Failure("a rule", "a rule: n=1", 0.5) if seed == bad_seed else None
        return RunOutcome(seed, options, failure=failure, simulated_ns=10**9, fired={"kill": 2})

    return simulate


def simulate_in_process(seed: int, options: Options) -> RunOutcome:
    """What a worker process does in these tests; the seed says how it goes."""
    match seed:
        case 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case 2:
            raise ValueError("perfect")
        case 3:
            threading.Event().wait()
        case 4:
            faulthandler._sigsegv()  # type: ignore[attr-defined]  # for tests like this one
        case 5:
            while True:
                pass
        case 6:
            threading.Event().wait(0.6)
    return RunOutcome(seed, options, trace_hash=str(os.getpid()))


def make_pool(*, count: int = 1, limit_s: float = 60.0) -> WorkerPool:
    return WorkerPool(simulate_in_process, count=count, limit_s=limit_s, monotonic_ns=SystemClock().monotonic_ns)


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    """A pool of one process, for tests that leave it with one."""
    with make_pool() as made:
        yield made


def test_every_seed_is_run_once_and_every_outcome_is_told() -> None:
    runner, told = RunnerHere(fail_at(-1)), list[int]()

    run_campaign(range(5), Options(), runner, on_outcome=lambda outcome: told.append(outcome.seed))

    assert runner.submitted == [0, 1, 2, 3, 4]
    assert sorted(told) == [0, 1, 2, 3, 4]


def test_a_failure_does_not_end_a_campaign() -> None:
    runner, totals = RunnerHere(fail_at(1)), Totals()

    run_campaign(range(4), Options(), runner, on_outcome=totals.add)

    assert totals.seed_count == 4
    assert [failed.seed for failed in totals.failures] == [1]


def test_an_endless_campaign_ends_with_its_first_failure_and_the_seeds_under_way() -> None:
    runner, totals = RunnerHere(fail_at(6), count=3), Totals()

    run_campaign(itertools.count(), Options(), runner, until_failure=True, on_outcome=totals.add)

    assert [failed.seed for failed in totals.failures] == [6]
    assert totals.seed_count == len(runner.submitted)
    assert len(runner.submitted) <= 9


def test_totals_are_sums_and_know_every_kind() -> None:
    totals = Totals()
    for seed in range(3):
        totals.add(fail_at(-1)(seed, Options()))

    assert (totals.seed_count, totals.simulated_s, totals.fired["kill"], totals.fired["wipe"]) == (3, 3.0, 6, 0)


def test_a_seed_whose_second_trace_differs_has_failed() -> None:
    hashes = iter(["a1", "b2"])

    outcome = check_determinism(9, Options(), lambda seed, options: RunOutcome(seed, options, trace_hash=next(hashes)))

    assert outcome.failure is not None
    assert outcome.failure.rule == DETERMINISM_RULE
    assert "first=a1 second=b2" in outcome.failure.message


def test_the_replay_command_names_the_seed_and_the_options() -> None:
    options = Options(member_count=3, without=frozenset({"reset", "kill"}))

    assert replay_arguments(17, options, extra=["--check-determinism"]) == [
        *("trimaran", "sim", "--seeds", "17:18", "--members", "3", "--without", "kill,reset", "--check-determinism")
    ]


@pytest.mark.parametrize(
    ("left", "flags"),
    [
        (set(KIND_NAMES), []),
        ({"wipe", "kill"}, ["--only", "kill,wipe"]),
        (set(), ["--without", "all"]),
        (set(KIND_NAMES) - {"reset"}, ["--without", "reset"]),
    ],
)
def test_the_replay_command_names_kinds_the_short_way(left: set[str], flags: list[str]) -> None:
    options = Options(without=frozenset(KIND_NAMES) - left)

    assert replay_arguments(17, options) == ["trimaran", "sim", "--seeds", "17:18", *flags]


# --- processes


def test_processes_run_seeds_and_live_on(pool: WorkerPool) -> None:
    outcomes = [pool.run(seed, Options()) for seed in (10, 11)]

    assert [outcome.seed for outcome in outcomes] == [10, 11]
    assert outcomes[0].trace_hash == outcomes[1].trace_hash != str(os.getpid())


@pytest.mark.parametrize(("seed", "signal_name"), [(1, "SIGKILL"), (4, "SIGSEGV")])
def test_a_process_that_dies_is_told_with_its_seed_and_another_takes_its_place(
    pool: WorkerPool, seed: int, signal_name: str
) -> None:
    died, after = pool.run(seed, Options(client_count=2)), pool.run(10, Options())

    assert died.failure is not None
    assert (died.seed, died.options, died.failure.rule) == (seed, Options(client_count=2), DEATH_RULE)
    assert f"signal={signal_name}" in died.failure.message
    assert after.failure is None


def test_an_error_that_leaves_the_simulator_is_a_failure_of_the_seed(pool: WorkerPool) -> None:
    outcome = pool.run(2, Options())

    assert outcome.failure is not None
    assert outcome.failure.rule == f"{ERROR_RULE}: ValueError"
    assert has_facts(outcome.failure.message, "perfect", "simulate_in_process")


@pytest.mark.parametrize("seed", [3, 5], ids=["waits", "is busy"])
def test_a_seed_without_an_end_is_a_failure_that_says_where_it_was(seed: int) -> None:
    with make_pool(limit_s=patient(0.1)) as pool:
        pool.run(10, Options())  # the process is started, and has imported
        outcome = pool.run(seed, Options())

    assert outcome.failure is not None
    assert outcome.failure.rule == ENDLESS_RULE
    assert "simulate_in_process" in outcome.failure.message


def test_the_limit_of_a_seed_is_of_processor_time() -> None:
    """Where many want the processors, a seed waits for one longer than it runs."""
    with make_pool(limit_s=patient(0.15)) as pool:
        outcome = pool.run(6, Options())

    assert outcome.failure is None


def test_no_process_outlives_its_pool() -> None:
    with make_pool(count=2) as pool:
        pool.submit(3, Options())
        pool.submit(3, Options())
        processes = [worker.process.pid for worker in pool._workers]

    for process_id in processes:
        assert process_id is not None
        with pytest.raises(ProcessLookupError):
            os.kill(process_id, 0)
