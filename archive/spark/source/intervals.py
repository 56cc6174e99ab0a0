"""Sets of whole numbers as intervals: the values of a column that a filter leaves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1


@dataclass(slots=True, frozen=True, order=True)
class Interval:
    """The values from `low` to `high`, both included; empty where `low` is the greater one."""

    low: int = _INT64_MIN
    high: int = _INT64_MAX

    def narrow(self, other: Self) -> Interval:
        """Return what lies in both."""
        return Interval(max(self.low, other.low), min(self.high, other.high))


@dataclass(slots=True, frozen=True)
class Intervals:
    """A set of 64-bit numbers: intervals that neither meet nor touch, ascending; made by `of`."""

    parts: tuple[Interval, ...]

    @classmethod
    def of(cls, *intervals: Interval) -> Self:
        """Return the values that lie in one of these at least."""
        joined: list[Interval] = []
        for interval in sorted(interval for interval in intervals if interval.low <= interval.high):
            if joined and interval.low <= joined[-1].high + 1:
                joined[-1] = Interval(joined[-1].low, max(joined[-1].high, interval.high))
            else:
                joined.append(interval)
        return cls(tuple(joined))

    def __bool__(self) -> bool:
        return bool(self.parts)

    def narrow(self, other: Self) -> Self:
        """Return what lies in both."""
        found: list[Interval] = []
        own, others = list(reversed(self.parts)), list(reversed(other.parts))
        while own and others:
            found.append(own[-1].narrow(others[-1]))
            (own if own[-1].high < others[-1].high else others).pop()
        return self.of(*found)

    def invert(self) -> Self:
        """Return what does not lie in it."""
        lows = [_INT64_MIN, *(part.high + 1 for part in self.parts)]
        highs = [*(part.low - 1 for part in self.parts), _INT64_MAX]
        return self.of(*(Interval(low, high) for low, high in zip(lows, highs, strict=True)))

    def meets(self, low: int, high: int) -> bool:
        """Whether a value from `low` to `high` lies in it."""
        return any(part.low <= high and low <= part.high for part in self.parts)

    def holds_all(self, low: int, high: int) -> bool:
        """Whether all values from `low` to `high` lie in it."""
        return any(part.low <= low and high <= part.high for part in self.parts)

    def merge(self, gap: int, limit: int) -> Self:
        """Return a larger set without gaps of up to `gap` values, and with at most `limit` intervals."""
        parts: list[Interval] = []
        for part in self.parts:
            if parts and part.low - parts[-1].high <= gap:
                parts[-1] = Interval(parts[-1].low, part.high)
            else:
                parts.append(part)
        return type(self)(tuple(parts)) if len(parts) <= limit else self.merge(2 * gap, limit)

    @property
    def low(self) -> int:
        """The lowest value; of an empty set the greatest number."""
        return self.parts[0].low if self.parts else _INT64_MAX

    @property
    def high(self) -> int:
        """The greatest value; of an empty set the lowest number."""
        return self.parts[-1].high if self.parts else _INT64_MIN


def join(sets: Iterable[Intervals]) -> Intervals:
    """Return the values that lie in one of the sets at least."""
    return Intervals.of(*(part for one in sets for part in one.parts))


ANY_VALUE: Final = Intervals((Interval(),))
