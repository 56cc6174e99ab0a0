"""What held up the messages of a slow moment, by what the kernel counted meanwhile.

Samples are taken all the time: how long all processors were busy and stolen, how long each process ran, and how long
the thread of its loop was ready to run and did not. A moment is judged by the samples around it, so by about a tenth of
a second: what is shorter than that is seen less sharply.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..machine.schedule import ProcessorTimes

LATE: Final = "the load came late"
HOST: Final = "the host took the processors"
OTHERS: Final = "other processes"
SHARED: Final = "waits for a processor"
INSIDE: Final = "none of these"

_LATE_SHARE: Final = 0.5
_STOLEN_PERCENT: Final = 5.0
_OTHERS_PERCENT: Final = 20.0
_WAITED_PERCENT: Final = 40.0
"""Loops of members that share two cores with their client wait for 10 to 25 percent of a calm run."""
_LONGEST_LIMIT: Final = 10


@dataclass(slots=True, frozen=True)
class Sample:
    """What was counted up to one moment."""

    at_ns: int
    """By the monotonic clock."""
    processors: ProcessorTimes
    ran_ns: Mapping[str, int]
    """By process name: all its threads."""
    waited_ns: Mapping[str, int]
    """By process name: the thread of its loop."""


def between(samples: Sequence[Sample], begin_ns: int, end_ns: int) -> dict[str, Any]:  # JSON
    """Say who ran from the last sample before a span to the first one after it; nothing without two samples.

    `stolen_percent` and `others_percent` are shares of the time of all processors, `waited_percent` are shares of the
    time that passed, by process name.
    """
    times = [sample.at_ns for sample in samples]
    first = max(0, bisect_right(times, begin_ns) - 1)
    last = min(len(samples) - 1, bisect_left(times, end_ns))
    if last <= first:
        return {}
    before, after = samples[first], samples[last]
    passed, elapsed_ns = after.processors - before.processors, after.at_ns - before.at_ns
    ran_ns = sum(after.ran_ns.get(name, 0) - ran for name, ran in before.ran_ns.items())
    return {
        "stolen_percent": _percent(passed.stolen_ns, passed.total_ns),
        "others_percent": max(0.0, _percent(passed.busy_ns - ran_ns, passed.total_ns)),
        "waited_percent": {
            name: _percent(after.waited_ns.get(name, waited) - waited, elapsed_ns)
            for name, waited in before.waited_ns.items()
        },
    }


def cause_of(moment: Mapping[str, Any]) -> str:
    """Name what held up a moment: the first of these that is large enough."""
    if moment["lag_ms"] >= _LATE_SHARE * moment["max_ms"]:
        return LATE
    if moment.get("stolen_percent", 0.0) >= _STOLEN_PERCENT:
        return HOST
    if moment.get("others_percent", 0.0) >= _OTHERS_PERCENT:
        return OTHERS
    if max(moment.get("waited_percent", {}).values(), default=0.0) >= _WAITED_PERCENT:
        return SHARED
    return INSIDE


def judge_moments(found: Sequence[Mapping[str, int]], samples: Sequence[Sample], started_ns: int) -> dict[str, Any]:
    """Say how many slow moments there were, what held them up, and describe the longest."""
    judged = [_described(moment, samples, started_ns) for moment in found]
    causes: dict[str, dict[str, float]] = {}
    for moment in judged:
        total = causes.setdefault(moment["cause"], {"count": 0, "total_ms": 0.0})
        total["count"] += 1
        total["total_ms"] = round(total["total_ms"] + moment["lasted_ms"], 1)
    judged.sort(key=lambda moment: moment["max_ms"], reverse=True)
    return {
        "count": len(judged),
        "total_ms": round(sum(moment["lasted_ms"] for moment in judged), 1),
        "causes": causes,
        "longest": judged[:_LONGEST_LIMIT],
    }


def _described(moment: Mapping[str, int], samples: Sequence[Sample], started_ns: int) -> dict[str, Any]:
    described: dict[str, Any] = {
        "after_s": round((moment["begin_ns"] - started_ns) / 1e9, 3),
        "lasted_ms": round((moment["end_ns"] - moment["begin_ns"]) / 1e6, 1),
        "messages": moment["count"],
        "max_ms": round(moment["max_ns"] / 1e6, 1),
        "lag_ms": round(moment["lag_ns"] / 1e6, 1),
        **between(samples, moment["begin_ns"], moment["end_ns"]),
    }
    described["cause"] = cause_of(described)
    return described


def _percent(part_ns: int, whole_ns: int) -> float:
    return round(100 * part_ns / whole_ns, 1) if whole_ns > 0 else 0.0
