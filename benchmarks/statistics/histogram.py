"""Counts latencies in buckets of 0.1 % width, so that histograms of many processes add up.

The buckets are those of an HdrHistogram with three significant digits: exact below 2,048 ns, then 1,024
buckets for each power of two. The `hdrhistogram` package records a value in 0.6 us, more than a client spends
on a message; here the hot path appends to an array (0.04 us) and everything is counted at the end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import repeat
from operator import rshift
from typing import Final, Self

_SUB_BUCKET_BITS: Final = 11
_HALF: Final = 1 << (_SUB_BUCKET_BITS - 1)


class Histogram:
    """Latencies in nanoseconds: counts by bucket, and the exact largest one."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.max_ns = 0

    def __repr__(self) -> str:
        return f"<Histogram count={self.count} max_ns={self.max_ns}>"

    @property
    def count(self) -> int:
        """How many latencies were recorded."""
        return self._counts.total()

    def record_all(self, latencies_ns: Iterable[int], *, step_bits: int = 0) -> None:
        """Add latencies; negative ones, which a clock must not give, count as 0.

        With `step_bits` they are rounded to steps of so many bits first, to the middle: 1.0 -> 0.2 us a latency of
        millions that all differ, with 8.
        """
        if step_bits:
            half_ns = 1 << (step_bits - 1)
            steps = Counter(map(rshift, latencies_ns, repeat(step_bits)))
            found = {(step << step_bits) + half_ns: count for step, count in steps.items()}
        else:
            found = Counter(latencies_ns)
        for value_ns, count in found.items():
            value_ns = max(value_ns, 0)
            self._counts[_bucket_of(value_ns)] += count
            self.max_ns = max(self.max_ns, value_ns)

    def add(self, other: Histogram) -> None:
        """Add what another histogram counted."""
        self._counts.update(other._counts)
        self.max_ns = max(self.max_ns, other.max_ns)

    def percentile_ns(self, percentile: float) -> int:
        """The latency that `percentile` of all do not exceed: the upper end of its bucket; 0 when empty."""
        wanted = math.ceil(self.count * min(percentile, 100.0) / 100)
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return min(_upper_end_of(bucket), self.max_ns)
        return 0

    def to_json(self) -> dict[str, object]:
        """Return a form that `from_json` reads."""
        return {"max_ns": self.max_ns, "counts": {str(bucket): n for bucket, n in self._counts.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Self:
        """Read what `to_json` gave."""
        histogram = cls()
        max_ns, counts = data["max_ns"], data["counts"]
        assert isinstance(max_ns, int)
        assert isinstance(counts, dict)
        histogram.max_ns = max_ns
        histogram._counts.update({int(bucket): int(n) for bucket, n in counts.items()})
        return histogram


def _bucket_of(value_ns: int) -> int:
    shift = value_ns.bit_length() - _SUB_BUCKET_BITS
    return value_ns if shift <= 0 else shift * _HALF + (value_ns >> shift)


def _upper_end_of(bucket: int) -> int:
    shift = max(bucket // _HALF - 1, 0)
    return ((bucket - shift * _HALF + 1) << shift) - 1
