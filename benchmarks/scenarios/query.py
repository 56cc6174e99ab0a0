"""Queries: a service is asked without a log entry, linearizably or with a bound on its age; beside echoes.

One client, one depth after another, closed loop. A linearizable query waits for a majority to confirm its leader, and
for no disk; one that may be a second old is answered by whichever member comes next, from what it knows. The echoes are
those of the scenario `echo`, at the same depths: the same question, asked through the log.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import uvloop

from trimaran.client import ClusterClient
from trimaran.service_api.errors import ClusterTimeoutError, ConfigurationError

from ..machine.data_directory import data_directory
from ..machine.environment import describe, tune_garbage_collector
from ..rig.processes import ClusterProcesses
from ..services import ECHO_SERVICE
from ..statistics.histogram import Histogram
from ..statistics.report import ProgressLine, Report, latency_figures, progress_line
from . import echo

_CONNECT_TIMEOUT_S: Final = 30.0
_STALENESS_S: Final = 1.0


@dataclass(slots=True, frozen=True, kw_only=True)
class QueryParameters:
    """What one run does.

    Raises:
        ConfigurationError: values that make no run.
    """

    members: int = 3
    payload: int = 32
    depths: tuple[int, ...] = (1, 64)
    """Queries in flight, one figure for each."""
    queries: int = 50_000
    """Of each kind, at each depth."""
    warmup: int = 2_000
    with_echo: bool = True
    file_sync_level: int = 1
    time_limit_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("members", "payload", "queries"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name}={getattr(self, name)} expected at least 1")
        if not self.depths or min(self.depths) < 1:
            raise ConfigurationError(f"depths={self.depths} expected at least 1 each")


def run(parameters: QueryParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, or the time was up.
    """
    with ExitStack() as stack:
        data_dir = stack.enter_context(data_directory(directory, "query", keep=keep))
        settings = {"file_sync_level": str(parameters.file_sync_level)}
        cluster = stack.enter_context(ClusterProcesses(data_dir, ECHO_SERVICE, parameters.members, settings=settings))
        progress = stack.enter_context(progress_line(2 * len(parameters.depths) * parameters.queries))
        figures = uvloop.run(_measure(parameters, cluster, progress))
        environment = describe(data_dir)
    report: Report = {"scenario": "query", **figures}
    if parameters.with_echo:
        for depth in parameters.depths:
            measured = echo.run(_echo_parameters(parameters, depth))
            report[f"echo, {depth} in flight,"] = {
                "per_s": measured["throughput_msgs_per_s"],
                **{name: measured[name] for name in ("p50_us", "p99_us")},
            }
    report["parameters"] = asdict(parameters)
    report["environment"] = environment
    return report


async def _measure(parameters: QueryParameters, cluster: ClusterProcesses, progress: ProgressLine) -> Report:
    figures: Report = {}
    try:
        async with (
            asyncio.timeout(parameters.time_limit_s),
            ClusterClient.connect(cluster.ingress_endpoints, connect_timeout_s=_CONNECT_TIMEOUT_S) as client,
        ):
            tune_garbage_collector()
            done = 0
            for name, staleness_s in (("linearizable", None), ("stale", _STALENESS_S)):
                for depth in parameters.depths:
                    progress.describe(f"{name}, {depth} in flight")
                    await _ask(client, parameters.warmup, depth, parameters.payload, staleness_s)
                    begin_s = time.perf_counter()
                    latencies = await _ask(client, parameters.queries, depth, parameters.payload, staleness_s)
                    duration_s = time.perf_counter() - begin_s
                    done += parameters.queries
                    progress.update(done)
                    histogram = Histogram()
                    histogram.record_all(latencies)
                    figures[f"{name}, {depth} in flight,"] = {
                        "per_s": round(len(latencies) / duration_s),
                        **latency_figures(histogram),
                    }
    except TimeoutError as error:
        raise ClusterTimeoutError(f"benchmark not done: time_limit_s={parameters.time_limit_s:g}") from error
    return figures


async def _ask(client: ClusterClient, count: int, depth: int, length: int, staleness_s: float | None) -> list[int]:
    """Ask so many queries, `depth` at a time; give how long each one took, in nanoseconds."""
    latencies: list[int] = []
    left = count
    payload = bytes(length)

    async def ask_in_turn() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            begin_ns = time.perf_counter_ns()
            await client.query(payload, max_staleness_s=staleness_s)
            latencies.append(time.perf_counter_ns() - begin_ns)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(depth):
            tasks.create_task(ask_in_turn())
    return latencies


def _echo_parameters(parameters: QueryParameters, depth: int) -> echo.EchoParameters:
    return echo.EchoParameters(
        members=parameters.members,
        payload=max(parameters.payload, 8),
        inflight=depth,
        messages=parameters.queries,
        warmup=parameters.warmup,
        file_sync_level=parameters.file_sync_level,
        time_limit_s=parameters.time_limit_s,
    )
