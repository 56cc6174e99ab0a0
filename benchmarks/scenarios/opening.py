"""Opening: many sessions, to open, to hold, and to lose the leader of; with connections of their own, or shared ones.

Processor time says more than the clock where members and clients share cores: it is given for one session, of the
leader, of a follower and of the clients. In the end the leader is killed, and each session asks at once: it waits for
the answer of the next leader. The longest turn of that leader's loop meanwhile is what others would feel.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, Final

import typer
import uvloop

from trimaran.cluster.auth.secrets_file import SecretsFile
from trimaran.cluster.documents.query import query_status
from trimaran.service_api.errors import ClusterTimeoutError, ConfigurationError

from ..load.coordination import ClientProcess, all_events, all_go, share
from ..load.opening_process import OpeningLoad
from ..load.sessions import SESSIONS_PER_PROCESS
from ..machine.data_directory import data_directory
from ..machine.environment import describe
from ..options import DirectoryOption, JsonOption, KeepOption, TimeLimitOption
from ..rig.member_status import consensus_endpoint, wait_until_serving
from ..rig.processes import ClusterProcesses, require_connections
from ..services import REQUEST_SERVICE
from ..statistics.histogram import Histogram
from ..statistics.report import Report, finish

_MEMBERS: Final = 3
_START_LIMIT_S: Final = 120.0
_CONNECT_TIMEOUT_S: Final = 120.0
_ASK_TIMEOUT_S: Final = 10.0
_PRINCIPAL: Final = "benchmark"


@dataclass(slots=True, frozen=True, kw_only=True)
class OpeningParameters:
    """What one run does.

    Raises:
        ConfigurationError: values that make no run.
    """

    sessions: int = 1_000
    at_once: int = 64
    """Sessions that are being opened at a time, by each client process."""
    processes: int = 0
    """Client processes; 0: as many as may open the files."""
    share: bool = False
    """Whether the sessions of a process share one connection to each member."""
    password: bool = False
    """Whether the cluster asks for a password; all sessions are one principal's."""
    settle_s: float = 12.0
    """Between opening and rest: connections to members that do not lead are made meanwhile, 1 ms apart."""
    rest_s: float = 5.0
    time_limit_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("sessions", "at_once"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name}={getattr(self, name)} expected at least 1")
        if self.processes < 0:
            raise ConfigurationError(f"processes={self.processes} expected 0 or more")

    @property
    def process_count(self) -> int:
        """How many client processes there are."""
        needed = 1 if self.share else -(-self.sessions // SESSIONS_PER_PROCESS)
        return min(self.processes or needed, self.sessions)


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


@dataclass(slots=True)
class _Run:
    """One run: its cluster and its client processes."""

    parameters: OpeningParameters
    cluster: ClusterProcesses
    secret: str
    clients: list[ClientProcess] = field(default_factory=list)

    async def measure(self, data_dir: Path) -> Report:
        """Run the phases.

        Raises:
            ClusterError: it could not be measured.
        """
        await wait_until_serving(self.cluster, time_limit_s=_START_LIMIT_S)
        try:
            async with asyncio.timeout(self.parameters.time_limit_s):
                await self._spawn(data_dir)
                return await self._run_phases()
        except TimeoutError as error:
            raise ClusterTimeoutError(f"benchmark not done: time_limit_s={self.parameters.time_limit_s:g}") from error
        finally:
            for client in self.clients:
                client.close()

    async def _spawn(self, data_dir: Path) -> None:
        parameters, count = self.parameters, self.parameters.process_count
        for index in range(count):
            load = OpeningLoad(
                endpoints=self.cluster.ingress_endpoints,
                session_count=share(parameters.sessions, count, index),
                at_once=parameters.at_once,
                connect_timeout_s=_CONNECT_TIMEOUT_S,
                is_shared=parameters.share,
                principal=_PRINCIPAL if parameters.password else "",
                secret=self.secret,
            )
            name = f"client-{index}"
            self.clients.append(
                await ClientProcess.spawn(
                    self.cluster.group, name, load, log_path=data_dir / f"{name}.log", module="load.opening_process"
                )
            )
        await all_events(self.clients, "ready")

    async def _run_phases(self) -> Report:
        clients, count = self.clients, self.parameters.sessions
        begun = self._read([])
        all_go(clients)
        events = await all_events(clients, "opened")
        opened = self._read(events)
        await asyncio.sleep(0 if self.parameters.share else self.parameters.settle_s)
        all_go(clients)
        settled = self._read(await all_events(clients, "settled"))
        await asyncio.sleep(self.parameters.rest_s)
        all_go(clients)
        rested = self._read(await all_events(clients, "rested"))
        leader_id = int(events[0]["leader_member_id"])
        figures = {"longest_turn_ms": await self._longest_turn_ms(leader_id)}
        failover = await self._fail_over(leader_id)
        opening_s = opened.at_s - begun.at_s
        rested_s = rested.at_s - settled.at_s
        return {
            "opening": {
                "s": round(opening_s, 2),
                "per_s": round(count / opening_s),
                **opened.since(begun, leader_id, count),
                **figures,
            },
            "a second at rest": rested.since(settled, leader_id, count * rested_s),
            "failover": failover,
        }

    def _read(self, events: list[dict[str, Any]]) -> _Reading:
        """Read the processor times; clients tell theirs."""
        client_s = sum(float(event["cpu_s"]) for event in events)
        return _Reading(time.monotonic(), client_s, self.cluster.cpu_seconds())

    async def _fail_over(self, leader_id: int) -> Report:
        """Kill the leader; give how long sessions waited for an answer to a request that was made right then."""
        cluster, clients = self.cluster, self.clients
        before_s = cluster.cpu_seconds()
        killed_ns = time.monotonic_ns()
        cluster.members[leader_id].signal(signal.SIGKILL)
        all_go(clients, str(killed_ns))
        events = await all_events(clients, "answered")
        used = {name: after_s - before_s[name] for name, after_s in cluster.cpu_seconds().items()}
        all_go(clients)
        histogram = Histogram()
        for event in events:
            histogram.add(Histogram.from_json(event["latencies"]))
        del cluster.members[leader_id], used[f"member-{leader_id}"]
        loops_ms = [await self._longest_turn_ms(member_id) for member_id in cluster.members]
        client_s = sum(float(event["cpu_s"]) for event in events)
        return {
            "p50_ms": round(histogram.percentile_ns(50) / 1e6, 1),
            "p99_ms": round(histogram.percentile_ns(99) / 1e6, 1),
            "max_ms": round(histogram.max_ns / 1e6, 1),
            "client_us": round(client_s * 1e6 / histogram.count, 1),
            "members_us": round(sum(used.values()) * 1e6 / histogram.count, 1),
            "longest_turn_ms": max(loops_ms),
        }

    async def _longest_turn_ms(self, member_id: int) -> float:
        """How long the loop of a member has stood still at most, since it was started."""
        endpoint = consensus_endpoint(self.cluster, member_id)
        status = await query_status(endpoint, _ASK_TIMEOUT_S, network=self.cluster.network)
        return round(status.stall_max_s * 1e3, 1)


def run(parameters: OpeningParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, the time was up, too few files may be open.
    """
    of_process = -(-parameters.sessions // parameters.process_count)
    require_connections(1 if parameters.share else max(of_process * _MEMBERS, parameters.sessions))
    settings = {name: str(max(parameters.sessions, 10_000)) for name in ("session_limit", "connection_session_limit")}
    with ExitStack() as stack:
        data_dir = stack.enter_context(data_directory(directory, "opening", keep=keep))
        secret = secrets.token_hex(16)
        if parameters.password:
            settings |= {"authenticator": "password", "secrets_file": str(_write_secrets(data_dir, secret))}
        load_before = [round(load, 2) for load in os.getloadavg()]
        cluster = stack.enter_context(ClusterProcesses(data_dir, REQUEST_SERVICE, _MEMBERS, settings=settings))
        figures = uvloop.run(_Run(parameters, cluster, secret).measure(data_dir))
        environment = {**describe(data_dir), "load_average_before": load_before}
    return {"scenario": "opening", **figures, "parameters": asdict(parameters), "environment": environment}


def _write_secrets(data_dir: Path, secret: str) -> Path:
    path = data_dir / "secrets"
    file = SecretsFile.empty(secrets.token_bytes)
    file.add(_PRINCIPAL, secret, secrets.token_bytes)
    file.save(path)
    return path


def opening(
    sessions: Annotated[int, typer.Option(help="Sessions, over all client processes.")] = 1_000,
    at_once: Annotated[int, typer.Option(help="Sessions that each process opens at a time.")] = 64,
    processes: Annotated[int, typer.Option(help="Client processes; 0: as many as may open the files.")] = 0,
    share: Annotated[bool, typer.Option("--share", help="The sessions of a process share its connections.")] = False,
    password: Annotated[bool, typer.Option("--password", help="The cluster asks each session for a password.")] = False,
    settle: Annotated[float, typer.Option(help="Seconds for connections to the other members, after opening.")] = 12.0,
    rest: Annotated[float, typer.Option(help="Seconds at rest, before the leader's death.")] = 5.0,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    time_limit: TimeLimitOption = 300.0,
    json: JsonOption = None,
) -> None:
    """Many sessions: what it takes to open and to hold them, and until the next leader has answered all."""
    parameters = OpeningParameters(
        sessions=sessions,
        at_once=at_once,
        processes=processes,
        share=share,
        password=password,
        settle_s=settle,
        rest_s=rest,
        time_limit_s=time_limit,
    )
    kind = "sessions on shared connections" if share else "sessions"
    finish(run(parameters, directory=directory, keep=keep), json, f"opening: {_MEMBERS} members, {sessions} {kind}")
