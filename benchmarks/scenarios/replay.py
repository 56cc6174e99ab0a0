"""Start-up with a long log: how fast a node gets it through its service, and what memory it takes with it behind it.

A one-member cluster is started on a log without a snapshot, so all of it is replayed. Measured is the time from the
start of the process until the member leads and has delivered everything; its replay, by the times in its own log; and
the resident memory of the idle node afterwards. Between runs the log grows by one term's first entry and nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import typer

from ..logs.long_log import LongLog, make_long_logs
from ..machine.data_directory import data_directory
from ..machine.environment import describe, node_settings
from ..options import Payload, Settings, SyncLevel
from ..rig.member_log import Event, RigMemberLog, event_time_s
from ..rig.member_status import wait_until_delivered
from ..rig.processes import ClusterProcesses, ManagedProcess, ProcessError
from ..services import ECHO_SERVICE
from ..statistics.report import Report, progress_line

REPLAY_TARGET_PER_S: Final = 1_500_000
IN_SERVICE_TARGET_S: Final = 15.0
MEMORY_TARGET_MIB: Final = 120.0

_LIMIT_S: Final = 300.0


@dataclass(slots=True, frozen=True, kw_only=True)
class ReplayParameters:
    """Parameters of one benchmark."""

    log_mib: Annotated[int, typer.Option(min=1, help="Length of the log that is replayed, in MiB.")] = 1024
    payload: Payload = 32
    runs: Annotated[int, typer.Option(min=1, help="Starts, one after another.")] = 3
    file_sync_level: SyncLevel = 1
    node_settings: Settings = field(default_factory=dict)


@dataclass(slots=True, frozen=True, kw_only=True)
class ReplayRun:
    """One start. Times in seconds."""

    in_service_s: float
    """From the start of the process until it leads and has delivered all."""
    replay_s: float
    """From the end of its canvass to the end of the delivery, by its own log and the look that found it."""
    messages_per_s: int
    idle_mib: float
    """Resident memory of the node when it has delivered all."""
    peak_mib: float
    """The most it ever had."""
    cpu_s: float


def run(parameters: ReplayParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, or something took too long.
    """
    given = {"file_sync_level": str(parameters.file_sync_level), **parameters.node_settings}
    with data_directory(directory, "replay", keep=keep) as data_dir, progress_line(parameters.runs) as progress:
        progress.describe(f"making a log of {parameters.log_mib} MiB")
        member = ClusterProcesses(data_dir, ECHO_SERVICE, 1, settings=given)
        log = make_long_logs(member, parameters.log_mib << 20, payload=parameters.payload)
        runs = []
        for number in range(parameters.runs):
            progress.describe(f"start {number + 1}/{parameters.runs}")
            runs.append(_start(data_dir, given, log))
            progress.update(number + 1)
        environment = describe(data_dir)
    return {
        "scenario": "replay",
        "messages_per_s": median(run.messages_per_s for run in runs),
        "messages_per_s_target": REPLAY_TARGET_PER_S,
        "in_service_s": round(median(run.in_service_s for run in runs), 2),
        "in_service_target_s": IN_SERVICE_TARGET_S,
        "idle_mib": round(max(run.idle_mib for run in runs), 1),
        "idle_target_mib": MEMORY_TARGET_MIB,
        "peak_mib": round(max(run.peak_mib for run in runs), 1),
        "messages": log.message_count,
        "log_bytes": log.stop_position - log.start_position,
        "runs": [asdict(run) for run in runs],
        "parameters": asdict(parameters),
        "environment": {**environment, **node_settings(("checksums", "file_sync_level"), given)},
    }


def _start(data_dir: Path, given: Mapping[str, str], log: LongLog) -> ReplayRun:
    """Start the member on its log and stop it when it has delivered all."""
    printed = RigMemberLog.at_end(data_dir / "member-0.log")
    begin_ns = time.monotonic_ns()
    with ClusterProcesses(data_dir, ECHO_SERVICE, 1, settings=given) as cluster:
        asyncio.run(wait_until_delivered(cluster, log.stop_position, time_limit_s=_LIMIT_S))
        in_service_s = (time.monotonic_ns() - begin_ns) / 1e9
        end_s = time.time()
        member = cluster.members[0]
        memory, cpu_s = _memory_mib(member), member.cpu_seconds()
    replay_s = end_s - _begin_of_replay_s(printed)
    return ReplayRun(
        in_service_s=round(in_service_s, 3),
        replay_s=round(replay_s, 3),
        messages_per_s=round(log.message_count / replay_s),
        idle_mib=memory["VmRSS"],
        peak_mib=memory["VmHWM"],
        cpu_s=round(cpu_s, 2),
    )


def _begin_of_replay_s(printed: RigMemberLog) -> float:
    """When the member had taken the lead of its election, from which on its log is replayed."""
    found: list[Event] = printed.events("election.state_changed", new="LEADER_REPLAY")
    if not found:
        raise ProcessError(f"the member never replayed its log; see {printed.path}")
    return event_time_s(found[0])


def _memory_mib(member: ManagedProcess) -> dict[str, float]:
    """Read the resident memory of a process, now and at most, in MiB."""
    lines = Path(f"/proc/{member.pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: round(int(fields[name].split()[0]) / 1024, 1) for name in ("VmRSS", "VmHWM")}
