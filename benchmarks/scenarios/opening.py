"""Opening: many sessions of one process, each with connections of its own: to open, to hold, and to lose the leader of.

The harness is the client. Processor time says more than the clock where members and client share cores: it is given for
one session, of the leader, of a follower and of the client. In the end the leader is killed while each session has one
request in flight, and each waits for the answer of the next leader.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Annotated, Final

import typer
import uvloop

from trimaran.client import ClusterClient
from trimaran.service_api.errors import ClusterTimeoutError, ConfigurationError

from ..machine.data_directory import data_directory
from ..machine.environment import describe, tune_garbage_collector
from ..options import DirectoryOption, JsonOption, KeepOption, TimeLimitOption
from ..rig.member_status import wait_until_serving
from ..rig.processes import ClusterProcesses, require_connections
from ..services import REQUEST_SERVICE
from ..statistics.histogram import Histogram
from ..statistics.report import Report, finish

_MEMBERS: Final = 3
_START_LIMIT_S: Final = 120.0
_CONNECT_TIMEOUT_S: Final = 120.0


@dataclass(slots=True, frozen=True, kw_only=True)
class OpeningParameters:
    """What one run does.

    Raises:
        ConfigurationError: values that make no run.
    """

    sessions: int = 1_000
    at_once: int = 64
    """Sessions that are being opened at a time."""
    rest_s: float = 5.0
    time_limit_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("sessions", "at_once"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name}={getattr(self, name)} expected at least 1")


@dataclass(slots=True)
class _Reading:
    """Processor time so far, in seconds."""

    at_s: float
    client_s: float
    member_s: dict[str, float]

    def since(self, before: _Reading, leader_id: int, count: float) -> dict[str, float]:
        """What was used since another reading, in microseconds for each of so many."""
        used = {name: self.member_s[name] - before.member_s[name] for name in self.member_s}
        leader_s, client_s = used.pop(f"member-{leader_id}"), self.client_s - before.client_s
        figures = {"leader_us": leader_s, "follower_us": mean(used.values()), "client_us": client_s}
        return {name: round(value * 1e6 / count, 1) for name, value in figures.items()}


def _read(cluster: ClusterProcesses) -> _Reading:
    return _Reading(time.monotonic(), time.process_time(), cluster.cpu_seconds())


def run(parameters: OpeningParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, the time was up, too few files may be open.
    """
    require_connections(parameters.sessions * _MEMBERS)
    with ExitStack() as stack:
        data_dir = stack.enter_context(data_directory(directory, "opening", keep=keep))
        settings = {"session_limit": str(max(parameters.sessions, 10_000))}
        cluster = stack.enter_context(ClusterProcesses(data_dir, REQUEST_SERVICE, _MEMBERS, settings=settings))
        figures = uvloop.run(_measure(parameters, cluster))
        environment = describe(data_dir)
    return {"scenario": "opening", **figures, "parameters": asdict(parameters), "environment": environment}


async def _measure(parameters: OpeningParameters, cluster: ClusterProcesses) -> Report:
    await wait_until_serving(cluster, time_limit_s=_START_LIMIT_S)
    tune_garbage_collector()
    count, gate = parameters.sessions, asyncio.Semaphore(parameters.at_once)
    clients: list[ClusterClient] = []
    try:
        async with asyncio.timeout(parameters.time_limit_s), _closing(clients):

            async def open_one() -> None:
                async with gate:
                    clients.append(
                        await ClusterClient.connect(cluster.ingress_endpoints, connect_timeout_s=_CONNECT_TIMEOUT_S)
                    )

            begun = _read(cluster)
            async with asyncio.TaskGroup() as tasks:
                for _ in range(count):
                    tasks.create_task(open_one())
            opened = _read(cluster)
            await asyncio.sleep(parameters.rest_s)
            rested = _read(cluster)
            leader_id = clients[0].leader_member_id
            failover = await _fail_over(clients, cluster, leader_id)
    except TimeoutError as error:
        raise ClusterTimeoutError(f"benchmark not done: time_limit_s={parameters.time_limit_s:g}") from error
    opening_s = opened.at_s - begun.at_s
    return {
        "opening": {
            "s": round(opening_s, 2),
            "per_s": round(count / opening_s),
            **opened.since(begun, leader_id, count),
        },
        "a second at rest": rested.since(opened, leader_id, count * (rested.at_s - opened.at_s)),
        "failover": failover,
    }


@asynccontextmanager
async def _closing(clients: list[ClusterClient]) -> AsyncIterator[None]:
    """Close all clients in the end, side by side: one after the other took minutes for 4,000."""
    try:
        yield
    finally:
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(client.aclose())


async def _fail_over(clients: list[ClusterClient], cluster: ClusterProcesses, leader_id: int) -> Report:
    """Kill the leader; give how long sessions waited for an answer to a request that was made right before."""
    histogram, begin_ns = Histogram(), time.monotonic_ns()
    cluster.members[leader_id].signal(signal.SIGKILL)
    begun_s = time.process_time()

    async def ask(client: ClusterClient) -> None:
        await client.request(b"x" * 32)
        histogram.record_all([time.monotonic_ns() - begin_ns])

    async with asyncio.TaskGroup() as tasks:
        for client in clients:
            tasks.create_task(ask(client))
    return {
        "p50_ms": round(histogram.percentile_ns(50) / 1e6, 1),
        "p99_ms": round(histogram.percentile_ns(99) / 1e6, 1),
        "max_ms": round(histogram.max_ns / 1e6, 1),
        "client_us": round((time.process_time() - begun_s) * 1e6 / len(clients), 1),
    }


def opening(
    sessions: Annotated[int, typer.Option(help="Sessions of one process, each with its own connections.")] = 1_000,
    at_once: Annotated[int, typer.Option(help="Sessions that are being opened at a time.")] = 64,
    rest: Annotated[float, typer.Option(help="Seconds at rest, between opening and the leader's death.")] = 5.0,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    time_limit: TimeLimitOption = 300.0,
    json: JsonOption = None,
) -> None:
    """Many sessions: what it takes to open and to hold them, and until the next leader has answered all."""
    parameters = OpeningParameters(sessions=sessions, at_once=at_once, rest_s=rest, time_limit_s=time_limit)
    finish(run(parameters, directory=directory, keep=keep), json, f"opening: {_MEMBERS} members, {sessions} sessions")
