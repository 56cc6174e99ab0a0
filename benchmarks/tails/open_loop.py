"""Open loops at half of the peak, one after another: how steady the tails are, and what held up each slow moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

from ..rig.processes import ClusterProcesses, ProcessGroup
from ..scenarios import echo
from ..statistics.report import Report
from .moments import judge_moments
from .parameters import GOALS, SLOW_MS, TailsParameters
from .watching import TRACER_SETTINGS, WatchingMeter

Place: TypeAlias = Callable[[], AbstractContextManager[Path]]
"""Makes an empty directory for one measurement."""
Step: TypeAlias = Callable[[str], None]
"""Told what is measured next."""

FIGURE_NAMES: Final = {"p50_us": "p50", "p99_us": "p99", "p999_us": "p99.9", "max_us": "max"}
FIGURES: Final = tuple(FIGURE_NAMES)

_PEAK_RUNS: Final = 3
_WARMUP_S: Final = 1.0
_LIMIT_S: Final = 120.0
"""Of a run, besides the time of its messages."""


def measure_peak(parameters: TailsParameters, place: Place, step: Step) -> int:
    """Measure the peak: messages a second with 1,024 in flight, the median of three runs."""
    found: list[int] = []
    for number in range(_PEAK_RUNS):
        step(f"the peak {number + 1}/{_PEAK_RUNS}")
        told = echo.EchoParameters(
            members=parameters.members,
            payload=parameters.payload,
            inflight=echo.PEAK_INFLIGHT,
            messages=echo.PEAK_MESSAGES,
            file_sync_level=parameters.file_sync_level,
        )
        with place() as directory:
            found.append(echo.run(told, directory=directory)["throughput_msgs_per_s"])
    return round(median(found))


def open_loop_parameters(parameters: TailsParameters, rate: float, messages: int, **more: Any) -> echo.EchoParameters:
    """What an open loop at this rate is told; `more` goes before what is usual here."""
    settings = {**TRACER_SETTINGS, **more.pop("node_settings", {})}
    usual: dict[str, Any] = {  # values of several types
        "members": parameters.members,
        "payload": parameters.payload,
        "inflight": 1,
        "messages": messages,
        "warmup": round(rate * _WARMUP_S),
        "rate": rate,
        "slow_ms": SLOW_MS,
        "file_sync_level": parameters.file_sync_level,
        "time_limit_s": messages / rate + _LIMIT_S,
    }
    return echo.EchoParameters(**{**usual, **more}, node_settings=settings)


def measure_open_loop(parameters: TailsParameters, rate: float, place: Place, step: Step) -> Report:
    """Run open loops one after another; give each, and the median of all with the targets."""
    runs = []
    for number in range(parameters.runs):
        step(f"open loop {number + 1}/{parameters.runs}")
        with place() as directory:
            runs.append(_run(parameters, rate, directory))
    return {"runs": runs, **summary(runs)}


def summary(runs: Sequence[Mapping[str, Any]]) -> Report:
    """Return the median, the least and the most of each figure over the runs, and the targets."""
    medians = {name: round(median(run[name] for run in runs), 1) for name in FIGURES}
    return {
        "median": medians,
        "least": {name: min(run[name] for run in runs) for name in FIGURES},
        "most": {name: max(run[name] for run in runs) for name in FIGURES},
        "goals": [
            {"figure": goal.figure, "target": goal.text, "reached": goal.is_reached(medians[goal.figure])}
            for goal in GOALS
        ],
    }


def _run(parameters: TailsParameters, rate: float, directory: Path) -> Report:
    told = open_loop_parameters(parameters, rate, round(rate * parameters.seconds))
    meters: list[WatchingMeter] = []

    def make_meter(cluster: ClusterProcesses | None, clients: ProcessGroup) -> WatchingMeter:
        meters.append(WatchingMeter(cluster))
        return meters[0]

    report = echo.run(told, directory=directory, make_meter=make_meter)
    (meter,) = meters
    kept = (*FIGURES, "throughput_msgs_per_s", "duration_s", "leader", "send_lag", "since_sent", "collections")
    return {
        **{name: report[name] for name in kept},
        "cpu_seconds_per_100k": report["cpu_seconds_per_100k"],
        "latency_percentiles_us": report["latency_percentiles_us"],
        "load_average": report["environment"]["load_average"][0],
        **meter.shares(),
        "seen": meter.seen,
        "slow": judge_moments(report["moments"], meter.samples, report["started_ns"]),
    }
