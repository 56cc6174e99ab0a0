"""Looks for the first seed whose run breaks a rule, plant by plant, in worker processes."""

from __future__ import annotations

import gc
import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from types import FrameType
from typing import Final

from trimaran.cluster.testing.simulation.run import Failure, Options, RunOutcome, run_seed

from .plant import CONTROL_OPTIONS, Plant, planted
from .scenarios import SCENARIOS, run_scenario

RUN_LIMIT_S: Final = 120.0
"""The processor time that a run may take before it counts as endless, in seconds."""

CONTROL: Final = "(control)"
"""The name of the run without a plant."""

ENDLESS_RULE: Final = "a run comes to its end"

_WRONG_REASONS: Final = re.compile(
    r"\b(AttributeError|NameError|TypeError|UnboundLocalError|ImportError|IndexError|KeyError|struct\.error)\b"
)
"""What a plant dies of that does not fit the code it is in: it would be found without doing anything wrong."""


class Endless(KeyboardInterrupt):
    """A run took too long. No `except Exception` of the product, and no event loop, may catch it."""


@dataclass(slots=True)
class Find:
    """What became of a plant, or of the control run."""

    name: str
    seed_count: int = 0
    """Seeds that were run, the one that found it included."""
    seed: int | None = None
    """The seed whose run broke a rule; None: not found, or found by a scenario."""
    rule: str | None = None
    """The rule that the referee saw broken; None: not found."""
    message: str = ""
    at_s: float = 0.0
    """Virtual time at which it was found, from the beginning of its run."""
    simulated_s: float = 0.0
    """Virtual time of all runs together."""
    ran_count: int = 0
    """How often the planted code did wrong, in all runs."""
    is_wrong_reason: bool = False
    """Whether the run failed for the plant's being a misfit, or before it did anything."""

    @property
    def is_found(self) -> bool:
        """Whether a rule was broken, and for what the plant did."""
        return self.rule is not None and not self.is_wrong_reason


def hunt(plant: Plant | None, seeds: Sequence[int], options: Options | None = None) -> Find:
    """Run seed after seed until a rule is broken. Without a plant, this is the control."""
    find = Find(CONTROL if plant is None else plant.name)
    if options is None:
        options = CONTROL_OPTIONS if plant is None else plant.options
    if plant is not None and plant.scenario is not None:
        return _hunt_in_scenario(plant, find)
    for seed in seeds:
        with planted(plant) as planting, _cut_short():
            outcome = run_bounded(seed, options)
        find.seed_count += 1
        find.ran_count += planting.count
        find.simulated_s += outcome.simulated_ns / 1e9
        if outcome.failure is not None:
            _note(find, seed, outcome, is_due=plant is None or planting.count > 0)
            break
    return find


def _note(find: Find, seed: int, outcome: RunOutcome, *, is_due: bool) -> None:
    failure = outcome.failure
    assert failure is not None
    find.seed, find.rule, find.message, find.at_s = seed, failure.rule, failure.message, failure.at_s
    find.is_wrong_reason = not is_due or _WRONG_REASONS.search(failure.message) is not None


def _hunt_in_scenario(plant: Plant, find: Find) -> Find:
    assert plant.scenario is not None
    with planted(plant) as planting, _limited(RUN_LIMIT_S), _cut_short():
        broken, simulated_s = run_scenario(SCENARIOS[plant.scenario])
    find.ran_count, find.simulated_s, find.at_s = planting.count, simulated_s, simulated_s
    if broken is not None:
        find.rule, find.message = broken.rule, str(broken)
        find.is_wrong_reason = not planting.count or _WRONG_REASONS.search(find.message) is not None
    return find


def run_bounded(seed: int, options: Options) -> RunOutcome:
    """Run a seed; one that goes on for ever fails."""
    try:
        with _limited(RUN_LIMIT_S):
            return run_seed(seed, options)
    except Endless:
        return RunOutcome(seed, options, failure=Failure(ENDLESS_RULE, f"{ENDLESS_RULE}: limit_s={RUN_LIMIT_S}", 0.0))


@contextmanager
def _cut_short() -> Iterator[None]:
    """Forgive a run that breaks a rule in the middle of a turn the coroutines that it had made and not begun."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        yield
        gc.collect()


@contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Endless

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, previous)


# --- side by side


def hunt_all(
    plants: Sequence[Plant],
    seed_count: int,
    *,
    control_count: int,
    jobs: int,
    on_find: Callable[[Find], None],
    on_wait: Callable[[float, int], None],
) -> None:
    """Hunt for plants, and through the seeds of the control in pieces; finds come in the order they are made."""
    begin_s = time.perf_counter()
    # A fork would carry over whatever this process has patched or begun.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        pieces = [range(first, min(first + 10, control_count)) for first in range(0, control_count, 10)]
        waiting: set[Future[Find]] = {pool.submit(hunt_by_name, plant.name, seed_count) for plant in plants}
        waiting |= {pool.submit(hunt_control, piece) for piece in pieces}
        while waiting:
            done, waiting = wait(waiting, timeout=30.0, return_when=FIRST_COMPLETED)
            for future in done:
                on_find(future.result())
            on_wait(time.perf_counter() - begin_s, len(waiting))


def hunt_by_name(name: str, seed_count: int) -> Find:
    """Hunt for one plant; what a worker process is asked for."""
    from .plants import PLANTS

    plant = next(plant for plant in PLANTS if plant.name == name)
    return hunt(plant, range(seed_count))


def hunt_control(seeds: range) -> Find:
    """Run some seeds of the control, to their end also where one fails; gives the first that did."""
    total = Find(CONTROL)
    for seed in seeds:
        find = hunt(None, [seed])
        if find.rule is not None and total.rule is None:
            total = replace(find, seed_count=total.seed_count, simulated_s=total.simulated_s)
            total.seed_count += 1
            total.simulated_s += find.simulated_s
            continue
        total.seed_count += find.seed_count
        total.simulated_s += find.simulated_s
    return total
