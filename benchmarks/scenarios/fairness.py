"""Fairness: modest clients beside a greedy one. How long do the modest clients' messages take, alone and beside it?

A modest client keeps one message in flight; there may be many of them, each with a session and connections of its own,
in one process. The greedy one, a process of its own, keeps as many as it is told.

Then the ready-made services, for each kind of greed: how long a put of a key-value client takes, alone and beside a
client that takes all it can get of one limit.
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

from ...service_api.errors import ClusterTimeoutError, ConfigurationError
from ..load.client_process import ClientParameters
from ..load.coordination import spawn_clients
from ..load.greedy_process import GREEDS
from ..load.sessions import SessionLoad
from ..machine.data_directory import data_directory
from ..machine.environment import describe, tune_garbage_collector
from ..options import Members, Payload, SyncLevel, TimeLimit
from ..rig.processes import ClusterProcesses, ProcessGroup, raise_file_limit, require_connections
from ..services import ECHO_SERVICE
from ..statistics.histogram import Histogram
from ..statistics.report import Report, latency_figures
from .echo import session_settings
from .greedy_kinds import measure_kind, services

_CONNECT_TIMEOUT_S: Final = 60.0
_ENDLESS: Final = 1 << 40
_GREEDY_FILES: Final = 10_000
"""Files of a process that opens a quarter of 10,000 sessions, with a connection to each of three members."""


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
    kinds: Annotated[
        tuple[str, ...], typer.Option(help="Kinds of greed beside a key-value client: one cluster for each.")
    ] = tuple(GREEDS)
    kind_s: Annotated[
        float,
        typer.Option("--seconds", min=0.1, help="Seconds for which it is measured: alone, then beside it, then again."),
    ] = 8.0
    file_sync_level: SyncLevel = 1
    time_limit_s: TimeLimit = 300.0

    def __post_init__(self) -> None:
        if not {*self.kinds} <= {*GREEDS}:
            raise ConfigurationError(f"kinds={','.join(self.kinds)} expected some of {','.join(GREEDS)}")


def run(parameters: FairnessParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, or the time was up.
    """
    with ExitStack() as stack:
        data_dir = stack.enter_context(data_directory(directory, "fairness", keep=keep))
        environment = describe(data_dir)  # with the load before
        require_connections((parameters.sessions + 1) * parameters.members)
        settings = {"file_sync_level": str(parameters.file_sync_level), **session_settings(parameters.sessions + 1)}
        processes = ClusterProcesses(data_dir / "echo", ECHO_SERVICE, parameters.members, settings=settings)
        with processes as cluster:
            figures = uvloop.run(_measure(parameters, cluster.ingress_endpoints, data_dir))
        for kind in parameters.kinds:
            figures[f"beside {kind},"] = _measure_kind(parameters, kind, data_dir)
    return {"scenario": "fairness", **figures, "parameters": asdict(parameters), "environment": environment}


def _measure_kind(parameters: FairnessParameters, kind: str, directory: Path) -> Report:
    raise_file_limit(_GREEDY_FILES)
    settings = {"file_sync_level": str(parameters.file_sync_level)}
    with ClusterProcesses(directory / kind, services(), parameters.members, settings=settings) as cluster:
        return uvloop.run(measure_kind(kind, parameters.kind_s, cluster, directory))


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
