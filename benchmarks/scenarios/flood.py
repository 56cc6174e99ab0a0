"""Floods: what hostile clients do to a member that leads, and to the honest clients beside them.

A flood is a process of its own (`load.hostile_clients`). Measured are the resident memory of the leader before, at its
peak and a while after the flood, from `/proc`; and the requests of an honest client, alone and during the flood: how
many a second, and how long each took. With TLS a hostile client gets no further than the handshake. Whether the members
still answer operators is asked all the time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final

import typer
import uvloop

from ...client import ClientConfig, ClusterClient
from ...cluster.documents.query import StatusQueryError, query_status
from ...service_api.errors import ClusterError, ClusterTimeoutError, ConfigurationError
from ..load.hostile_clients import FLOODS
from ..machine.data_directory import data_directory
from ..machine.environment import describe
from ..options import Members, Rounds, Settings, TimeLimit, Tls
from ..rig.member_status import consensus_endpoint, wait_until_serving
from ..rig.processes import ClusterProcesses
from ..rig.resident import resident_bytes
from ..services import FAN_OUT_SERVICE
from ..statistics.report import Report

_CONNECT_TIMEOUT_S: Final = 30.0
_SAMPLE_INTERVAL_S: Final = 0.05
_STATUS_INTERVAL_S: Final = 0.5
_STATUS_TIMEOUT_S: Final = 2.0
_CALLERS: Final = 16


@dataclass(slots=True, frozen=True, kw_only=True)
class FloodParameters:
    """Parameters of one run.

    Raises:
        ConfigurationError: there is no flood of such a name.
    """

    kinds: Annotated[
        tuple[str, ...], typer.Option(help="Kinds of hostile clients: one cluster and one flood for each.")
    ] = tuple(FLOODS)
    members: Members = 3
    connections: Annotated[int, typer.Option(min=1, help="Hostile connections at once.")] = 60
    flood_s: Annotated[float, typer.Option("--seconds", min=0.1, help="Seconds that a flood lasts.")] = 15.0
    after_s: Annotated[
        float, typer.Option("--after", min=0, help="Seconds after a flood until memory is read again.")
    ] = 30.0
    tls: Tls = False
    rounds: Rounds = 1
    node_settings: Settings = field(default_factory=dict)
    time_limit_s: TimeLimit = 300.0
    alone_s: float = 3.0

    def __post_init__(self) -> None:
        if not {*self.kinds} <= {*FLOODS}:
            raise ConfigurationError(f"kinds={','.join(self.kinds)} expected some of {','.join(FLOODS)}")


def run(parameters: FloodParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run every flood against a cluster of its own; every process has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, or the time was up.
    """
    with ExitStack() as stack:
        data_dir = stack.enter_context(data_directory(directory, "flood", keep=keep))
        environment = describe(data_dir)  # with the load before
        runs: dict[str, list[Report]] = {kind: [] for kind in parameters.kinds}
        for number in range(parameters.rounds):
            for kind in parameters.kinds:
                settings = {**parameters.node_settings}
                directory_of_run = data_dir / f"{kind}-{number}"
                processes = ClusterProcesses(
                    directory_of_run, FAN_OUT_SERVICE, parameters.members, settings=settings, with_tls=parameters.tls
                )
                with processes as cluster:
                    runs[kind].append(uvloop.run(_measure(parameters, kind, cluster)))
    figures = {f"{kind},": {name: median(run[name] for run in runs[kind]) for name in runs[kind][0]} for kind in runs}
    return {
        "scenario": "flood",
        **figures,
        "runs": runs,
        "parameters": asdict(parameters),
        "environment": environment,
    }


def flood_rows(report: Report) -> list[list[str]]:
    """Say of each flood: the connections that it had at once, the p99 of the honest client alone and during it, their
    ratio, the leader's memory before and at its peak, and how often the status was not answered.
    """
    rows = []
    for kind, runs in report["runs"].items():
        during = [run["honest_during_p99_ms"] / run["honest_alone_p99_ms"] for run in runs]
        figures = report[f"{kind},"]
        unanswered = figures["status_unanswered"]
        rows.append(
            [
                kind,
                f"{figures['most_open_count']:,.0f}",
                f"{figures['honest_alone_p99_ms']:.1f} ms",
                f"{figures['honest_during_p99_ms']:.1f} ms",
                f"{median(during):.1f} x ({min(during):.1f} to {max(during):.1f})",
                f"{figures['rss_before_mb']:.0f} MB",
                f"{figures['rss_peak_mb']:.0f} MB",
                f"{unanswered:.0f} of {figures['status_answered'] + unanswered:.0f}",
            ]
        )
    return rows


