"""Make a failing run smaller: shorter, fewer kinds of faults, members, clients and operations.

Each step changes one thing and runs the seed again. A step is kept only if the same rule is broken: a smaller run that
breaks another rule is another failure. Kinds of faults are dropped the way ddmin does it, in halves first and one by
one in the end, since kinds have chances of their own and leaving one out does not move the others. What never fired is
dropped in one step. The passes are repeated until none of them helps, or until the budget is spent.

Source: Zeller & Hildebrandt 2002, "Simplifying and isolating failure-inducing input" (ddmin).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from .faults.nemesis import KIND_NAMES
from .run import Options, RunOutcome

ATTEMPT_LIMIT: Final = 80
"""The most runs that one failure is worth."""

_SMALLEST_LENGTH: Final = 0.5
_LENGTH_STEPS: Final = (0.25, 0.5, 0.75, 0.9)
"""What part of the length is tried, from the boldest."""

_OPERATION_COUNTS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)


@dataclass(slots=True, frozen=True)
class Attempt:
    """One smaller run that was tried."""

    change: str
    options: Options
    is_kept: bool
    """Whether the same rule was broken."""


@dataclass(slots=True)
class Shrunk:
    """The smallest run found that still breaks the rule, and the way there."""

    outcome: RunOutcome
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def kept_count(self) -> int:
        """How many steps helped."""
        return sum(attempt.is_kept for attempt in self.attempts)


def shrink(
    failed: RunOutcome,
    run: Callable[[Options], RunOutcome],
    *,
    attempt_limit: int = ATTEMPT_LIMIT,
    has_time: Callable[[], bool] = lambda: True,
    on_attempt: Callable[[Attempt], None] = lambda attempt: None,
) -> Shrunk:
    """Make a failed run smaller by running it again, at most `attempt_limit` times and while `has_time()` holds."""
    return _Shrinker(failed, run, attempt_limit, has_time, on_attempt).shrink()


class _BudgetSpentError(Exception):
    """No more runs."""


class _Shrinker:
    """One failure being made smaller."""

    def __init__(
        self,
        failed: RunOutcome,
        run: Callable[[Options], RunOutcome],
        attempt_limit: int,
        has_time: Callable[[], bool],
        on_attempt: Callable[[Attempt], None],
    ) -> None:
        assert failed.failure is not None
        self._rule = failed.failure.rule
        self._run, self._attempt_limit = run, attempt_limit
        self._has_time, self._on_attempt = has_time, on_attempt
        self._result = Shrunk(failed)
        self._tried: dict[Options, bool] = {failed.options: True}

    @property
    def _options(self) -> Options:
        return self._result.outcome.options

    def shrink(self) -> Shrunk:
        """Repeat the passes until none helps."""
        passes = (
            self._shorten,
            self._drop_groups,
            self._drop_kinds,
            self._drop_members,
            self._drop_clients,
            self._drop_operations,
        )
        try:
            before: Options | None = None
            while before != self._options:
                before = self._options
                for shrink_pass in passes:
                    shrink_pass()
        except _BudgetSpentError:
            pass
        return self._result

    def _try(self, options: Options, change: str) -> bool:
        """Run with other options; keep them if the same rule is broken."""
        if options in self._tried:
            return False
        if len(self._result.attempts) >= self._attempt_limit or not self._has_time():
            raise _BudgetSpentError
        outcome = self._run(options)
        is_kept = outcome.failure is not None and outcome.failure.rule == self._rule
        self._tried[options] = is_kept
        if is_kept:
            self._result.outcome = outcome
        attempt = Attempt(change, options, is_kept)
        self._result.attempts.append(attempt)
        self._on_attempt(attempt)
        return is_kept

    # --- the passes

    def _shorten(self) -> None:
        while self._options.safety_timeouts > _SMALLEST_LENGTH:
            length = self._options.safety_timeouts
            shorter = [max(_SMALLEST_LENGTH, round(length * step, 2)) for step in _LENGTH_STEPS]
            if not any(
                self._try(replace(self._options, safety_timeouts=value), f"length {length:g} to {value:g}")
                for value in dict.fromkeys(shorter)
            ):
                return

    def _drop_kinds(self) -> None:
        part_count = 1
        while kinds := self._kinds():
            if self._drop_idle_kinds(kinds):
                continue
            part_count = min(part_count, len(kinds))
            parts = _parts(kinds, part_count)
            if any(self._try(self._without(part), f"without {', '.join(part)}") for part in parts):
                part_count = max(1, part_count - 1)
            elif part_count == len(kinds):
                return
            else:
                part_count *= 2

    def _drop_idle_kinds(self, kinds: Sequence[str]) -> bool:
        idle = [name for name in kinds if not self._result.outcome.fired.get(name)]
        change = f"without {_count(len(idle), 'kind')} of faults that never fired"
        return bool(idle) and self._try(self._without(idle), change)

    def _drop_members(self) -> None:
        now = self._result.outcome.member_count
        for count in range(1, now):
            if self._try(replace(self._options, member_count=count), f"members {now} to {count}"):
                return
        if self._options.member_count is None:
            # The count that was drawn, said aloud: the command then shows it.
            self._try(replace(self._options, member_count=now), f"members {now}")

    def _drop_groups(self) -> None:
        """Fewer groups and sessions, also where their number was drawn: the command then shows it."""
        outcome = self._result.outcome
        for count in range(1, outcome.group_count):
            if self._try(replace(self._options, group_count=count), f"groups {outcome.group_count} to {count}"):
                break
        now = self._result.outcome.session_count
        for count in (0, 2, 10, 30):
            if count < now and self._try(replace(self._options, session_count=count), f"sessions {now} to {count}"):
                return

    def _drop_clients(self) -> None:
        now = self._options.client_count
        for count in range(now):
            if self._try(replace(self._options, client_count=count), f"clients {now} to {count}"):
                break
        now = self._options.requester_count
        for count in range(now):
            if self._try(replace(self._options, requester_count=count), f"requesters {now} to {count}"):
                return

    def _drop_operations(self) -> None:
        now = self._options.operation_limit
        for count in _OPERATION_COUNTS:
            if now is not None and count >= now:
                return
            if self._try(replace(self._options, operation_limit=count), f"operations of a client to {count}"):
                return

    # --- kinds of faults

    def _kinds(self) -> list[str]:
        """Those that may still strike."""
        return [name for name in KIND_NAMES if name not in self._options.without]

    def _without(self, names: Sequence[str]) -> Options:
        return replace(self._options, without=self._options.without | frozenset(names))


def _parts(names: Sequence[str], part_count: int) -> Iterator[Sequence[str]]:
    """Cut names into so many parts of nearly equal length."""
    bounds = [len(names) * number // part_count for number in range(part_count + 1)]
    return (names[begin:end] for begin, end in pairwise(bounds))


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
