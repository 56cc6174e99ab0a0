"""Stops: the longest turn of a member's loop, in processor time, by what the member does beside the log.

A client offers small messages at a steady rate. Meanwhile one thing after the other is caused: snapshots, a storm of
sessions, a scrub, a member that comes back, a member that is removed; on clusters of their own handshakes of TLS, and
log that is shipped and purged. Members write how long their turns take (`services.turns`), so a turn belongs to the
cause in whose time it ended. Processor time is counted, not the clock: where members share processors, the clock says
mostly who ran.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from ...client import ClientConfig, ClusterClient
from ...service_api.documents.member_status import is_in_term
from ...service_api.errors import ClusterError, ClusterTimeoutError, ConfigurationError
from ..machine.data_directory import data_directory, measurement_directory
from ..machine.environment import describe
from ..options import Members, SyncLevel
from ..rig.member_log import RigMemberLog, event_time_s
from ..rig.member_status import consensus_endpoint, wait_for_status, wait_until_serving
from ..rig.processes import ClusterProcesses, ProcessGroup, require_connections
from ..services import WATCHED_ORDERS_SERVICES
from ..services.orders import ORDERS_PER_FILL, OrdersByMessage
from ..services.turns import TURN_EVENT
from ..statistics.report import ProgressLine, Report, progress_line
from .snapshots import SteadyLoad, fill_state, request_snapshot, wait_taken

STOP_TARGET_MS: Final = 20.0
"""Nothing that a member does beside the log takes its loop for longer between two turns."""

_LIMIT_S: Final = 60.0
_CALM_S: Final = 3.0
_AFTER_S: Final = 1.0
"""What belongs to a cause after its end."""
_DOWN_S: Final = 2.0
_SHIPPED_MESSAGE: Final = bytes(4 << 10)
_SHIPPED_MESSAGES: Final = 640
"""Make a log of five segments, which can be shipped."""
_LOOK_S: Final = 0.1
_AT_ONCE: Final = 64
"""Connections that are being made at a time."""
_SMALL_SEGMENTS: Final = {
    "term_length_bytes": str(512 << 10),
    "segment_length_bytes": str(512 << 10),
    "mtu_length_bytes": "8192",
    "ingress_window_bytes": str(128 << 10),
}
"""Of a log that is purged while it is looked at."""


@dataclass(slots=True, frozen=True, kw_only=True)
class StopsParameters:
    """Parameters of one run.

    Raises:
        ConfigurationError: there is no cluster of such a name.
    """

    orders: Annotated[int, typer.Option(min=1, help="Orders that the service holds.")] = 200_000
    sessions: Annotated[int, typer.Option(min=1, help="Sessions of a storm, and TLS handshakes.")] = 500
    rate: Annotated[float, typer.Option(min=1, max=10_000, help="Messages a second that the client offers.")] = 1_000.0
    only: Annotated[tuple[str, ...], typer.Option(help="The clusters that are measured.")] = (
        *("pieces", "copy", "ship", "tls"),
    )
    members: Members = 3
    file_sync_level: SyncLevel = 1

    def __post_init__(self) -> None:
        names = ("pieces", "copy", "ship", "tls")
        if not {*self.only} <= {*names}:
            raise ConfigurationError(f"only={','.join(self.only)!r} expected some of {','.join(names)}")
        if self.members < 2:
            raise ConfigurationError(f"members={self.members} expected at least 2: followers are looked at, too")


@dataclass(slots=True)
class _Stage:
    """One cluster under load, and the rows that were measured on it."""

    parameters: StopsParameters
    cluster: ClusterProcesses
    client: ClusterClient
    rows: list[Report] = field(default_factory=list)

    @property
    def leader_id(self) -> int:
        return self.client.leader_member_id

    @property
    def follower_id(self) -> int:
        """The last follower: the one that is disturbed."""
        return max(member_id for member_id in self.cluster.members if member_id != self.leader_id)

    def config(self) -> ClientConfig:
        """What a further session connects with."""
        return ClientConfig(
            endpoints=tuple(self.cluster.ingress_endpoints),
            connect_timeout_s=_LIMIT_S,
            tls=self.cluster.client_tls,
        )

    async def measure(self, what: str, cause: Callable[[_Stage], Awaitable[object]]) -> None:
        """Cause something, and note the longest turns meanwhile."""
        leader_id, begin_s = self.leader_id, time.time()
        await cause(self)
        took_s = time.time() - begin_s
        await asyncio.sleep(_AFTER_S)
        longest = {
            member_id: longest_ms(RigMemberLog(self.cluster.log_path_of(member_id)), begin_s, time.time())
            for member_id in range(self.parameters.members)
        }
        leader_ms = longest.pop(leader_id)
        self.rows.append(
            {
                "what": what,
                "leader_ms": leader_ms,
                "follower_ms": max(longest.values()),
                "took_s": round(took_s, 2),
                "reached": max(leader_ms, *longest.values()) <= STOP_TARGET_MS,
            }
        )


def longest_ms(log: RigMemberLog, begin_s: float, end_s: float) -> float:
    """Find the longest turn that a member wrote of in a time; 0 if it wrote of none."""
    turns = (event for event in log.events(TURN_EVENT) if begin_s <= event_time_s(event) <= end_s)
    return round(max((event["busy_us"] for event in turns), default=0) / 1e3, 1)


def run(parameters: StopsParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, or the time of a part was up.
    """
    require_connections(parameters.sessions * parameters.members)
    rows: list[Report] = []
    with data_directory(directory, "stops", keep=keep) as data_dir, progress_line(len(parameters.only)) as progress:
        environment = describe(data_dir)
        for number, name in enumerate(parameters.only):
            progress.update(number)
            with measurement_directory(data_dir / name, keep=keep) as place, ProcessGroup() as group:
                settings = {"file_sync_level": str(parameters.file_sync_level), **_settings(name, place)}
                service = WATCHED_ORDERS_SERVICES["copy" if name == "copy" else "pieces"]
                cluster = ClusterProcesses(
                    place, service, parameters.members, settings=settings, group=group, with_tls=name == "tls"
                )
                place.mkdir(parents=True, exist_ok=True)
                rows += uvloop.run(_measure(parameters, cluster, _CAUSES[name], progress))
    return {
        "scenario": "stops",
        "target_ms": STOP_TARGET_MS,
        "rows": rows,
        "parameters": asdict(parameters),
        "environment": environment,
    }