async def _measure(parameters: FloodParameters, kind: str, cluster: ClusterProcesses) -> Report:
    try:
        async with asyncio.timeout(parameters.time_limit_s):
            await wait_until_serving(cluster, time_limit_s=_CONNECT_TIMEOUT_S)
            config = ClientConfig(
                endpoints=tuple(cluster.ingress_endpoints),
                connect_timeout_s=_CONNECT_TIMEOUT_S,
                tls=cluster.client_tls,
            )
            async with ClusterClient.connect(config=config) as client:
                return await _flood(parameters, kind, cluster, client)
    except TimeoutError as error:
        raise ClusterTimeoutError(f"benchmark not done: time_limit_s={parameters.time_limit_s:g}") from error


async def _flood(parameters: FloodParameters, kind: str, cluster: ClusterProcesses, client: ClusterClient) -> Report:
    leader_id = client.leader_member_id
    leader = cluster.members[leader_id]
    async with _honest_load(client) as answers, _watched(cluster, leader_id) as seen:
        await asyncio.sleep(1.0)
        alone = await _measure_honest(answers, parameters.alone_s)
        before_bytes = resident_bytes(leader.pid)
        async with _flooding(kind, cluster.ingress_endpoints[leader_id], parameters.connections) as reports:
            during = await _measure_honest(answers, parameters.flood_s)
        await asyncio.sleep(parameters.after_s)
        after_bytes = resident_bytes(leader.pid)
    cluster.check_running()
    return {
        "rss_before_mb": round(before_bytes / 1e6, 1),
        "rss_peak_mb": round(max(seen.resident_bytes) / 1e6, 1),
        "rss_after_mb": round(after_bytes / 1e6, 1),
        **{f"honest_alone_{name}": figure for name, figure in alone.items()},
        **{f"honest_during_{name}": figure for name, figure in during.items()},
        "status_unanswered": seen.unanswered_count,
        "status_answered": seen.answered_count,
        **reports[-1],
    }


@dataclass(slots=True)
class _Sightings:
    resident_bytes: list[int]
    answered_count: int = 0
    unanswered_count: int = 0


@asynccontextmanager
async def _watched(cluster: ClusterProcesses, member_id: int) -> AsyncIterator[_Sightings]:
    """Read a member's memory and ask for its status all the time."""
    seen = _Sightings([0])

    async def sample() -> None:
        while True:
            seen.resident_bytes.append(resident_bytes(cluster.members[member_id].pid))
            await asyncio.sleep(_SAMPLE_INTERVAL_S)

    async def ask() -> None:
        while True:
            try:
                await query_status(consensus_endpoint(cluster, member_id), _STATUS_TIMEOUT_S, network=cluster.network)
                seen.answered_count += 1
            except StatusQueryError:
                seen.unanswered_count += 1
            await asyncio.sleep(_STATUS_INTERVAL_S)

    async with asyncio.TaskGroup() as tasks:
        watching = [tasks.create_task(sample()), tasks.create_task(ask())]
        yield seen
        for task in watching:
            task.cancel()


@asynccontextmanager
async def _honest_load(client: ClusterClient) -> AsyncIterator[list[float]]:
    """Callers that make one request after another; gives how long each answer took, in seconds."""
    answers: list[float] = []

    async def ask() -> None:
        while True:
            begin_s = time.monotonic()
            await client.request(b"honest")
            answers.append(time.monotonic() - begin_s)

    async with asyncio.TaskGroup() as tasks:
        callers = [tasks.create_task(ask()) for _ in range(_CALLERS)]
        yield answers
        for caller in callers:
            caller.cancel()


async def _measure_honest(answers: list[float], duration_s: float) -> dict[str, float]:
    """Say what the honest client gets from now on: answers a second, and how long they take."""
    begin_s, begin_count = time.monotonic(), len(answers)
    await asyncio.sleep(duration_s)
    taken_s = sorted(answers[begin_count:]) or [duration_s]
    return {
        "per_s": round((len(answers) - begin_count) / (time.monotonic() - begin_s)),
        "p50_ms": round(taken_s[len(taken_s) // 2] * 1e3, 2),
        "p99_ms": round(taken_s[len(taken_s) * 99 // 100] * 1e3, 2),
    }


@asynccontextmanager
async def _flooding(kind: str, endpoint: str, count: int) -> AsyncIterator[list[dict[str, Any]]]:
    """A process that floods; gives its counts, the newest last."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trimaran.benchmarks.load.hostile_clients", kind, endpoint, str(count)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    reports: list[dict[str, Any]] = []
    try:
        if not (line := await process.stdout.readline()):
            raise ClusterError(f"the flood has not begun: kind={kind} pid={process.pid}")
        reports.append(json.loads(line))
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(_collect(process.stdout, reports))
            yield reports
            reading.cancel()
    finally:
        process.kill()
        await process.wait()


async def _collect(lines: asyncio.StreamReader, reports: list[dict[str, Any]]) -> None:
    while line := await lines.readline():
        reports.append(json.loads(line))
    raise ClusterError("the flood is gone")
