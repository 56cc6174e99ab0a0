"""Where each microsecond of the peak goes: the leader's, a follower's and the client's processor time by stage.

The echo load at peak runs four times, each on a cluster of its own. First alone: that gives the rate and the processor
time of each process, user and system, undisturbed. Then beside `perf`, which divides that time between the kernel's
system calls, the event loop, the garbage collector and Python. Then beside `py-spy`, which divides Python's part by
stage. Then its system calls are counted. Profilers take time themselves, so only shares are taken from their runs; the
report has how much slower those were. See `stages` for the table, and `shares` for the arithmetic and its error.

Many sessions are of several client processes with equal loads: the client's time is their sum, and its shares are those
of the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from ..machine.data_directory import data_directory
from ..options import Members, Payload, Settings, SyncLevel
from ..profiling.sampling import (
    FIRST_CLIENT,
    PERF_RATE_HZ,
    PYTHON_RATE_HZ,
    CallMeter,
    PerfMeter,
    PythonMeter,
    Tools,
    find_tools,
)
from ..profiling.shares import divide
from ..profiling.stages import Stage, native_part_of, python_stage_of
from ..rig.meter import Meter
from ..rig.processes import ClusterProcesses, ProcessGroup
from ..statistics.report import Report
from . import echo
from .echo import EchoParameters

CORES: Final = 2
"""The bound is given for so many, whatever this machine has."""

ROLES: Final = ("leader", "follower", "client")

_Meter = TypeVar("_Meter", bound=Meter)


@dataclass(slots=True, frozen=True, kw_only=True)
class ProfileParameters:
    """Parameters of one run."""

    members: Members = 3
    payload: Payload = 32
    inflight: Annotated[int, typer.Option(min=1, help="Messages in flight; of many sessions one each at least.")] = 1024
    sessions: Annotated[
        int | None, typer.Option(min=1, help="Sessions that they go round, each on its own connections. Default: one.")
    ] = None
    seconds: Annotated[float, typer.Option(min=0.1, help="Each of the four runs, about.")] = 6.0
    file_sync_level: SyncLevel = 1
    node_settings: Settings = field(default_factory=dict)

    @property
    def load(self) -> EchoParameters:
        """The load of each run."""
        inflight = self.sessions or self.inflight
        return EchoParameters(
            members=self.members,
            payload=self.payload,
            inflight=inflight,
            sessions=self.sessions,
            messages=inflight,
            seconds=self.seconds,
            has_metrics=False,
            file_sync_level=self.file_sync_level,
            node_settings=self.node_settings,
        )


def run(parameters: ProfileParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the profile; every process it starts has ended when it returns or raises.

    Raises:
        ConfigurationError: a profiler is missing, or may not look at processes.
        ClusterError: it could not be measured.
    """
    tools = find_tools()
    with data_directory(directory, "profile", keep=keep) as data_dir:

        def measure(name: str, make_meter: Callable[[ClusterProcesses, ProcessGroup], _Meter]) -> tuple[Report, _Meter]:
            Console(stderr=True).print(f"profile: the load, {name}")
            meters: list[_Meter] = []

            def make(cluster: ClusterProcesses | None, clients: ProcessGroup) -> _Meter:
                assert cluster is not None
                meters.append(make_meter(cluster, clients))
                return meters[0]

            return echo.run(parameters.load, directory=data_dir / name, make_meter=make), meters[0]

        figures = _profile(measure, tools, data_dir)
    environment = figures["alone"].pop("environment")
    return {"scenario": "profile", **figures, "parameters": asdict(parameters), "environment": environment}


def _profile(measure: Callable[..., tuple[Report, Any]], tools: Tools, data_dir: Path) -> dict[str, Any]:  # JSON
    """Measure alone, with one profiler, with the other, and with system calls counted."""
    alone, _ = measure("alone", lambda cluster, clients: Meter(cluster))
    with_perf, perf = measure("perf", lambda cluster, clients: PerfMeter(tools, cluster, clients, data_dir))
    with_python, python = measure("py-spy", lambda cluster, clients: PythonMeter(tools, cluster, clients, data_dir))
    counted, calls = measure("calls", lambda cluster, clients: CallMeter(tools, cluster, clients, data_dir))
    native: dict[str, Counter[tuple[Stage | None, str]]] = {role: Counter() for role in ROLES}
    roles = {name: role for role, name in roles_of(with_perf).items()}
    for name, frames in perf.samples():
        if name in roles:
            native[roles[name]][native_part_of(frames)] += 1
    processes = {}
    clients = [name for name in alone["usage"] if name.startswith("client")]
    for role, name in roles_of(alone).items():
        functions = Counter[tuple[Stage | None, str]]()
        sampled = roles_of(with_python)[role]
        for stack, count in python.stacks(sampled).items():
            functions[python_stage_of(stack)] += count
        group = clients if role == "client" else [name]
        usages = [alone["usage"][each] for each in group]
        processes[role] = {
            "process": name,
            "process_count": len(group),
            "unread_stacks": python.error_count(sampled),
            "user_us": round(sum(usage["user_s"] for usage in usages) * 1e6 / alone["messages"], 3),
            "system_us": round(sum(usage["system_s"] for usage in usages) * 1e6 / alone["messages"], 3),
            **divide(sum(alone["cpu_seconds_per_100k"][each] * 10 for each in group), native[role], functions),
        }
    rates = {"perf": with_perf["throughput_msgs_per_s"], "py_spy": with_python["throughput_msgs_per_s"]}
    return {
        "throughput_msgs_per_s": alone["throughput_msgs_per_s"],
        "with_profiler_msgs_per_s": rates,
        "processes": processes,
        "bound": _bound(alone),
        "system_calls_per_1000_messages": _calls_per_1000(calls.system_calls(), counted["messages"], roles_of(counted)),
        "sampling_hz": {"perf": PERF_RATE_HZ, "py_spy": PYTHON_RATE_HZ},
        "alone": alone,
    }


def roles_of(report: Report) -> dict[str, str]:
    """Return which process of a run is the leader, the first of its followers, and its first client."""
    leader = report["leader"]
    followers = [name for name in report["usage"] if name.startswith("member") and name != leader]
    return {"leader": leader, **dict(zip(("follower",), followers, strict=False)), "client": FIRST_CLIENT}


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
