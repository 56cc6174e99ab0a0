"""Memory: what a member takes by sessions, by keys of the key-value store, by queued jobs, and after many messages.

Resident memory of the leader and of a follower, by the kernel's count. For each key and job the table says what it
costs beside its own bytes. etcd and Redis get the same keys and values, where they are installed; where not, the row
says so. Messages are sent in rounds: memory that is the same after each is flat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from ...client import ClientConfig, ClusterClient, SharedConnection
from ...client.ready_made import KvClient, QueueClient
from ...service_api.ready_made import READY_MADE
from ..load.echo import EchoLoad
from ..machine.data_directory import data_directory, measurement_directory
from ..machine.environment import describe, tune_garbage_collector
from ..options import Members, SyncLevel
from ..peers.etcd import EtcdKv
from ..peers.peer import Missing
from ..peers.redis import RedisKv
from ..rig.member_status import wait_until_serving
from ..rig.processes import ClusterProcesses, ProcessGroup
from ..rig.resident import resident_bytes
from ..services import ECHO_SERVICE
from ..statistics.report import Report, progress_line
from .echo import session_settings

VALUE_BYTES: Final = 32
KEY_BYTES: Final = 16
JOB_BYTES: Final = 32

_LIMIT_S: Final = 120.0
_SETTLE_S: Final = 1.0
"""Before memory is read: what the last messages took is given back."""
_WORKERS: Final = 256
"""Operations in flight."""
_AT_ONCE: Final = 64
_SESSIONS_PER_CONNECTION: Final = 2_500
"""As many as a cluster lets share one, unless it is told otherwise."""
_ROUNDS: Final = 5
_INFLIGHT: Final = 1_024
_QUEUE: Final = "benchmark"


@dataclass(slots=True, frozen=True, kw_only=True)
class MemoryParameters:
    """Parameters of one run."""

    sessions: Annotated[tuple[int, ...], typer.Option(min=1, help="Sessions, on shared connections.")] = (
        *(1, 1_000, 10_000),
    )
    keys: Annotated[tuple[int, ...], typer.Option(min=1, help="Keys of the key-value store.")] = (100_000, 1_000_000)
    jobs: Annotated[tuple[int, ...], typer.Option(min=1, help="Queued jobs.")] = (10_000, 100_000)
    messages: Annotated[int, typer.Option(min=1, help="Messages in each of five rounds.")] = 500_000
    members: Members = 3
    file_sync_level: SyncLevel = 1


@dataclass(slots=True, frozen=True)
class _Resident:
    """Resident memory of one cluster, in bytes."""

    leader: int
    follower: int
    """The largest follower; the leader where there is none."""

    @classmethod
    async def read(cls, cluster: ClusterProcesses, leader_id: int) -> _Resident:
        await asyncio.sleep(_SETTLE_S)
        cluster.check_running()
        found = {member_id: resident_bytes(member.pid) for member_id, member in cluster.members.items()}
        leader = found.pop(leader_id)
        return cls(leader, max(found.values(), default=leader))

    def row(self, what: str, count: int, before: _Resident, own_bytes: int) -> Report:
        """Make a row: memory, and what each of so many costs beside its own bytes."""
        return {
            "what": what,
            "leader_bytes": self.leader,
            "follower_bytes": self.follower,
            "each_bytes": round((self.leader - before.leader) / count - own_bytes),
        }


Rows = list[Report]
Part = Callable[[MemoryParameters, ClusterProcesses], Awaitable[Rows]]


def run(parameters: MemoryParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, or the time was up.
    """
    sessions = session_settings(max(parameters.sessions))
    parts: dict[str, tuple[str, dict[str, str], Part]] = {
        "sessions": (ECHO_SERVICE, sessions, _sessions),
        "keys": (READY_MADE["kv"].target, {}, _keys),
        "jobs": (READY_MADE["queue"].target, {}, _jobs),
        "messages": (ECHO_SERVICE, {}, _messages),
    }
    rows: Rows = []
    with data_directory(directory, "memory", keep=keep) as data_dir, progress_line(len(parts) + 1) as progress:
        environment = describe(data_dir)
        for number, (name, (service, settings, measure)) in enumerate(parts.items()):
            progress.describe(name)
            progress.update(number)
            told = {"file_sync_level": str(parameters.file_sync_level), **settings}
            with measurement_directory(data_dir / name, keep=keep) as place, ProcessGroup() as group:
                place.mkdir(parents=True, exist_ok=True)
                cluster = ClusterProcesses(place, service, parameters.members, settings=told, group=group)
                rows += uvloop.run(_measure(parameters, cluster, measure))
        progress.describe("others")
        for peer in (EtcdKv(), RedisKv()):
            with measurement_directory(data_dir / type(peer).__name__, keep=keep) as place, ProcessGroup() as group:
                place.mkdir(parents=True, exist_ok=True)
                rows += _peer_keys(parameters, peer, place, group)
    return {"scenario": "memory", "rows": rows, "parameters": asdict(parameters), "environment": environment}


async def _measure(parameters: MemoryParameters, cluster: ClusterProcesses, measure: Part) -> Rows:
    for member_id in range(parameters.members):
        cluster.start_member(member_id)
    await wait_until_serving(cluster, time_limit_s=_LIMIT_S)
    tune_garbage_collector()
    return await measure(parameters, cluster)


def _config(cluster: ClusterProcesses) -> ClientConfig:
    return ClientConfig(endpoints=tuple(cluster.ingress_endpoints), connect_timeout_s=_LIMIT_S)


# The parts


