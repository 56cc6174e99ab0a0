"""Snapshots under load: how long a cluster with much state stands still, and for whom, while it takes one.

A client offers small messages at a steady rate. Three things are looked at around each snapshot: the time between two
client messages in the leader's log (its ingress), the time between two replies at the client (delivery), and the
longest that a member's loop was busy with one thing. The log is read afterwards, so looking costs nothing; its times
are in milliseconds.

The state is orders, written in each of the ways of `services.orders`, one after the other, on a cluster of its own. At
the end a follower is killed, and starts again from its snapshot. A way that cannot be measured is noted with its
reason, and the others go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from ...client import ClientConfig, ClusterClient
from ...service_api.errors import ClusterError, ClusterTimeoutError, ConfigurationError, first_leaf
from ...service_api.wire.session import EventCode
from ..load.echo import SEQUENCE
from ..load.ticker import Ticker
from ..machine.data_directory import data_directory, measurement_directory
from ..machine.environment import describe, node_settings, tune_garbage_collector
from ..options import Members, Settings, SyncLevel
from ..rig.member_log import Event, RigMemberLog, event_time_s
from ..rig.member_status import consensus_endpoint
from ..rig.processes import ClusterProcesses, ProcessError, ProcessGroup
from ..services import ORDERS_SERVICES
from ..services.orders import ORDERS_PER_FILL, OrdersByMessage
from ..statistics.report import ProgressLine, Report, progress_line

STOP_TARGETS_MS: Final = {"pieces": 2_000.0, "copy": 100.0}
"""How long delivery may stand still with `TARGET_ORDERS`: with the helper, and with the concurrent way."""
LOAD_TARGET_S: Final = 5.0
TARGET_ORDERS: Final = 2_000_000
"""The state that the targets are for."""

_LIMIT_S: Final = 120.0
_STEADY_S: Final = 2.0
"""Of traffic before and after a snapshot."""


@dataclass(slots=True, frozen=True, kw_only=True)
class SnapshotsParameters:
    """Parameters of one benchmark.

    Raises:
        ConfigurationError: there is no way of such a name.
    """

    orders: Annotated[int, typer.Option(min=1, help="Orders that the service holds.")] = TARGET_ORDERS
    ways: Annotated[tuple[str, ...], typer.Option(help="How it writes them, one after the other.")] = tuple(
        ORDERS_SERVICES
    )
    runs: Annotated[int, typer.Option(min=1, help="Snapshots of each way, of which the worst counts.")] = 3
    members: Members = 3
    rate: Annotated[float, typer.Option(min=1, max=10_000, help="Messages a second that the client offers.")] = 1_000.0
    file_sync_level: SyncLevel = 1
    node_settings: Settings = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not {*self.ways} <= {*ORDERS_SERVICES}:
            raise ConfigurationError(f"ways={','.join(self.ways)} expected some of {','.join(ORDERS_SERVICES)}")


@dataclass(slots=True, frozen=True, kw_only=True)
class SnapshotRun:
    """One snapshot. Times in milliseconds."""

    member_ms: dict[int, int]
    """How long each member took, by its own log."""
    member_stop_ms: dict[int, int]
    """Of that, how long its delivery stood still."""
    reply_gap_ms: float
    """The longest time without a reply, from the request until a while after."""
    steady_reply_gap_ms: float
    """The same before the request."""
    begin_ns: int
    end_ns: int
    """Time of day of the request, and of the end of what was looked at."""


class SteadyLoad:
    """Offers numbered messages and notes when each reply comes."""

    def __init__(self, rate_per_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._sent = 0
        self._awaited_count, self._awaited = 0, asyncio.Event()
        self.reply_times_ns: list[int] = []

    async def wait_replied(self, count: int) -> None:
        """Wait until there were so many replies."""
        self._awaited_count = count
        self._awaited.clear()
        if len(self.reply_times_ns) < count:
            await self._awaited.wait()

    async def run(self, cluster: ClusterClient) -> None:
        """Offer until cancelled; while nothing can be taken, nothing is offered."""
        with Ticker(1 / self._rate_per_s) as ticker:
            while True:
                await ticker.wait()
                if cluster.try_offer(SEQUENCE.pack(self._sent)):
                    self._sent += 1

    def longest_gap_ms(self, begin_ns: int, end_ns: int) -> float:
        """Find the longest time without a reply, by the monotonic clock."""
        return longest_gap(self.reply_times_ns, begin_ns, end_ns) / 1e6

    # The listener

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Take a reply."""
        self.reply_times_ns.append(time.monotonic_ns())
        if len(self.reply_times_ns) == self._awaited_count:
            self._awaited.set()

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Nothing: who leads is of no matter here."""

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """Nothing: a session that ends fails the next offer."""


def longest_gap(times: Sequence[int], begin: int, end: int) -> int:
    """Find the longest time between two of `times` within [begin, end], its ends included."""
    within = [begin, *(at for at in times if begin <= at <= end), end]
    return max(after - before for before, after in pairwise(within))


def run(parameters: SnapshotsParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Measure every way; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: not one way could be measured.
    """
    given = {"file_sync_level": str(parameters.file_sync_level), **parameters.node_settings}
    found: dict[str, Report] = {}
    failures: dict[str, str] = {}
    with (
        data_directory(directory, "snapshots", keep=keep) as data_dir,
        progress_line(parameters.runs * len(parameters.ways)) as progress,
    ):
        environment = describe(data_dir)
        for way in parameters.ways:
            progress.describe(f"{parameters.orders:,} orders, {way}: filling the state")
            try:
                with measurement_directory(data_dir / way, keep=keep) as place, ProcessGroup() as group:
                    processes = ClusterProcesses(
                        place, ORDERS_SERVICES[way], parameters.members, settings=given, group=group
                    )
                    found[way] = uvloop.run(_measure(parameters, processes, progress))
            except (ClusterError, BaseExceptionGroup) as error:
                leaf = first_leaf(error)
                if not isinstance(leaf, ClusterError):
                    raise leaf from error
                failures[way] = str(leaf).splitlines()[0]
    if not found:
        raise ClusterError(f"no way could be measured: {next(iter(failures.values()))}")
    return {
        "scenario": "snapshots",
        "ways": found,
        "failures": failures,
        "parameters": asdict(parameters),
        "environment": {**environment, **node_settings(("segment_length_bytes", "keep_all"), given)},
    }


