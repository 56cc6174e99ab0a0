"""What an open loop saw, by time: the moments in which messages took long, and the latencies within told spans.

A message belongs to the time at which it was due. Its latency counts from there, whenever it was sent, so that a load
that comes late hides nothing; how late it came is the *lag*, and is told beside.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from operator import sub
from typing import Any, Final, TypeAlias

from ..statistics.histogram import Histogram
from .echo import Phase

Spans: TypeAlias = Sequence[Sequence[int]]
"""Pairs of nanoseconds of the monotonic clock: the first is in, the last is not."""

_JOIN_NS: Final = 20_000_000
"""Slow messages that were due so close to each other are of one moment."""
STEP_BITS: Final = 8
"""Latencies are counted in steps of 256 ns: a run has millions of them, and they are milliseconds long."""
MOMENT_LIMIT: Final = 2_000
"""More moments than these are not kept: a load that is slow throughout is one moment."""


def slow_moments(phase: Phase, slow_ns: int) -> list[dict[str, int]]:
    """Find when messages took `slow_ns` or longer; the first `MOMENT_LIMIT` moments.

    Each has `begin_ns`, when the first of them was due, `end_ns`, when the last reply came, `count`, `max_ns`, the
    longest latency, and `lag_ns`, how much of that the message was sent late.
    """
    found: list[dict[str, int]] = []
    last_due_ns = 0
    for due_ns, replied_ns, lag_ns in zip(phase.sent_at_ns, phase.replied_at_ns, phase.send_lags_ns, strict=True):
        latency_ns = replied_ns - due_ns
        if latency_ns < slow_ns:
            continue
        if not found or due_ns - last_due_ns > _JOIN_NS:
            if len(found) == MOMENT_LIMIT:
                break
            found.append({"begin_ns": due_ns, "end_ns": 0, "count": 0, "max_ns": 0, "lag_ns": 0})
        moment = found[-1]
        last_due_ns = due_ns
        moment["end_ns"] = max(moment["end_ns"], replied_ns)
        moment["count"] += 1
        if latency_ns > moment["max_ns"]:
            moment["max_ns"], moment["lag_ns"] = latency_ns, lag_ns
    return found


def latencies_within(phase: Phase, groups: Mapping[str, Spans]) -> dict[str, Any]:  # JSON
    """Collect the latencies of messages that were due within spans: a histogram for each group of spans."""
    return {name: _within(phase, spans).to_json() for name, spans in groups.items()}


def latencies_since_sent(phase: Phase) -> Histogram:
    """Collect latencies without what the messages were sent late."""
    histogram = Histogram()
    histogram.record_all(map(sub, phase.latencies_ns, phase.send_lags_ns), step_bits=STEP_BITS)
    return histogram


def _within(phase: Phase, spans: Spans) -> Histogram:
    histogram = Histogram()
    for begin_ns, end_ns in spans:
        part = slice(bisect_left(phase.sent_at_ns, begin_ns), bisect_left(phase.sent_at_ns, end_ns))
        latencies_ns: Iterable[int] = map(sub, phase.replied_at_ns[part], phase.sent_at_ns[part])
        histogram.record_all(latencies_ns, step_bits=STEP_BITS)
    return histogram
