"""Looks at a cluster while it is measured: who ran, and what the members' own tracer and metrics saw."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from ..machine.schedule import ProcessorTimes, thread_times
from ..rig.member_log import RigMemberLog
from ..rig.meter import Meter, fetch_page, metrics_endpoint
from ..rig.processes import ClusterProcesses
from .moments import Sample, between

TRACER_SETTINGS: Final = {"loop_slow_ms": "2", "stall_threshold_ms": "8"}
"""Settings of members: what holds a loop for 2 ms is counted, and so is a tick, due each 2 ms, that is so late."""

_SAMPLE_INTERVAL_S: Final = 0.05
"""A sample takes 0.3 ms."""

Buckets = dict[str, dict[float, int]]
"""By what is counted: how many there were up to a number of seconds."""


class WatchingMeter(Meter):
    """A meter that takes samples of who runs, and reads the members' metrics before and after."""

    def __init__(self, cluster: ClusterProcesses | None) -> None:
        super().__init__(cluster)
        self._watched = cluster
        self._pages: dict[str, str] = {}
        self.samples: list[Sample] = []
        self.seen: dict[str, dict[str, Any]] = {}  # JSON
        """By member name, after `end`: what held the loop, stages of requests, and syncs."""

    async def begin(self) -> None:
        """Read what was counted so far."""
        await super().begin()
        self._pages = await self._read_pages()

    async def beside(self, measured: asyncio.Event) -> None:
        """Take samples until it is measured."""
        while not measured.is_set():
            self.samples.append(self._sample())
            with suppress(TimeoutError):
                async with asyncio.timeout(_SAMPLE_INTERVAL_S):
                    await measured.wait()
        self.samples.append(self._sample())

    async def end(self) -> None:
        """Read what was counted meanwhile."""
        await super().end()
        for name, page in (await self._read_pages()).items():
            self.seen[name] = {
                what: counted_between(self._pages[name], page, metric, label)
                for what, (metric, label) in _HISTOGRAMS.items()
            }

    def shares(self) -> dict[str, Any]:
        """Say who ran, in all."""
        return between(self.samples, self.samples[0].at_ns, self.samples[-1].at_ns) if self.samples else {}

    def _sample(self) -> Sample:
        members = {} if self._watched is None else {m.name: m.pid for m in self._watched.members.values()}
        pids = {**members, **self.client_pids}
        times = {name: thread_times(pid) for name, pid in pids.items()}
        return Sample(
            time.monotonic_ns(),
            ProcessorTimes.read(),
            {name: sum(thread.ran_ns for thread in threads) for name, threads in times.items()},
            {
                name: sum(thread.waited_ns for thread in threads if thread.thread_id == pids[name])
                for name, threads in times.items()
            },
        )

    async def _read_pages(self) -> dict[str, str]:
        cluster = self._watched
        if cluster is None:
            return {}
        pages = {}
        for member_id, member in cluster.members.items():
            endpoint = metrics_endpoint(RigMemberLog(cluster.log_path_of(member_id)))
            _, _, pages[member.name] = (await fetch_page(endpoint, cluster.network)).partition("\r\n\r\n")
        return pages


_HISTOGRAMS: Final = {
    "loop": ("trimaran_loop_slow_seconds", "culprit"),
    "stages": ("trimaran_request_stage_seconds", "stage"),
    "syncs": ("trimaran_sync_duration_seconds", "call"),
}


def counted_between(before: str, after: str, metric: str, label: str) -> dict[str, Any]:  # JSON
    """Say what a histogram of metrics counted between two pages, by the value of a label; what was not is left out.

    Longest and p99 are upper ends of buckets, which are powers of two of nanoseconds: up to twice too long.
    """
    begin, end = _buckets(before, metric, label), _buckets(after, metric, label)
    found = {}
    for name, buckets in end.items():
        earlier = begin.get(name, {})
        grown = {bound: count - earlier.get(bound, 0) for bound, count in sorted(buckets.items())}
        total = grown.get(math.inf, 0)
        if total:
            found[name] = {
                "count": total,
                "p99_ms": _bound_ms(grown, math.ceil(total * 0.99)),
                "longest_ms": _bound_ms(grown, total),
            }
    return found


def _bound_ms(cumulative: Mapping[float, int], wanted: int) -> float:
    """Find the first bucket that has so many, with all before it; the last one that has an end where none has."""
    finite = [bound for bound in cumulative if bound < math.inf]
    return round(1e3 * next((bound for bound in finite if cumulative[bound] >= wanted), finite[-1]), 3)


def _buckets(page: str, metric: str, label: str) -> Buckets:
    found: Buckets = {}
    for sample in _samples(page, metric):
        if sample.name == f"{metric}_bucket":
            bound = float(sample.labels["le"].replace("+Inf", "inf"))
            found.setdefault(sample.labels[label], {})[bound] = int(sample.value)
    return found


def _samples(page: str, metric: str) -> Iterable[Any]:  # prometheus_client's samples
    for family in text_string_to_metric_families(page):
        if family.name == metric:
            yield from family.samples
