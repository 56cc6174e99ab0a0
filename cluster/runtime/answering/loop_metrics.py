"""Metrics of the event loop: what held it, and where the time of requests goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from trimaran.cluster.runtime.answering.metric_row import Labelled, MetricRow
from trimaran.cluster.runtime.answering.vitals import Vitals
from trimaran.cluster.runtime.watching.stall_tracker import LOOP
from trimaran.cluster.runtime.watching.sync_timer import DurationHistogram

_NS_PER_S: Final = 1_000_000_000


def _stalls(read: Callable[[Vitals, str], float]) -> Callable[[Vitals], Labelled]:
    """Read something of every culprit; the loop itself is always among them."""
    return lambda vitals: [((name,), read(vitals, name)) for name in dict.fromkeys((*vitals.stalls.culprits, LOOP))]


def _stall_count(vitals: Vitals, name: str) -> float:
    found = vitals.stalls.culprits.get(name)
    return 0 if found is None else found.count


def _stall_seconds(vitals: Vitals, name: str) -> float:
    found = vitals.stalls.culprits.get(name)
    return 0 if found is None else found.total_ns / _NS_PER_S


def _stall_max(vitals: Vitals, name: str) -> float:
    found = vitals.stalls.culprits.get(name)
    return 0 if found is None else found.max_ns / _NS_PER_S


def _slow_spans(vitals: Vitals) -> Iterator[tuple[str, DurationHistogram]]:
    yield from vitals.stalls.slow_spans.items()


def _request_stages(vitals: Vitals) -> Iterator[tuple[str, DurationHistogram]]:
    for stage, durations in vitals.ingress.stages.durations.items():
        yield stage.name.lower(), durations


LOOP_METRICS: Final = (
    MetricRow(
        "trimaran_loop_stalls_total",
        "counter",
        "how often the event loop was blocked for longer than the threshold, by culprit: a callback of the service, "
        "`delivery`, `gc0` to `gc2`, or `loop`",
        _stalls(_stall_count),
        ("culprit",),
        "217, 219",
    ),
    MetricRow(
        "trimaran_loop_stall_seconds_total",
        "counter",
        "total duration of these stalls",
        _stalls(_stall_seconds),
        ("culprit",),
    ),
    MetricRow(
        "trimaran_loop_stall_max_seconds",
        "gauge",
        "duration of the longest stall",
        _stalls(_stall_max),
        ("culprit",),
    ),
    MetricRow(
        "trimaran_loop_busy_max_seconds",
        "gauge",
        "the longest time that one callback kept the loop busy; at least 5 ms, and it need not be a stall",
        lambda v: v.stalls.max_ns / _NS_PER_S,
        (),
        "216, 218",
    ),
    MetricRow(
        "trimaran_loop_stall_threshold_seconds",
        "gauge",
        "the threshold of a stall: the setting `stall_threshold_ms`",
        lambda v: v.stalls.threshold_ns / _NS_PER_S,
    ),
    MetricRow(
        "trimaran_loop_slow_seconds",
        "histogram",
        "what held the event loop for longer than the setting `loop_slow_ms`, by culprit: as of stalls, or a stage of "
        "the log: `ingress`, `append`, `sync`, `egress`",
        lambda v: None,
        ("culprit",),
        "",
        _slow_spans,
    ),
    MetricRow(
        "trimaran_request_stage_seconds",
        "histogram",
        "on the leader: where the time of a request goes, of one chunk of requests at a time; from one stage to "
        "the next: `ingress`, `append`, `sync`, `quorum`, `deliver`, `egress`",
        lambda v: None,
        ("stage",),
        "",
        _request_stages,
    ),
)
"""The rows of the loop, in the order of the page."""
