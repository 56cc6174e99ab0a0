"""Catch-up under load: how fast a member that was away copies what it missed, and what the others' clients feel.

Three members stop, and the logs of two of them grow by as many bytes as are to be missed, the same ones. These two
elect a leader and get them through their services. Then a client offers messages at a steady rate, open loop, twice for
as long: once with the third member still away, once while it comes back. Its own log says when it began to copy and
when it was done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from ...service_api.errors import first_leaf
from ..load.client_process import ClientParameters
from ..load.coordination import run_clients
from ..logs.long_log import LongLog, make_long_logs
from ..machine.data_directory import data_directory
from ..machine.environment import describe, node_settings
from ..options import Settings, SyncLevel, Tls
from ..rig.member_log import Event, RigMemberLog, event_time_s
from ..rig.member_status import wait_until_delivered
from ..rig.processes import ClusterProcesses, ProcessGroup
from ..services import ECHO_SERVICE
from ..statistics.histogram import Histogram
from ..statistics.report import ProgressLine, Report, progress_line

RATE_TARGET_MB_PER_S: Final = 200.0
P99_RATIO_TARGET: Final = 2.0

_MEMBERS: Final = 3
_AWAY: Final = 2
"""The member that is away."""

_LIMIT_S: Final = 300.0
_COPY_STATES: Final = ("FOLLOWER_LOG_REPLICATION", "FOLLOWER_CATCHUP")


@dataclass(slots=True, frozen=True, kw_only=True)
class CatchupParameters:
    """Parameters of one benchmark."""

    missed_mib: Annotated[int, typer.Option(min=1, help="How much the member has missed, in MiB.")] = 1024
    missed_payload: Annotated[int, typer.Option(min=8, help="Bytes in a message of that.")] = 1024
    rate: Annotated[float, typer.Option(min=1, help="Messages of 32 bytes a second, offered meanwhile.")] = 100_000.0
    seconds: Annotated[
        float, typer.Option(min=0.1, help="For how long, with the member away and again with it back.")
    ] = 10.0
    file_sync_level: SyncLevel = 1
    tls: Tls = False
    node_settings: Settings = field(default_factory=dict)


def run(parameters: CatchupParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, or something took too long.
    """
    given = {"file_sync_level": str(parameters.file_sync_level), **parameters.node_settings}
    total = round(2 * parameters.rate * parameters.seconds)
    with data_directory(directory, "catchup", keep=keep) as data_dir, progress_line(total) as progress:
        environment = describe(data_dir)
        progress.describe(f"making logs of {parameters.missed_mib} MiB")
        log = make_long_logs(
            ClusterProcesses(data_dir, ECHO_SERVICE, _MEMBERS, settings=given, with_tls=parameters.tls),
            parameters.missed_mib << 20,
            payload=parameters.missed_payload,
            member_ids=[member_id for member_id in range(_MEMBERS) if member_id != _AWAY],
        )
        try:
            report = asyncio.run(_measure(parameters, data_dir, given, log, progress))
        except BaseExceptionGroup as group:
            raise first_leaf(group) from group
    report["environment"] = {**environment, **node_settings(("checksums", "segment_length_bytes"), given)}
    return report


async def _measure(
    parameters: CatchupParameters, data_dir: Path, given: Mapping[str, str], log: LongLog, progress: ProgressLine
) -> Report:
    with ProcessGroup() as group:
        cluster = ClusterProcesses(
            data_dir, ECHO_SERVICE, _MEMBERS, settings=given, group=group, with_tls=parameters.tls
        )
        for member_id in range(_MEMBERS):
            if member_id != _AWAY:
                cluster.start_member(member_id)
        progress.describe("replaying the logs")
        await wait_until_delivered(cluster, log.stop_position, time_limit_s=_LIMIT_S)
        steady = await _offer(parameters, cluster, group, progress, data_dir)
        printed = RigMemberLog.at_end(cluster.log_path_of(_AWAY))
        cluster.start_member(_AWAY)
        meanwhile = await _offer(parameters, cluster, group, progress, data_dir)
        await wait_until_delivered(cluster, log.stop_position, member_ids=[_AWAY], time_limit_s=_LIMIT_S)
    copy_s, copied_bytes = _copy_of(printed)
    p99_ms, steady_p99_ms = (latencies.percentile_ns(99.0) / 1e6 for latencies in (meanwhile, steady))
    return {
        "scenario": "catchup",
        "megabytes_per_s": round(copied_bytes / copy_s / 1e6, 1),
        "megabytes_per_s_target": RATE_TARGET_MB_PER_S,
        "p99_ratio": round(p99_ms / steady_p99_ms, 2),
        "p99_ratio_target": P99_RATIO_TARGET,
        "p99_ms": round(p99_ms, 2),
        "p99_without_ms": round(steady_p99_ms, 2),
        "max_ms": round(meanwhile.max_ns / 1e6, 1),
        "max_without_ms": round(steady.max_ns / 1e6, 1),
        "copied_bytes": copied_bytes,
        "copy_s": round(copy_s, 3),
        "parameters": asdict(parameters),
    }


async def _offer(
    parameters: CatchupParameters,
    cluster: ClusterProcesses,
    group: ProcessGroup,
    progress: ProgressLine,
    data_dir: Path,
) -> Histogram:
    """Offer messages at the rate for the time, and give their latencies from the intended send times."""
    client = ClientParameters(
        endpoints=cluster.ingress_endpoints,
        payload_length=32,
        inflight=1024,
        warmup_count=1_000,
        message_count=round(parameters.rate * parameters.seconds),
        rate_per_s=parameters.rate,
        connect_timeout_s=_LIMIT_S,
        tls=None if cluster.client_tls is None else asdict(cluster.client_tls),
    )
    results, _ = await run_clients([client], cluster, group, progress, data_dir=data_dir, time_limit_s=_LIMIT_S)
    return Histogram.from_json(results[0]["latencies"])


def _copy_of(printed: RigMemberLog) -> tuple[float, int]:
    """Read from a member's log how long it copied, in seconds, and how many bytes, until it followed the live log."""
    changes: list[Event] = printed.events("election.state_changed")
    begun = next(change for change in changes if change["new"] in _COPY_STATES)
    ended = printed.events("election.closed")[0]
    length_bytes = ended["log_position"] - begun["append_position"]
    return event_time_s(ended) - event_time_s(begun), length_bytes
