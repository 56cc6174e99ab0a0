"""Opening: many sessions, to open, to hold, and to lose the leader of; with connections of their own, or shared ones.

Processor time says more than the clock where members and clients share cores: it is given for one session, of the
leader, of a follower and of the clients. In the end the leader is killed, and each session asks at once: it waits for
the answer of the next leader. The longest turn of that leader's loop meanwhile is what others would feel.

Each number of sessions is a case in each of these ways, with and without a password. A case that cannot be measured is
noted with its reason, and the others go on.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import product
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any, Final

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from ...cluster.auth.secrets_file import SecretsFile
from ...cluster.documents.query import query_status
from ...service_api.errors import ClusterError, ClusterTimeoutError
from ..load.coordination import ClientProcess, all_events, all_go, share, spawn_clients
from ..load.opening_process import OpeningLoad
from ..load.sessions import SESSIONS_PER_PROCESS
from ..machine.data_directory import data_directory
from ..machine.environment import describe
from ..options import Rounds
from ..rig.member_status import consensus_endpoint, wait_until_serving
from ..rig.processes import ClusterProcesses, require_connections
from ..services import REQUEST_SERVICE
from ..statistics.histogram import Histogram
from ..statistics.report import Report, progress_line

OPENING_TARGETS_S: Final = {10_000: {False: 5.0, True: 30.0}}
"""By sessions and whether the cluster asks for a password: how long they may take to open."""
FAILOVER_P50_TARGETS_MS: Final = {1_000: 500.0}
FAILOVER_MAX_TARGETS_MS: Final = {10_000: 3_000.0}
"""By sessions: how long they may wait for an answer after the leader was killed."""

_MEMBERS: Final = 3
_START_LIMIT_S: Final = 120.0
_CONNECT_TIMEOUT_S: Final = 120.0
_ASK_TIMEOUT_S: Final = 10.0
_AT_ONCE: Final = 64
"""Sessions that are being opened at a time, by each client process."""
_SETTLE_S: Final = 12.0
"""Between opening and rest: connections to members that do not lead are made meanwhile, 1 ms apart."""
_PRINCIPAL: Final = "benchmark"
"""Of all sessions, where the cluster asks for a password."""


class Connections(StrEnum):
    """Whose the connections of a session are."""

    OWN = "own"
    SHARED = "shared"
    """Of all sessions of a client process: one to each member."""


@dataclass(slots=True, frozen=True, kw_only=True)
class OpeningParameters:
    """Parameters of one run."""

    sessions: Annotated[tuple[int, ...], typer.Option(min=1, help="Sessions, over all client processes.")] = (
        *(1_000, 10_000),
    )
    connections: Annotated[
        tuple[Connections, ...], typer.Option(help="Connections of each session, or of all of a process.")
    ] = tuple(Connections)
    passwords: Annotated[
        tuple[int, ...], typer.Option(min=0, help="0: anybody may connect; 1: the cluster asks for a password.")
    ] = (0, 1)
    rounds: Rounds = 1
    rest_s: Annotated[float, typer.Option("--rest", min=0, help="Seconds at rest, before the leader's death.")] = 5.0
    case_limit_s: Annotated[
        float, typer.Option("--case-limit", min=1, help="Seconds after which a case is given up.")
    ] = 240.0

    def cases(self) -> list[Case]:
        """Return what is measured, in its order."""
        return [
            Case(sessions, connections is Connections.SHARED, bool(password))
            for sessions, connections, password in product(self.sessions, self.connections, self.passwords)
        ]


@dataclass(slots=True, frozen=True)
class Case:
    """So many sessions in one way."""

    sessions: int
    share: bool
    password: bool

    def __str__(self) -> str:
        connections = "shared connections" if self.share else "connections of their own"
        return f"{self.sessions:,} sessions, {connections}{', password' * self.password}"

    @property
    def process_count(self) -> int:
        """How many client processes there are: as many as may open the files."""
        return 1 if self.share else -(-self.sessions // SESSIONS_PER_PROCESS)


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
    case: Case
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
            async with asyncio.timeout(self.parameters.case_limit_s):
                return await self._run_clients(data_dir)
        except TimeoutError as error:
            raise ClusterTimeoutError(f"case not done: case_limit_s={self.parameters.case_limit_s:g}") from error

    async def _run_clients(self, data_dir: Path) -> Report:
        case, count = self.case, self.case.process_count
        loads = [
            OpeningLoad(
                endpoints=self.cluster.ingress_endpoints,
                session_count=share(case.sessions, count, index),
                at_once=_AT_ONCE,
                connect_timeout_s=_CONNECT_TIMEOUT_S,
                is_shared=case.share,
                principal=_PRINCIPAL if case.password else "",
                secret=self.secret,
            )
            for index in range(count)
        ]
        group, module = self.cluster.group, "load.opening_process"
        async with spawn_clients(group, loads, directory=data_dir, module=module) as clients:
            await all_events(clients, "ready")
            self.clients = clients
            return await self._run_phases()

    async def _run_phases(self) -> Report:
        clients, count = self.clients, self.case.sessions
        begun = self._read([])
        all_go(clients)
        events = await all_events(clients, "opened")
        opened = self._read(events)
        await asyncio.sleep(0 if self.case.share else _SETTLE_S)
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
    """Measure every case; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: not one case could be measured.
    """
    cases = parameters.cases()
    found: dict[Case, list[Report]] = {case: [] for case in cases}
    failures: dict[Case, str] = {}
    with (
        data_directory(directory, "opening", keep=keep) as data_dir,
        progress_line(parameters.rounds * len(cases)) as progress,
    ):
        environment = describe(data_dir)
        for number in range(parameters.rounds):
            for index, case in enumerate(cases):
                progress.describe(str(case))
                try:
                    found[case].append(run_case(parameters, case, data_dir / f"round-{number}-case-{index}"))
                except ClusterError as error:
                    failures[case] = str(error).splitlines()[0]
                progress.update(number * len(cases) + index + 1)
    measured = [_medians(case, reports) for case, reports in found.items() if reports]
    if not measured:
        raise ClusterError(f"no case could be measured: {next(iter(failures.values()))}")
    return {
        "scenario": "opening",
        "cases": measured,
        "failures": [{**asdict(case), "reason": reason} for case, reason in failures.items()],
        "parameters": asdict(parameters),
        "environment": environment,
    }


def run_case(parameters: OpeningParameters, case: Case, place: Path) -> Report:
    """Measure one case in a directory of its own.

    Raises:
        ClusterError: it could not be measured: a process failed, the time was up, too few files may be open.
    """
    of_process = -(-case.sessions // case.process_count)
    require_connections(1 if case.share else max(of_process * _MEMBERS, case.sessions))
    names = ("session_limit", "client_session_limit", "connection_session_limit")
    settings = {name: str(max(case.sessions, 10_000)) for name in names}
    secret = secrets.token_hex(16)
    place.mkdir(parents=True)
    if case.password:
        settings |= {"authenticator": "password", "secrets_file": str(_write_secrets(place, secret))}
    load_average = round(os.getloadavg()[0], 2)
    with ExitStack() as stack:
        cluster = stack.enter_context(ClusterProcesses(place, REQUEST_SERVICE, _MEMBERS, settings=settings))
        figures = uvloop.run(_Run(parameters, case, cluster, secret).measure(place))
    return {**figures, "load_average_before": load_average}


def _medians(case: Case, reports: Sequence[Report]) -> Report:
    """Return each figure of a case as the median of its rounds, and of some figures all rounds, growing."""
    figures = {
        part: {name: round(median(report[part][name] for report in reports), 2) for name in reports[0][part]}
        for part in ("opening", "a second at rest", "failover")
    }
    spreads = {
        f"{part} {name}": sorted(report[part][name] for report in reports)
        for part, name in (("opening", "s"), ("failover", "p50_ms"), ("failover", "p99_ms"), ("failover", "max_ms"))
    }
    return {
        **asdict(case),
        "rounds": len(reports),
        "load_average_before": max(report["load_average_before"] for report in reports),
        **figures,
        "rounds_of": spreads,
    }


def _write_secrets(data_dir: Path, secret: str) -> Path:
    path = data_dir / "secrets"
    file = SecretsFile.empty(secrets.token_bytes)
    file.add(_PRINCIPAL, secret, secrets.token_bytes)
    file.save(path)
    return path


def print_cases(report: Report) -> None:
    """Print a line for each case, and what could not be measured."""
    table = Table("sessions", "open s", "leader µs", "p50 ms", "p99 ms", "max ms", title="opening: 3 members")
    for case in report["cases"]:
        opened, failed_over = case["opening"], case["failover"]
        figures = (opened["s"], opened["leader_us"], *(failed_over[name] for name in ("p50_ms", "p99_ms", "max_ms")))
        table.add_row(str(_case_of(case)), *(f"{figure:g}" for figure in figures))
    console = Console()
    console.print(table)
    for failure in report["failures"]:
        console.print(f"{_case_of(failure)} not measured: {failure['reason']}", highlight=False)


def _case_of(row: Report) -> Case:
    return Case(row["sessions"], row["share"], row["password"])
