"""A campaign: many seeds, and the sum of their results.

A campaign only decides which seed is run next and when to stop. Who runs them is a `Runner`: processes for the command
line, the caller itself in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from ....service_api.errors import ConfigurationError
from .faults.nemesis import KIND_NAMES
from .run import Failure, Options, RunOutcome

Simulate = Callable[[int, Options], RunOutcome]
"""Runs one seed to its end; a process is given it pickled."""

ALL_KINDS: Final = "all"

DETERMINISM_RULE: Final = "the same seed gives the same trace"


class Runner(Protocol):
    """Runs seeds side by side."""

    @property
    def free_count(self) -> int:
        """How many seeds can be given now."""

    def submit(self, seed: int, options: Options) -> None:
        """Begin with a seed."""

    def wait(self) -> list[RunOutcome]:
        """Wait a moment; give the outcomes that have come since. A seed that was submitted always has one."""


@dataclass(slots=True)
class Totals:
    """What became of all seeds so far."""

    seed_count: int = 0
    simulated_ns: int = 0
    event_count: int = 0
    elections: int = 0
    committed_bytes: int = 0
    acknowledged_count: int = 0
    unknown_count: int = 0
    undecided_count: int = 0
    fired: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KIND_NAMES, 0))
    """Every kind of fault, also those that never struck."""
    failures: list[RunOutcome] = field(default_factory=list)
    """Those that broke a rule, in the order in which they came."""

    @property
    def simulated_s(self) -> float:
        """Virtual time that has passed, in seconds."""
        return self.simulated_ns / 1e9

    def add(self, outcome: RunOutcome) -> None:
        """Count one seed."""
        self.seed_count += 1
        self.simulated_ns += outcome.simulated_ns
        self.event_count += outcome.event_count
        self.elections += outcome.elections
        self.committed_bytes += outcome.committed_bytes
        self.acknowledged_count += outcome.acknowledged_count
        self.unknown_count += outcome.unknown_count
        self.undecided_count += outcome.undecided_count
        for name, count in outcome.fired.items():
            self.fired[name] = self.fired.get(name, 0) + count
        if outcome.failure is not None:
            self.failures.append(outcome)


def run_campaign(
    seeds: Iterable[int],
    options: Options,
    runner: Runner,
    *,
    until_failure: bool = False,
    on_outcome: Callable[[RunOutcome], None] = lambda outcome: None,
    on_tick: Callable[[], None] = lambda: None,
) -> None:
    """Run seeds until there are no more, or until one fails; those under way are waited for.

    `seeds` may be endless. Outcomes come in the order in which the seeds end.
    """
    remaining = iter(seeds)
    running_count = 0
    is_over = False
    while True:
        while not is_over and runner.free_count > 0:
            seed = next(remaining, None)
            if seed is None:
                is_over = True
                break
            runner.submit(seed, options)
            running_count += 1
        if not running_count:
            return
        for outcome in runner.wait():
            running_count -= 1
            on_outcome(outcome)
            is_over = is_over or (until_failure and outcome.failure is not None)
        on_tick()


def check_determinism(seed: int, options: Options, simulate: Simulate) -> RunOutcome:
    """Run a seed twice; it fails if the second trace is another one."""
    first = simulate(seed, options)
    second = simulate(seed, options)
    if first.failure is None and first.trace_hash != second.trace_hash:
        message = f"{DETERMINISM_RULE}: seed={seed} first={first.trace_hash} second={second.trace_hash}"
        first.failure = Failure(DETERMINISM_RULE, message, 0.0)
    return first


def replay_arguments(seed: int, options: Options, *, extra: Iterable[str] = ()) -> list[str]:
    """Return the words of the command that runs a seed with these options again."""
    flags = replace(options, without=frozenset()).arguments()
    return ["trimaran", "sim", "--seeds", f"{seed}:{seed + 1}", *flags, *_kind_flags(options.without), *extra]


def _kind_flags(without: frozenset[str]) -> list[str]:
    """Name the kinds that are left out or those that are not, whichever are fewer."""
    kept = [name for name in KIND_NAMES if name not in without]
    if not without:
        return []
    if not kept:
        return ["--without", ALL_KINDS]
    if len(kept) < len(without):
        return ["--only", ",".join(kept)]
    return ["--without", ",".join(sorted(without))]


def parse_kinds(text: str, flag: str) -> frozenset[str]:
    """Read names of kinds of faults, with commas between; `all` is every one.

    Raises:
        ConfigurationError: the user's: there is no such kind.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == [ALL_KINDS]:
        return frozenset(KIND_NAMES)
    unknown = [name for name in names if name not in KIND_NAMES]
    if unknown:
        raise ConfigurationError(f"no such kind of fault: {','.join(unknown)} expected {','.join(KIND_NAMES)} ({flag})")
    return frozenset(names)


def kinds_left_out(without: str, only: str) -> frozenset[str]:
    """Return the kinds of faults that are left out by either flag.

    Raises:
        ConfigurationError: the user's: both flags, or a kind that there is not.
    """
    if without and only:
        raise ConfigurationError("use --without or --only, not both")
    if only:
        return frozenset(KIND_NAMES) - parse_kinds(only, "--only")
    return parse_kinds(without, "--without")