async def _measure(parameters: SnapshotsParameters, processes: ClusterProcesses, progress: ProgressLine) -> Report:
    for member_id in range(parameters.members):
        processes.start_member(member_id)
    load = SteadyLoad(parameters.rate)
    runs: list[SnapshotRun] = []
    config = ClientConfig(endpoints=tuple(processes.ingress_endpoints), connect_timeout_s=_LIMIT_S)
    async with ClusterClient.connect([], egress_listener=load, config=config) as client, asyncio.TaskGroup() as tasks:
        tune_garbage_collector()
        await fill_state(client, load, [OrdersByMessage.fill] * -(-parameters.orders // ORDERS_PER_FILL))
        traffic = tasks.create_task(load.run(client))
        for number in range(parameters.runs):
            progress.describe(f"snapshot {number + 1}/{parameters.runs}")
            runs.append(await _take(client, load, processes))
        leader_id = client.leader_member_id
        stalls = await _loop_stalls(processes)
        traffic.cancel()
    progress.describe("a follower starts again")
    restart = await _restart(processes, next(iter(set(processes.members) - {leader_id}), leader_id))
    processes.group.stop()
    appended_ns = await asyncio.to_thread(_append_times, processes.directory_of(leader_id))
    ingress_gaps = [longest_gap(appended_ns, run.begin_ns, run.end_ns) / 1e6 for run in runs]
    return {
        "delivery_stop_max_ms": max(max(run.member_stop_ms.values()) for run in runs),
        "reply_stop_max_ms": round(max(run.reply_gap_ms for run in runs), 1),
        "reply_stop_steady_max_ms": round(max(run.steady_reply_gap_ms for run in runs), 1),
        "ingress_stop_max_ms": round(max(ingress_gaps), 1),
        "loop_stop_max_ms": round(max(stalls.values()) * 1e3, 1),
        "snapshot_max_ms": max(max(run.member_ms.values()) for run in runs),
        **restart,
    }


async def fill_state(client: ClusterClient, load: SteadyLoad, fills: Sequence[bytes]) -> None:
    """Let the state grow, a message at a time; `load` is the listener of the client."""
    async with asyncio.timeout(_LIMIT_S):
        for number, fill in enumerate(fills, start=1):
            await client.offer(fill)
            await load.wait_replied(number)


async def _take(client: ClusterClient, load: SteadyLoad, processes: ClusterProcesses) -> SnapshotRun:
    """Wait a while, ask for a snapshot, and wait until every member has it, and a while longer."""
    logs = {i: RigMemberLog.at_end(processes.log_path_of(i)) for i in processes.members}
    steady_ns = time.monotonic_ns()
    await asyncio.sleep(_STEADY_S)
    processes.check_running()
    wall_ns, begin_ns = time.time_ns(), time.monotonic_ns()
    log_position = await request_snapshot(processes, client.leader_member_id)
    taken = await wait_taken(logs, log_position)
    await asyncio.sleep(_STEADY_S)
    end_ns = time.monotonic_ns()
    return SnapshotRun(
        member_ms={i: event["duration_ms"] for i, event in taken.items()},
        member_stop_ms={i: event["stop_ms"] for i, event in taken.items()},
        reply_gap_ms=round(load.longest_gap_ms(begin_ns, end_ns), 1),
        steady_reply_gap_ms=round(load.longest_gap_ms(steady_ns, begin_ns), 1),
        begin_ns=wall_ns,
        end_ns=wall_ns + end_ns - begin_ns,
    )


async def request_snapshot(processes: ClusterProcesses, leader_id: int) -> int:
    """Have the leader's cluster take a snapshot; return its log position once the leader has it.

    Raises:
        ProcessError: none was taken.
    """
    from ...cluster.core.vocabulary.control_toggle import ActionStep
    from ...cluster.documents.operations import Operation, run_operation

    last = None
    async with aclosing(run_operation(consensus_endpoint(processes, leader_id), Operation.SNAPSHOT, _LIMIT_S)) as steps:
        async for step in steps:
            last = step
    if last is None or last.step is not ActionStep.DONE or last.log_position is None:
        raise ProcessError(f"no snapshot was taken: {last!r}")
    return last.log_position


async def wait_taken(logs: Mapping[int, RigMemberLog], log_position: int) -> dict[int, Event]:
    """Wait until each member has the snapshot; give what it says of it.

    Raises:
        ClusterTimeoutError: one has not within two minutes.
    """
    try:
        async with asyncio.timeout(_LIMIT_S):
            while True:
                found = {i: log.events("snapshot.taken", log_position=log_position) for i, log in logs.items()}
                if all(found.values()):
                    return {i: events[0] for i, events in found.items()}
                await asyncio.sleep(0.2)
    except TimeoutError as error:
        raise ClusterTimeoutError(f"waited {_LIMIT_S:g} s for every member's snapshot at {log_position}") from error


async def _restart(processes: ClusterProcesses, member_id: int) -> dict[str, float]:
    """Kill a member, start it again, and wait until its service has its state; say how long that takes."""
    processes.kill_member(member_id)
    log = RigMemberLog.at_end(processes.log_path_of(member_id))
    begin_s = time.time()
    member = processes.start_member(member_id)
    try:
        async with asyncio.timeout(_LIMIT_S):
            while not (started := log.events("node.started")):
                member.check_running()
                await asyncio.sleep(0.2)
    except TimeoutError as error:
        raise ClusterTimeoutError(f"waited {_LIMIT_S:g} s for member {member_id} to start again") from error
    loaded = log.events("snapshot.loaded")
    if not loaded:
        raise ProcessError(f"the member loaded no snapshot; see {log.path}")
    end_s = event_time_s(started[0])
    return {"restart_s": round(end_s - begin_s, 2), "load_s": round(end_s - event_time_s(loaded[0]), 2)}


async def _loop_stalls(processes: ClusterProcesses) -> dict[int, float]:
    """Ask every member for the longest that its loop was busy with one thing since it began, in seconds."""
    from ...cluster.documents.query import query_status

    endpoints = {i: consensus_endpoint(processes, i) for i in processes.members}
    return {i: (await query_status(endpoint, _LIMIT_S)).stall_max_s for i, endpoint in endpoints.items()}


def _append_times(directory: Path) -> list[int]:
    """Read from a stopped member's log when each client message was appended, in nanoseconds of the time of day."""
    from ...archive.files.reader import MessageReader
    from ...cluster.cli.demo.recordings import find_log_recording
    from ...service_api.wire.session import (
        SESSION_HEADER_LENGTH,
        SESSION_MESSAGE_HEADER,
        SessionMessageHeader,
    )

    recording = find_log_recording(directory)
    wanted = SessionMessageHeader.SCHEMA_ID, SessionMessageHeader.TEMPLATE_ID
    times = []
    for message in MessageReader(recording.log.reader()):
        if len(message.payload) >= SESSION_HEADER_LENGTH:
            _, template_id, schema_id, _, _, _, timestamp = SESSION_MESSAGE_HEADER.unpack_from(message.payload)
            if (schema_id, template_id) == wanted:
                times.append(timestamp * 1_000_000)
    return times


def print_ways(report: Report) -> None:
    """Print a column for each way, and what could not be measured."""
    table = Table("figure", *report["ways"], title=f"snapshots: {report['parameters']['orders']:,} orders")
    for name in next(iter(report["ways"].values())):
        table.add_row(name, *(f"{found[name]:,}" for found in report["ways"].values()))
    console = Console()
    console.print(table)
    for way, reason in report["failures"].items():
        console.print(f"{way} not measured: {reason}", highlight=False)
