"""The verdict on a run: which failures a second run alone may excuse, and what is red."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from .history import COUNTED_RUNS, seen_before
from .outcomes import Outcome

WITHOUT_CLOCK: Final = (
    "tests/scenarios/",
    "tests/simulation/",
    "tests/unit/cluster/core/",
    "tests/unit/cluster/testing/simulation/",
)
"""Folders of tests that no slow machine can fail: core, scenarios, simulation, planted bugs."""

ONLY_ALONE_LIMIT: Final = 5
"""Tests of one run that may pass only alone."""

SECOND_RUN_LIMIT: Final = 20
"""Failures that are run a second time; more of them are red whatever a second run says."""


@dataclass
class Verdict:
    """What a run showed."""

    only_alone: dict[str, str] = field(default_factory=dict)
    """Tests that passed only alone, with the first line of the reason of their failure."""

    red: list[str] = field(default_factory=list)
    """Reasons why the run is red; empty if it is green."""

    skipped: dict[str, int] = field(default_factory=dict)
    """Reasons for skipped tests, with how many each has."""

    def lines(self) -> list[str]:
        """Return what a reader of the run's end sees, the most important last."""
        skips = [f"skipped: {count} x {reason}" for reason, count in sorted(self.skipped.items())]
        alone = [f"passed only alone: {len(self.only_alone)}"] if self.only_alone else []
        alone += [f"  {nodeid}: {reason}" for nodeid, reason in sorted(self.only_alone.items())]
        return [*skips, *alone, *(f"red: {reason}" for reason in self.red)]


def failures(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Return the tests that failed, with the first line of the reason of the first failure."""
    found: dict[str, str] = {}
    for outcome in outcomes:
        if outcome.outcome == "failed":
            found.setdefault(outcome.nodeid, outcome.reason)
    return found


def skips(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Return the reasons for skipped tests, with how many each has."""
    counts: dict[str, int] = {}
    for outcome in outcomes:
        if outcome.outcome == "skipped":
            counts[outcome.reason] = counts.get(outcome.reason, 0) + 1
    return counts


def has_clock(nodeid: str) -> bool:
    """Whether a slow machine can fail this test; what could not be collected has no clock either."""
    return "::" in nodeid and not nodeid.startswith(WITHOUT_CLOCK)


def second_run(failed: Mapping[str, str]) -> list[str]:
    """Return the failed tests to run once more, alone."""
    with_clock = [nodeid for nodeid in failed if has_clock(nodeid)]
    return with_clock if len(with_clock) <= SECOND_RUN_LIMIT else []


def judge(
    first: Sequence[Outcome],
    alone: Sequence[Outcome] | None,
    runs: Sequence[Mapping[str, str]],
    *,
    ended_well: bool,
) -> Verdict:
    """Judge a run by the outcomes of all its tests, then of those that failed, alone, and by the runs before it.

    `alone` is None if no test was run a second time; `ended_well` is False if pytest itself failed.
    """
    failed = failures(first)
    passed_alone = {outcome.nodeid for outcome in alone or () if outcome.outcome == "passed"} - failures(
        alone or ()
    ).keys()
    verdict = Verdict(skipped=skips(first))
    verdict.only_alone = {nodeid: reason for nodeid, reason in failed.items() if nodeid in passed_alone}
    for nodeid in sorted(failed):
        if not has_clock(nodeid):
            verdict.red.append(f"{nodeid} failed, and no slow machine can be the reason")
        elif alone is None:
            verdict.red.append(f"{nodeid} failed")
        elif nodeid not in passed_alone:
            verdict.red.append(f"{nodeid} failed alone, too")
    if len(verdict.only_alone) > ONLY_ALONE_LIMIT:
        verdict.red.append(f"{len(verdict.only_alone)} tests passed only alone, at most {ONLY_ALONE_LIMIT} may")
    verdict.red += [
        f"{nodeid} passed only alone twice in {COUNTED_RUNS} runs" for nodeid in seen_before(verdict.only_alone, runs)
    ]
    if not ended_well:
        verdict.red.append("pytest did not come to its end, see above")
    return verdict
