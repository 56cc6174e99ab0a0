"""Groups: what one, two and four groups give together, with the same number of messages in flight in all.

Three members with all their groups run on this machine, as `trimaran node --groups N` starts them, and one client
process has a session with each group. Rounds are interleaved, so that what else the machine does is shared out. On as
many cores as there are busy processes more groups give more; on fewer they must not give less.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import typer
import uvloop

from ...client import ClientConfig, ClusterClient
from ...client.groups.group_table import group_config
from ...cluster.documents.query import StatusQueryError, query_status
from ...cluster.settings.groups import group_member
from ...cluster.settings.member_endpoints import MemberEndpoints
from ...service_api.documents.member_status import MemberStatus
from ...service_api.errors import ClusterTimeoutError, ConfigurationError
from ...service_api.groups.group import GROUP_COUNT_MAX, Group
from ..load.echo import EchoLoad
from ..machine.data_directory import data_directory
from ..machine.environment import describe, tune_garbage_collector
from ..options import Payload, Rounds, SyncLevel, TimeLimit
from ..rig.meter import Usage
from ..rig.processes import ClusterProcesses, find_base_ports
from ..services import ECHO_SERVICE
from ..statistics.histogram import Histogram
from ..statistics.report import Report

_MEMBERS: Final = 3
_CONNECT_TIMEOUT_S: Final = 30.0
_ASK_TIMEOUT_S: Final = 5.0
_LOOK_INTERVAL_S: Final = 0.2


@dataclass(slots=True, frozen=True, kw_only=True)
class GroupsParameters:
    """Parameters of one run.

    Raises:
        ConfigurationError: groups would have no message in flight.
    """

    counts: Annotated[tuple[int, ...], typer.Option(min=1, help="Numbers of groups, one row for each.")] = (1, 2, 4)
    payload: Payload = 32
    inflight: Annotated[int, typer.Option(min=1, help="Messages in flight, over all groups.")] = 1024
    messages: Annotated[int, typer.Option(min=1, help="Messages of a round, over all groups.")] = 200_000
    rounds: Rounds = 3
    file_sync_level: SyncLevel = 1
    time_limit_s: TimeLimit = 600.0

    def __post_init__(self) -> None:
        if max(self.counts) > min(GROUP_COUNT_MAX, self.inflight, self.messages):
            raise ConfigurationError(
                f"counts={self.counts} expected at most {GROUP_COUNT_MAX}, inflight={self.inflight} and "
                f"messages={self.messages}"
            )


def run(parameters: GroupsParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, or the time was up.
    """
    rounds: dict[int, list[Report]] = {count: [] for count in parameters.counts}
    with ExitStack() as stack:
        data_dir = stack.enter_context(data_directory(directory, "groups", keep=keep))
        for number in range(parameters.rounds):
            for count in parameters.counts:
                place = data_dir / f"round-{number}-groups-{count}"
                settings = {"file_sync_level": str(parameters.file_sync_level), "groups": str(count)}
                cluster = ClusterProcesses(place, ECHO_SERVICE, _MEMBERS, settings=settings)
                cluster.base_ports = find_base_ports(_MEMBERS, group_count=count)
                with cluster:
                    rounds[count].append(uvloop.run(_measure(parameters, cluster, count)))
        environment = describe(data_dir)
    figures = {f"{count} groups," if count > 1 else "1 group,": _medians(found) for count, found in rounds.items()}
    return {
        "scenario": "groups",
        **figures,
        "runs": {str(count): found for count, found in rounds.items()},
        "parameters": asdict(parameters),
        "environment": environment,
    }


def _medians(found: list[Report]) -> Report:
    return {name: round(median(each[name] for each in found), 1) for name in found[0]}


async def _measure(parameters: GroupsParameters, cluster: ClusterProcesses, count: int) -> Report:
    tune_garbage_collector()
    try:
        async with asyncio.timeout(parameters.time_limit_s):
            members = [await _wait_for_leader(cluster, Group(i, count)) for i in range(count)]
            return await _measure_groups(parameters, cluster, members)
    except TimeoutError as error:
        raise ClusterTimeoutError(f"benchmark not done: time_limit_s={parameters.time_limit_s:g}") from error


async def _wait_for_leader(cluster: ClusterProcesses, group: Group) -> list[MemberStatus]:
    """Wait until a group is led by the member that is preferred, with all others; gives the leader's status first."""
    preferred_id = group.index % _MEMBERS if group.count > 1 else None
    while True:
        cluster.check_running()
        found = [await _ask(cluster, group, member_id) for member_id in range(_MEMBERS)]
        statuses = [status for status in found if status is not None]
        leaders = [status for status in statuses if status.state == "LEADER"]
        followers = [status for status in statuses if status.state == "FOLLOWER"]
        if len(leaders) == 1 and len(followers) == _MEMBERS - 1 and preferred_id in (None, leaders[0].member_id):
            return leaders + followers
        await asyncio.sleep(_LOOK_INTERVAL_S)


async def _ask(cluster: ClusterProcesses, group: Group, member_id: int) -> MemberStatus | None:
    member = MemberEndpoints.from_base(member_id, f"127.0.0.1:{cluster.base_ports[member_id]}")
    try:
        return await query_status(group_member(member, group.index).consensus, _ASK_TIMEOUT_S)
    except StatusQueryError:
        return None


async def _measure_groups(
    parameters: GroupsParameters, cluster: ClusterProcesses, members: list[list[MemberStatus]]
) -> Report:
    """Measure all groups at once; `members` are those of each group, the leader first."""
    count = len(members)
    config = ClientConfig(endpoints=tuple(cluster.ingress_endpoints), connect_timeout_s=_CONNECT_TIMEOUT_S)
    loads = [
        EchoLoad(payload_length=parameters.payload, inflight=parameters.inflight // count, rate_per_s=None)
        for _ in range(count)
    ]
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                ClusterClient.connect(egress_listener=load, config=group_config(config, Group(i, count)))
            )
            for i, load in enumerate(loads)
        ]
        per_group = parameters.messages // count
        await _run_all(loads, clients, max(1, per_group // 10))
        leaders, followers = [group[0].pid for group in members], [one.pid for group in members for one in group[1:]]
        before = [_cpu_s(leaders), _cpu_s(followers), time.process_time()]
        histogram = Histogram()
        begun_s = time.monotonic()
        latencies = await _run_all(loads, clients, per_group)
        elapsed_s = time.monotonic() - begun_s
        after = [_cpu_s(leaders), _cpu_s(followers), time.process_time()]
    for each in latencies:
        histogram.record_all(each)
    total = per_group * count
    leader_us, followers_us, client_us = ((end - begin) * 1e6 / total for begin, end in zip(before, after, strict=True))
    return {
        "messages_per_s": round(total / elapsed_s),
        "p50_us": round(histogram.percentile_ns(50) / 1000, 1),
        "p99_us": round(histogram.percentile_ns(99) / 1000, 1),
        "leader_cpu_us": round(leader_us, 2),
        "follower_cpu_us": round(followers_us / (_MEMBERS - 1), 2),
        "client_cpu_us": round(client_us, 2),
    }


async def _run_all(loads: list[EchoLoad], clients: list[ClusterClient], message_count: int) -> list[list[int]]:
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(load.run(client, message_count)) for load, client in zip(loads, clients, strict=True)
        ]
    return [[*task.result().latencies_ns] for task in running]


def _cpu_s(pids: list[int]) -> float:
    return sum(Usage.of_process(pid).cpu_s for pid in pids)
