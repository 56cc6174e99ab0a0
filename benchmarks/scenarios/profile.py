"""Where each microsecond of the peak goes: the leader's, a follower's and the client's processor time by stage.

The echo load at peak runs four times on one cluster. First alone: that gives the rate and the processor time of each
process, user and system, undisturbed. Then beside `perf`, which divides that time between the kernel's system calls,
the event loop, the garbage collector and Python. Then beside `py-spy`, which divides Python's part by stage. Then
its system calls are counted. Profilers take time themselves, so only shares are taken from their runs; how much slower
those were is told. See `stages` for the table, and `shares` for the arithmetic and its error.

Many sessions are of several client processes with equal loads: what the client takes is their sum, and its
shares are those of the first.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.table import Table

from trimaran.service_api.errors import ConfigurationError, first_leaf

from ..load.client_process import ClientParameters
from ..load.coordination import load_figures, run_clients, share
from ..load.echo import SEQUENCE
from ..load.sessions import SESSIONS_PER_PROCESS
from ..machine.data_directory import data_directory
from ..machine.environment import describe, node_settings
from ..profiling.sampling import PERF_RATE_HZ, PYTHON_RATE_HZ, CallMeter, PerfMeter, PythonMeter, Tools, find_tools
from ..profiling.shares import divide
from ..profiling.stages import Stage, native_part_of, python_stage_of
from ..rig.member_status import wait_until_serving
from ..rig.meter import Meter
from ..rig.processes import ClusterProcesses, ProcessGroup, require_connections
from ..services import ECHO_SERVICE
from ..statistics.report import ProgressLine, Report, progress_line
from .scan_bench import session_settings

CORES: Final = 2
"""The bound is given for so many, whatever this machine has."""

_START_LIMIT_S: Final = 60.0
_PHASE_LIMIT_S: Final = 240.0
_CLOSE_LIMIT_S: Final = 60.0
_WARMUP: Final = 50_000
_PHASES: Final = ("alone", "with perf", "with py-spy", "with system calls counted")
CLIENT: Final = "client-0"

_Meter = TypeVar("_Meter", bound=Meter)


@dataclass(slots=True, frozen=True, kw_only=True)
class ProfileParameters:
    """What one run does.

    Raises:
        ConfigurationError: values that make no run.
    """

    members: int = 3
    payload: int = 32
    inflight: int = 1024
    sessions: int | None = None
    """Sessions that the messages in flight go round, on connections of their own; None: one session."""
    seconds: float = 6.0
    """Each of the four runs, about."""
    file_sync_level: int = 1
    node_settings: Mapping[str, str] = field(default_factory=dict)
    """More settings for `trimaran node`, by name."""

    @property
    def client_count(self) -> int:
        """How many client processes there are: as many as may open the files."""
        return 1 if self.sessions is None else -(-self.sessions // SESSIONS_PER_PROCESS)

    def __post_init__(self) -> None:
        if self.members < 1 or self.inflight < 1 or self.seconds <= 0 or self.payload < SEQUENCE.size:
            raise ConfigurationError(
                f"members={self.members} inflight={self.inflight} seconds={self.seconds} payload={self.payload} "
                f"expected at least 1, 1, more than 0 and at least {SEQUENCE.size}"
            )
        if self.sessions is not None and self.sessions < 1:
            raise ConfigurationError(f"sessions={self.sessions} expected at least 1")


def run(parameters: ProfileParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the profile; every process it starts has ended when it returns or raises.

    Raises:
        ConfigurationError: a profiler is missing, or may not look at processes.
        ClusterError: it could not be measured.
    """
    tools = find_tools()
    settings = {"file_sync_level": str(parameters.file_sync_level), **parameters.node_settings}
    if parameters.sessions is not None:
        of_process = -(-parameters.sessions // parameters.client_count)
        require_connections(max(of_process * parameters.members, parameters.sessions))
        # Sessions that could not be closed in time are open until they time out.
        settings = {**session_settings(len(_PHASES) * parameters.sessions), **settings}
    with ExitStack() as stack:
        data_dir = stack.enter_context(data_directory(directory, "profile", keep=keep))
        cluster = stack.enter_context(ClusterProcesses(data_dir, ECHO_SERVICE, parameters.members, settings=settings))
        progress = stack.enter_context(progress_line(len(_PHASES)))
        environment = describe(data_dir)
        asyncio.run(wait_until_serving(cluster, time_limit_s=_START_LIMIT_S))
        profile = _Profile(parameters, cluster, data_dir, tools, progress)
        try:
            figures = profile.run()
        except BaseExceptionGroup as group:
            raise first_leaf(group) from group
    given = {"file_sync_level": parameters.file_sync_level, **parameters.node_settings}
    return {
        "scenario": "profile",
        **figures,
        "parameters": asdict(parameters),
        "environment": {**environment, **node_settings(("file_sync_level", "checksums"), given)},
    }


class _Profile:
    """The four runs on one cluster."""

    def __init__(
        self,
        parameters: ProfileParameters,
        cluster: ClusterProcesses,
        data_dir: Path,
        tools: Tools,
        progress: ProgressLine,
    ) -> None:
        self._parameters = parameters
        self._cluster = cluster
        self._data_dir = data_dir
        self._tools = tools
        self._progress = progress

    def run(self) -> dict[str, Any]:  # JSON
        """Measure alone, with one profiler, with the other, and with system calls counted."""
        alone, _ = self._phase(0, lambda group: Meter(self._cluster))
        leader = alone["leader"]
        followers = [member.name for member in self._cluster.members.values() if member.name != leader]
        roles = {"leader": leader, **dict(zip(("follower",), followers, strict=False)), "client": CLIENT}
        with_perf, perf = self._phase(1, lambda group: PerfMeter(self._tools, self._cluster, group, self._data_dir))
        with_python, python = self._phase(
            2,
            lambda group: PythonMeter(self._tools, self._cluster, group, self._data_dir, tuple(roles.values())),
        )
        counted, calls = self._phase(3, lambda group: CallMeter(self._tools, self._cluster, group, self._data_dir))
        native: dict[str, Counter[tuple[Stage | None, str]]] = {name: Counter() for name in roles.values()}
        for name, frames in perf.samples():
            if name in native:
                native[name][native_part_of(frames)] += 1
        processes = {}
        for role, name in roles.items():
            functions = Counter[tuple[Stage | None, str]]()
            for stack, count in python.stacks(name).items():
                functions[python_stage_of(stack)] += count
            group = [name] if role != "client" else [f"client-{i}" for i in range(self._parameters.client_count)]
            usages = [alone["usage"][each] for each in group]
            cpu_us = sum(alone["cpu_seconds_per_100k"][each] * 10 for each in group)
            processes[role] = {
                "process": name,
                "process_count": len(group),
                "unread_stacks": python.error_count(name),
                "user_us": round(sum(usage["user_s"] for usage in usages) * 1e6 / alone["messages"], 3),
                "system_us": round(sum(usage["system_s"] for usage in usages) * 1e6 / alone["messages"], 3),
                **divide(cpu_us, native[name], functions),
            }
        rates = {"perf": with_perf["throughput_msgs_per_s"], "py_spy": with_python["throughput_msgs_per_s"]}
        return {
            "throughput_msgs_per_s": alone["throughput_msgs_per_s"],
            "with_profiler_msgs_per_s": rates,
            "processes": processes,
            "bound": _bound(alone),
            "system_calls_per_1000_messages": _calls_per_1000(calls.system_calls(), counted["messages"], roles),
            "sampling_hz": {"perf": PERF_RATE_HZ, "py_spy": PYTHON_RATE_HZ},
            "alone": alone,
        }

    def _phase(self, number: int, make_meter: Callable[[ProcessGroup], _Meter]) -> tuple[Report, _Meter]:
        """Run the load once, with a meter made for the group of its client."""
        self._progress.update(number)
        self._progress.describe(f"the load, {_PHASES[number]}")
        told, count = self._parameters, self._parameters.client_count
        parameters = [
            ClientParameters(
                endpoints=self._cluster.ingress_endpoints,
                payload_length=told.payload,
                inflight=share(told.inflight, count, index),
                warmup_count=_WARMUP // count,
                message_count=_WARMUP // count,
                rate_per_s=None,
                connect_timeout_s=_START_LIMIT_S,
                session_count=None if told.sessions is None else share(told.sessions, count, index),
                measure_s=told.seconds,
            )
            for index in range(count)
        ]
        with ProcessGroup() as group:
            meter = make_meter(group)
            results, _ = asyncio.run(
                run_clients(
                    parameters,
                    self._cluster,
                    group,
                    self._progress,
                    data_dir=self._data_dir,
                    time_limit_s=_PHASE_LIMIT_S,
                    meter=meter,
                )
            )
            if told.sessions is not None:
                self._progress.describe("closing the sessions")
                _wait_ended(group)
        return load_figures(results, meter.used), meter


def _wait_ended(clients: ProcessGroup) -> None:
    """Let client processes close their sessions: those that they leave open would end in the middle of the next run."""
    deadline_s = time.monotonic() + _CLOSE_LIMIT_S
    for client in clients.processes:
        with suppress(subprocess.TimeoutExpired):
            client.popen.wait(max(deadline_s - time.monotonic(), 0.0))


def _bound(alone: Report) -> dict[str, float]:
    """What all processes take together for a message, and the rate at which that would fill the cores."""
    cpu_us = sum(alone["cpu_seconds_per_100k"].values()) * 10
    bound = CORES * 1e6 / cpu_us
    return {
        "cores": CORES,
        "cpu_us_per_message": round(cpu_us, 3),
        "msgs_per_s_at_100_percent": round(bound),
        "share_of_bound": round(alone["throughput_msgs_per_s"] / bound, 3),
    }


def _calls_per_1000(
    counts: Mapping[str, Mapping[str, int]], message_count: int, roles: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """System calls by role and name, for 1,000 messages; "all processes" is the sum."""
    named = {role: counts.get(name, {}) for role, name in roles.items()}
    total = Counter[str]()
    for calls in counts.values():
        total.update(calls)
    return {
        role: {call: round(count * 1000 / message_count, 2) for call, count in calls.items()}
        for role, calls in {**named, "all processes": total}.items()
    }


def print_profile(report: Report) -> None:
    """Print the stages of each process, and the bound."""
    console = Console()
    for role, process in report["processes"].items():
        table = Table("stage", "µs a message", "share", title=f"{role} ({process['process']})", title_justify="left")
        for column in table.columns[1:]:
            column.justify = "right"
        for row in process["stages"]:
            stage = row["stage"] if row["detail"] == "" else f"{row['stage']}: {row['detail']}"
            table.add_row(stage, f"{row['us']:.3f} ± {row['error_us']:.3f}", f"{row['share']:.1%}")
        table.add_row("all", f"{process['cpu_us']:.3f}", "")
        console.print(table)
    bound = report["bound"]
    calls = report["system_calls_per_1000_messages"]["all processes"].get("all")
    console.print(
        f"{report['throughput_msgs_per_s']:,} msg/s at {bound['cpu_us_per_message']} µs of processor time a message, "
        f"all processes: {bound['cores']} cores at 100 % would do {bound['msgs_per_s_at_100_percent']:,}; "
        + ("system calls were not counted" if calls is None else f"{calls:g} system calls for 1,000 messages"),
        highlight=False,
    )
