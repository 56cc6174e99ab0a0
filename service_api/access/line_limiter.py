"""Limits log lines about things whose number is not in our hands: the first of a kind at once, then their number.

Strangers, members in disagreement, and services that raise can each make a process write a line at every message. A
line costs more than the message did, and a log that is full of one thing hides the others. So what logs such a thing
asks here first:

    limiter.count(kind, now_ns)         a number: log it, with the number since the last line; None: it was counted
    limiter.take_untold(now_ns)         for code that logs the rest by a timer: kinds whose last line is an interval ago

Bounds: `kind_limit` kinds are told apart, then those that have been quiet for an interval are forgotten, and where
there is none, what is new counts as one kind, None. Of each kind there is one line in an interval.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

LINE_INTERVAL_NS: Final = 10_000_000_000
KIND_LIMIT: Final = 256


@dataclass(slots=True)
class _Kind:
    """What is known of one kind."""

    told_ns: int
    untold_count: int = 0
    """Since the last line."""


class LineLimiter(Generic[K]):
    """Says when a line about a kind of thing is due, and with which number. Times are of any one clock."""

    def __init__(self, *, interval_ns: int = LINE_INTERVAL_NS, kind_limit: int = KIND_LIMIT) -> None:
        self._interval_ns = interval_ns
        self._kind_limit = kind_limit
        self._kinds: dict[K | None, _Kind] = {}

    def __repr__(self) -> str:
        return f"<LineLimiter kinds={len(self._kinds)}>"

    def __len__(self) -> int:
        return len(self._kinds)

    def __contains__(self, kind: K | None) -> bool:
        return kind in self._kinds

    def fold(self, kind: K, now_ns: int) -> K | None:
        """Return what a kind counts as: itself, or None where there are too many."""
        if kind in self._kinds or len(self._kinds) < self._kind_limit:
            return kind
        self.forget_quiet(now_ns)
        return kind if len(self._kinds) < self._kind_limit else None

    def count(self, kind: K, now_ns: int) -> int | None:
        """Count one; return the number since the last line where a line is due now: 1 for the first."""
        key = self.fold(kind, now_ns)
        known = self._kinds.get(key)
        if known is None:
            self._kinds[key] = _Kind(now_ns)
            return 1
        known.untold_count += 1
        if not self._is_due(known, now_ns):
            return None
        return self._tell(known, now_ns)

    def take_untold(self, now_ns: int) -> list[tuple[K | None, int]]:
        """Return the kinds that a line is due for, and how many there were of each since the last one."""
        due = [(key, kind) for key, kind in self._kinds.items() if kind.untold_count and self._is_due(kind, now_ns)]
        return [(key, self._tell(kind, now_ns)) for key, kind in due]

    def forget_quiet(self, now_ns: int) -> None:
        """Forget the kinds that nothing was counted of since their last line, an interval ago: the next is a first."""
        self._kinds = {
            key: kind for key, kind in self._kinds.items() if kind.untold_count or not self._is_due(kind, now_ns)
        }

    def _is_due(self, kind: _Kind, now_ns: int) -> bool:
        return abs(now_ns - kind.told_ns) >= self._interval_ns  # a wall clock may be set back

    def _tell(self, kind: _Kind, now_ns: int) -> int:
        count, kind.untold_count, kind.told_ns = kind.untold_count, 0, now_ns
        return count
