"""Fairness: modest clients beside a greedy one. How long do the modest clients' messages take, alone and beside it?

A modest client keeps one message in flight; there may be many of them, each with a session and connections of its own,
in one process. The greedy one, a process of its own, keeps as many as it is told.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop

from trimaran.service_api.errors import ClusterTimeoutError

from ..load.client_process import ClientParameters
from ..load.coordination import spawn_clients
from ..load.sessions import SessionLoad
from ..machine.data_directory import data_directory
from ..machine.environment import describe, tune_garbage_collector
from ..options import Members, Payload, SyncLevel, TimeLimit
from ..rig.processes import ClusterProcesses, ProcessGroup, require_connections
from ..services import ECHO_SERVICE
from ..statistics.histogram import Histogram
from ..statistics.report import Report, latency_figures
from .echo import session_settings

_CONNECT_TIMEOUT_S: Final = 60.0
_ENDLESS: Final = 1 << 40


@dataclass(slots=True, frozen=True, kw_only=True)
class FairnessParameters:
    """Parameters of one run."""

    members: Members = 3
    payload: Payload = 32
    greedy_payload: Annotated[int, typer.Option(min=8, help="Bytes in a message of the greedy client.")] = 32
    depths: Annotated[
        tuple[int, ...], typer.Option(min=1, help="Messages of the greedy client in flight, one figure for each.")
    ] = (64, 1024, 4096)
    sessions: Annotated[int, typer.Option(min=1, help="Modest clients, each with one message in flight.")] = 1
    messages: Annotated[int, typer.Option(min=1, help="Messages of the modest clients for each figure.")] = 2_000
    warmup: Annotated[int, typer.Option(min=1, help="Messages before them, not measured.")] = 200
    file_sync_level: SyncLevel = 1
    time_limit_s: TimeLimit = 300.0


def run(parameters: FairnessParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, or the time was up.
    """
    with ExitStack() as stack:
        data_dir = stack.enter_context(data_directory(directory, "fairness", keep=keep))
        require_connections((parameters.sessions + 1) * parameters.members)
        settings = {"file_sync_level": str(parameters.file_sync_level), **session_settings(parameters.sessions + 1)}
        cluster = stack.enter_context(ClusterProcesses(data_dir, ECHO_SERVICE, parameters.members, settings=settings))
        figures = uvloop.run(_measure(parameters, cluster.ingress_endpoints, data_dir))
        environment = describe(data_dir)
    return {"scenario": "fairness", **figures, "parameters": asdict(parameters), "environment": environment}


async def _measure(parameters: FairnessParameters, endpoints: list[str], directory: Path) -> Report:
    tune_garbage_collector()
    try:
        async with asyncio.timeout(parameters.time_limit_s):
            figures: Report = {"alone": await _modest_clients(parameters, endpoints)}
            for depth in parameters.depths:
                async with _greedy_client(parameters, endpoints, depth, directory) as replies:
                    begin_s, begin_count = time.monotonic(), replies[-1]
                    beside = await _modest_clients(parameters, endpoints)
                    greedy_per_s = round((replies[-1] - begin_count) / (time.monotonic() - begin_s))
                figures[f"beside {depth} in flight,"] = {
                    **beside,
                    "greedy_per_s": greedy_per_s,
                    "p99_times_alone": round(beside["p99_us"] / figures["alone"]["p99_us"], 2),
                }
    except TimeoutError as error:
        raise ClusterTimeoutError(f"benchmark not done: time_limit_s={parameters.time_limit_s:g}") from error
    return figures


async def _modest_clients(parameters: FairnessParameters, endpoints: list[str]) -> Report:
    """Connect after everybody else, and measure."""
    load, histogram = SessionLoad(payload_length=parameters.payload, inflight=parameters.sessions), Histogram()
    async with load.connected(
        endpoints, parameters.sessions, connect_timeout_s=_CONNECT_TIMEOUT_S, on_opened=lambda count: None
    ):
        await load.run(max(parameters.warmup, parameters.sessions))
        phase = await load.run(max(parameters.messages, 10 * parameters.sessions))
    histogram.record_all(phase.latencies_ns)
    return latency_figures(histogram)


@asynccontextmanager
async def _greedy_client(
    parameters: FairnessParameters, endpoints: list[str], depth: int, directory: Path
) -> AsyncIterator[list[int]]:
    """Run a process that sends without end; give how many replies it has had, the newest count last.

    Raises:
        ProcessError: it ended.
    """
    told = ClientParameters(
        endpoints=endpoints,
        payload_length=parameters.greedy_payload,
        inflight=depth,
        warmup_count=10 * depth,
        message_count=_ENDLESS,
        rate_per_s=None,
        connect_timeout_s=_CONNECT_TIMEOUT_S,
    )
    replies = [0]
    with ProcessGroup() as group:
        async with spawn_clients(group, [told], directory=directory, name="greedy") as (greedy,):
            for event in ("ready", "warmed"):
                await greedy.wait_for(event)
                greedy.go()
            async with asyncio.TaskGroup() as tasks:
                counting = tasks.create_task(greedy.wait_for("measured", replies.append))
                yield replies
                counting.cancel()
