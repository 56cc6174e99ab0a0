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
from typing import Final

from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.member_status import MemberStatus

from ..logs.long_log import LongLog, lengthen_log
from ..machine.data_directory import data_directory
from ..machine.environment import describe, node_settings
from ..rig.member_log import Event, RigMemberLog, event_time_s
from ..rig.member_status import wait_for_status
from ..rig.processes import ClusterProcesses, ManagedProcess, ProcessError
from ..services import ECHO_SERVICE
from ..statistics.report import Report, progress_line

REPLAY_TARGET_PER_S: Final = 1_500_000
IN_SERVICE_TARGET_S: Final = 15.0
MEMORY_TARGET_MIB: Final = 120.0

_LIMIT_S: Final = 300.0
_STOP_TIMEOUT_S: Final = 30.0


@dataclass(slots=True, frozen=True, kw_only=True)
class ReplayParameters:
    """What one benchmark does.

    Raises:
        ConfigurationError: values that make no run.
    """

    log_mib: int = 1024
    payload: int = 32
    runs: int = 3
    file_sync_level: int = 1
    node_settings: Mapping[str, str] = field(default_factory=dict)
    """More settings for `trimaran node`, by name."""

    def __post_init__(self) -> None:
        if self.log_mib < 1 or self.runs < 1:
            raise ConfigurationError(f"log_mib={self.log_mib} runs={self.runs} expected at least 1")
        if self.payload < 8:
            raise ConfigurationError(f"payload={self.payload} expected at least 8 bytes")


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
        progress.describe("a member's first start")
        _start_once(data_dir, given)
        progress.describe(f"making a log of {parameters.log_mib} MiB")
        member_directory = data_dir / "member-0"
        log = asyncio.run(
            lengthen_log(
                member_directory,
                parameters.log_mib << 20,
                payload=parameters.payload,
                begin_ms=time.time_ns() // 1_000_000,
            )
        )
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


def _start_once(data_dir: Path, given: Mapping[str, str]) -> None:
    """Let the member make its files and lead for a moment."""
    with ClusterProcesses(data_dir, ECHO_SERVICE, 1, settings=given) as cluster:
        _wait_in_service(cluster, position=1)
        _stop(cluster.members[0])


def _start(data_dir: Path, given: Mapping[str, str], log: LongLog) -> ReplayRun:
    """Start the member on its log and stop it when it has delivered all."""
    printed = RigMemberLog.at_end(data_dir / "member-0.log")
    begin_ns = time.monotonic_ns()
    with ClusterProcesses(data_dir, ECHO_SERVICE, 1, settings=given) as cluster:
        _wait_in_service(cluster, position=log.stop_position)
        in_service_s = (time.monotonic_ns() - begin_ns) / 1e9
        end_s = time.time()
        member = cluster.members[0]
        memory, cpu_s = _memory_mib(member), member.cpu_seconds()
        _stop(member)
    replay_s = end_s - _begin_of_replay_s(printed)
    return ReplayRun(
        in_service_s=round(in_service_s, 3),
        replay_s=round(replay_s, 3),
        messages_per_s=round(log.message_count / replay_s),
        idle_mib=memory["VmRSS"],
        peak_mib=memory["VmHWM"],
        cpu_s=round(cpu_s, 2),
    )


def _wait_in_service(cluster: ClusterProcesses, *, position: int) -> None:
    """Wait until the member leads and has delivered the log up to `position`."""

    def is_so(status: MemberStatus) -> bool:
        return status.role == "LEADER" and status.delivered_position >= position

    asyncio.run(wait_for_status(cluster, 0, is_so, time_limit_s=_LIMIT_S))


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


def _stop(member: ManagedProcess) -> None:
    """End the member in order, so that the next start has nothing to repair."""
    member.popen.terminate()
    member.popen.wait(_STOP_TIMEOUT_S)