async def _sessions(parameters: MemoryParameters, cluster: ClusterProcesses) -> Rows:
    """Open more and more sessions, each of which has sent a message."""
    rows: Rows = []
    async with AsyncExitStack() as stack:
        opened: list[ClusterClient] = []
        connections: list[SharedConnection] = []
        gate = asyncio.Semaphore(_AT_ONCE)

        async def open_one(shared: SharedConnection) -> ClusterClient:
            async with gate:
                client: ClusterClient = await shared.open_session()
                await client.offer(b"one message of each session")
                return client

        first: _Resident | None = None
        for count in sorted(parameters.sessions):
            async with asyncio.TaskGroup() as tasks:
                making = []
                for number in range(len(opened), count):
                    if number // _SESSIONS_PER_CONNECTION == len(connections):
                        connections.append(SharedConnection(_config(cluster)))
                    making.append(tasks.create_task(open_one(connections[-1])))
            for made in making:
                opened.append(made.result())
                stack.push_async_callback(opened[-1].aclose)
            found = await _Resident.read(cluster, opened[0].leader_member_id)
            first = first or found
            rows.append(found.row(f"{count:,} sessions", count, first, 0))
    return rows


async def _keys(parameters: MemoryParameters, cluster: ClusterProcesses) -> Rows:
    """Put more and more keys."""
    rows: Rows = []
    value = bytes(VALUE_BYTES)
    async with ClusterClient.connect(config=_config(cluster)) as client:
        kv, keys = KvClient(client), _key_names()
        first, before = await _Resident.read(cluster, client.leader_member_id), 0
        for count in sorted(parameters.keys):
            await _in_flight(kv.put(key, value) for key in islice(keys, count - before))
            before = count
            found = await _Resident.read(cluster, client.leader_member_id)
            rows.append(found.row(f"{count:,} keys of the kv service", count, first, KEY_BYTES + VALUE_BYTES))
    return rows


async def _jobs(parameters: MemoryParameters, cluster: ClusterProcesses) -> Rows:
    """Queue more and more jobs, which nobody takes."""
    rows: Rows = []
    body = bytes(JOB_BYTES)
    async with ClusterClient.connect(config=_config(cluster)) as client:
        queues = QueueClient(client)
        first, before = await _Resident.read(cluster, client.leader_member_id), 0
        for count in sorted(parameters.jobs):
            await _in_flight(queues.send(_QUEUE, body) for _ in range(count - before))
            before = count
            found = await _Resident.read(cluster, client.leader_member_id)
            rows.append(found.row(f"{count:,} queued jobs", count, first, JOB_BYTES))
    return rows


async def _messages(parameters: MemoryParameters, cluster: ClusterProcesses) -> Rows:
    """Echo messages in rounds, each with as many as the one before."""
    rows: Rows = []
    load = EchoLoad(payload_length=32, inflight=_INFLIGHT, rate_per_s=None)
    async with ClusterClient.connect(egress_listener=load, config=_config(cluster)) as client:
        await load.run(client, parameters.messages)
        first = await _Resident.read(cluster, client.leader_member_id)
        for number in range(1, _ROUNDS):
            await load.run(client, parameters.messages)
            found = await _Resident.read(cluster, client.leader_member_id)
            count = number * parameters.messages
            what = f"{count + parameters.messages:,} messages"
            rows.append({**found.row(what, count, first, 0), "each_bytes": None})
    rows.insert(0, {**first.row(f"{parameters.messages:,} messages", 1, first, 0), "each_bytes": None})
    return rows


def _key_names() -> Iterator[bytes]:
    """Yield keys that are all equally long."""
    number = 0
    while True:
        yield b"%0*d" % (KEY_BYTES, number)
        number += 1


async def _in_flight(operations: Iterable[Awaitable[object]]) -> None:
    """Await operations, so many at a time."""
    left = iter(operations)

    async def work() -> None:
        for operation in left:
            await operation

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_WORKERS):
            tasks.create_task(work())


# The others


def _peer_keys(
    parameters: MemoryParameters, peer: EtcdKv | RedisKv, place: Path, group: ProcessGroup
) -> Sequence[Report]:
    """Put the same keys into another system; one row that says so where it is not installed."""
    found = peer.find()
    if isinstance(found, Missing):
        return [{"what": f"keys of {peer.name}", "missing": found.reason}]
    peer.start(place, group)
    rows: Rows = []
    keys, value, before = _key_names(), bytes(VALUE_BYTES), 0
    first_bytes = max(resident_bytes(process.pid) for process in group.processes)
    for count in sorted(parameters.keys):
        peer.put_keys(islice(keys, count - before), value)
        before = count
        largest_bytes = max(resident_bytes(process.pid) for process in group.processes)
        each_bytes = round((largest_bytes - first_bytes) / count - KEY_BYTES - VALUE_BYTES)
        rows.append({"what": f"{count:,} keys of {peer.name}", "leader_bytes": largest_bytes, "each_bytes": each_bytes})
    return rows


def print_memory(report: Report) -> None:
    """Print a row for each amount."""
    table = Table("what", "leader, MiB", "follower, MiB", "each, bytes beside its own", title="resident memory")
    for row in report["rows"]:
        if "missing" in row:
            table.add_row(row["what"], f"not measured: {row['missing']}", "", "")
            continue
        each = row["each_bytes"]
        table.add_row(
            row["what"],
            f"{row['leader_bytes'] / (1 << 20):,.1f}",
            f"{row['follower_bytes'] / (1 << 20):,.1f}" if "follower_bytes" in row else "",
            "" if each is None else f"{each:,}",
        )
    Console().print(table)