def _settings(name: str, place: Path) -> Mapping[str, str]:
    if name != "ship":
        return {}
    kept = {"keep_all": "false", "keep_snapshots": "1", "keep_log_bytes": "0"}
    return {**_SMALL_SEGMENTS, **kept, "cold_storage_url": (place / "cold").resolve().as_uri()}


async def _measure(
    parameters: StopsParameters,
    cluster: ClusterProcesses,
    causes: Mapping[str, Callable[[_Stage], Awaitable[object]]],
    progress: ProgressLine,
) -> Sequence[Report]:
    async with _loaded(parameters, cluster) as stage:
        for what, cause in causes.items():
            progress.describe(what)
            await stage.measure(what, cause)
        return stage.rows


@asynccontextmanager
async def _loaded(parameters: StopsParameters, cluster: ClusterProcesses) -> AsyncIterator[_Stage]:
    """Start the members, fill the state, and offer messages."""
    for member_id in range(parameters.members):
        cluster.start_member(member_id)
    await wait_until_serving(cluster, time_limit_s=_LIMIT_S)
    load = SteadyLoad(parameters.rate)
    config = ClientConfig(
        endpoints=tuple(cluster.ingress_endpoints), connect_timeout_s=_LIMIT_S, tls=cluster.client_tls
    )
    async with ClusterClient.connect(egress_listener=load, config=config) as client, asyncio.TaskGroup() as tasks:
        await fill_state(client, load, [OrdersByMessage.fill] * -(-parameters.orders // ORDERS_PER_FILL))
        traffic = tasks.create_task(load.run(client))
        await asyncio.sleep(_AFTER_S)  # the turns in which the state was filled are over, and written of
        yield _Stage(parameters, cluster, client)
        traffic.cancel()


# The causes


async def _calm(stage: _Stage) -> None:
    """Nothing but the load."""
    await asyncio.sleep(_CALM_S)


async def _snapshot(stage: _Stage) -> None:
    """Take a snapshot on every member."""
    cluster = stage.cluster
    logs = {member_id: RigMemberLog.at_end(cluster.log_path_of(member_id)) for member_id in cluster.members}
    await wait_taken(logs, await request_snapshot(cluster, stage.leader_id))


async def _ship(stage: _Stage) -> None:
    """Take snapshots, after which the log before them goes to cold storage, and is purged."""
    for _ in range(_SHIPPED_MESSAGES):
        await stage.client.offer(_SHIPPED_MESSAGE)
    length_bytes = _SHIPPED_MESSAGES * len(_SHIPPED_MESSAGE)
    await wait_for_status(
        stage.cluster, stage.leader_id, lambda status: status.commit_position > length_bytes, time_limit_s=_LIMIT_S
    )
    await _snapshot(stage)
    first = stage.cluster.directory_of(stage.leader_id) / "archive" / "0-0.rec"
    try:
        async with asyncio.timeout(_LIMIT_S):
            while True:
                if not first.exists():
                    return
                await asyncio.sleep(_LOOK_S)
    except TimeoutError as error:
        raise ClusterTimeoutError(f"waited {_LIMIT_S:g} s until {first} had left the disk") from error


async def _sessions(stage: _Stage) -> None:
    """Open many sessions at once, each with connections of its own, and close them."""
    gate, config = asyncio.Semaphore(_AT_ONCE), stage.config()

    async def open_one() -> ClusterClient:
        async with gate:
            return await ClusterClient.connect(config=config)

    async with asyncio.TaskGroup() as tasks:
        opened = [tasks.create_task(open_one()) for _ in range(stage.parameters.sessions)]
    async with asyncio.TaskGroup() as tasks:
        for client in opened:
            tasks.create_task(client.result().aclose())


async def _scrub(stage: _Stage) -> None:
    """Have the leader and a follower read everything they have recorded."""
    from ...cluster.documents.operations import Operation, run_operation

    for member_id in (stage.leader_id, stage.follower_id):
        endpoint = consensus_endpoint(stage.cluster, member_id)
        async with aclosing(run_operation(endpoint, Operation.SCRUB, _LIMIT_S)) as steps:
            async for _ in steps:
                pass
    await asyncio.sleep(_AFTER_S)


async def _catchup(stage: _Stage) -> None:
    """Kill a follower, and start it again after a while."""
    cluster, follower_id = stage.cluster, stage.follower_id
    cluster.kill_member(follower_id)
    await asyncio.sleep(_DOWN_S)
    cluster.start_member(follower_id)
    await wait_for_status(cluster, follower_id, is_in_term, time_limit_s=_LIMIT_S)


async def _removal(stage: _Stage) -> None:
    """Remove a follower from the members, for good."""
    from ...cluster.core.vocabulary.member_change import MemberChangeKind
    from ...cluster.documents.operations import MemberChangeRequest, Operation, run_operation

    cluster, follower_id = stage.cluster, stage.follower_id
    change = MemberChangeRequest(kind=MemberChangeKind.REMOVE, member_id=follower_id)
    endpoint = consensus_endpoint(cluster, stage.leader_id)
    del cluster.members[follower_id]  # one that has ended would end the run
    last = None
    async with aclosing(run_operation(endpoint, Operation.CHANGE_MEMBERS, _LIMIT_S, change=change)) as steps:
        async for step in steps:
            last = step
    if last is None or not last.is_final:
        raise ClusterError(f"the member was not removed: {last!r}")


_CAUSES: Final[Mapping[str, Mapping[str, Callable[[_Stage], Awaitable[object]]]]] = {
    "pieces": {
        "load alone": _calm,
        "snapshot in pieces": _snapshot,
        "storm of sessions": _sessions,
        "scrub": _scrub,
        "catch-up of a follower": _catchup,
        "removal of a member": _removal,
    },
    "copy": {"snapshot by a copy": _snapshot},
    "ship": {"log shipped and purged": _ship},
    "tls": {"TLS handshakes": _sessions},
}
"""By cluster: what is caused on it, in this order."""


def print_stops(report: Report) -> None:
    """Print a row for each cause."""
    table = Table("cause", "leader, ms", "follower, ms", f"{report['target_ms']:g} ms", "took, s", title="longest turn")
    for row in report["rows"]:
        is_reached = "reached" if row["reached"] else "not reached"
        table.add_row(row["what"], f"{row['leader_ms']:g}", f"{row['follower_ms']:g}", is_reached, f"{row['took_s']:g}")
    Console().print(table)
