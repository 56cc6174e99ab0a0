"""Samples to microseconds: the arithmetic of the profile, and its error.

A process took T microseconds of processor time for a message, by the kernel's own count. Of n samples on a processor a
part p was in the kernel, the event loop or the collector: that is p * T. What is left of them was Python's; of the m
Python samples that were in a known function or an unknown one (those in nothing but the loop say nothing new) a part q
was in one stage: that is the rest's share times q * T. The error is that of counting, 1.96 standard deviations of the
binomial distribution, of both counts: it says nothing of what sampling as such gets wrong. One such thing is known: a
system call that is made with the interpreter's lock held is the kernel's in the first count, and in the second it is of
the function that made it, so that stages which send get a little more of Python's part than is theirs.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Final

from .stages import Stage

_DEVIATIONS: Final = 1.96
_FUNCTIONS: Final = 15
"""How many functions are named."""
_SMALL_SHARE: Final = 0.01
"""System calls with less than this of all samples are shown as one."""


Parts = dict[tuple[str, str], tuple[float, float]]
"""By stage and detail: the share of a process's time, and its error."""


def divide(
    cpu_us: float, native: Counter[tuple[Stage | None, str]], python: Counter[tuple[Stage | None, str]]
) -> dict[str, Any]:  # JSON
    """Divide the processor time of a process between stages.

    `native` counts samples on a processor by stage and detail, None being Python's; `python` counts Python samples by
    stage and function, None being the loop's own. Gives `cpu_us`, the counts of samples, `stages`, the largest first:
    `stage`, `detail`, `us`, `error_us` and `share`, and the `functions` that most of Python's part was in. Without
    samples all of it is not attributed.
    """
    known, functions = Counter[Stage](), Counter[tuple[Stage, str]]()
    for (stage, function), count in python.items():
        if stage is not None:
            known[stage] += count
            functions[stage, function] += count
    native_count = native.total()
    python_share = sum(count for (stage, _), count in native.items() if stage is None) / max(native_count, 1)
    parts = _native_parts(native)
    if python_share:
        # Without a stack the time is there, and nobody saw what it was.
        error = _error(python_share, native_count)
        _add_python_parts(parts, known or Counter({Stage.UNATTRIBUTED: 1}), python_share, error)
    rows = [
        {
            "stage": stage,
            "detail": detail,
            "us": round(share * cpu_us, 4),
            "error_us": round(error * cpu_us, 4),
            "share": round(share, 4),
        }
        for (stage, detail), (share, error) in parts.items()
    ]
    return {
        "cpu_us": round(cpu_us, 3),
        "samples": {"perf": native_count, "py_spy": functions.total()},
        "stages": sorted(rows, key=lambda row: -float(str(row["us"]))),
        "functions": [
            {
                "function": function,
                "stage": str(stage),
                "us": round(python_share * count / functions.total() * cpu_us, 4),
            }
            for (stage, function), count in functions.most_common(_FUNCTIONS)
        ],
    }


def _native_parts(native: Counter[tuple[Stage | None, str]]) -> Parts:
    """The parts that are not Python's: small system calls are one."""
    total = native.total()
    if not total:
        return {(str(Stage.UNATTRIBUTED), ""): (1.0, 0.0)}
    counts = Counter[tuple[str, str]]()
    for (stage, detail), count in native.items():
        if stage is not None:
            small = stage is Stage.KERNEL and count < _SMALL_SHARE * total
            counts[str(stage), "other" if small else detail] += count
    return {key: (count / total, _error(count / total, total)) for key, count in counts.items()}


def _add_python_parts(parts: Parts, known: Counter[Stage], python_share: float, python_error: float) -> None:
    """Divide Python's share between its stages, with the errors of both counts."""
    total = known.total()
    for stage, count in known.items():
        share = count / total
        error = math.hypot(python_share * _error(share, total), share * python_error)
        before, before_error = parts.get((str(stage), ""), (0.0, 0.0))
        parts[str(stage), ""] = (before + python_share * share, math.hypot(before_error, error))


def _error(share: float, count: int) -> float:
    return _DEVIATIONS * math.sqrt(share * (1 - share) / count)
