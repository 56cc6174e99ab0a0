"""How cost grows: one thing is varied at a time, from the same load: with payload, messages in flight, members,
client sessions with connections of their own and with shared ones, and the length of the log behind a member.

Every point is an echo load in a closed loop that is measured for a fixed time. Points of one number of members share
a running cluster, except where sessions are counted: of these at least one message is in flight each, and memory is
read while they are open. A point that cannot be measured is told with its reason, and the
others go on. The log's length is varied on a cluster of one member, whose log is made as `replay` makes it: it starts
on it, which is timed, and then takes the load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from trimaran.service_api.errors import ClusterError, ConfigurationError

from ..load.echo import SEQUENCE
from ..machine.data_directory import data_directory
from ..machine.environment import describe, node_settings
from ..statistics.report import Report, progress_line
from .scan_bench import Load, ScanBench


class Dimension(StrEnum):
    """What is varied."""

    PAYLOAD = "payload"
    INFLIGHT = "inflight"
    MEMBERS = "members"
    SESSIONS = "sessions"
    SHARED = "shared"
    LOG = "log"


UNITS: Final = {
    Dimension.PAYLOAD: "bytes in a message",
    Dimension.INFLIGHT: "messages in flight",
    Dimension.MEMBERS: "members",
    Dimension.SESSIONS: "client sessions",
    Dimension.SHARED: "client sessions on shared connections",
    Dimension.LOG: "MiB of log behind the member",
}
"""What the values of each are."""

_NODE_SETTINGS: Final = (
    "file_sync_level",
    "checksums",
    "term_length_bytes",
    "segment_length_bytes",
    "mtu_length_bytes",
    "ingress_window_bytes",
)


@dataclass(slots=True, frozen=True, kw_only=True)
class ScanParameters:
    """What one run does.

    Raises:
        ConfigurationError: values that make no run.
    """

    only: tuple[Dimension, ...] = tuple(Dimension)
    seconds: float = 2.0
    """For how long each point is measured, about."""
    rounds: int = 1
    """The round with the median rate counts, of each point."""
    payloads: tuple[int, ...] = (32, 128, 512, 1024, 4096, 16_384, 65_536)
    inflights: tuple[int, ...] = (1, 4, 16, 64, 256, 1024, 4096)
    members: tuple[int, ...] = (1, 3, 5)
    sessions: tuple[int, ...] = (1, 10, 100, 1000, 10_000)
    log_mibs: tuple[int, ...] = (0, 256, 1024)
    payload: int = 32
    """Where something else is varied."""
    inflight: int = 1024
    """Where something else is varied; of many sessions one each at least."""
    file_sync_level: int = 1
    node_settings: Mapping[str, str] = field(default_factory=dict)
    """More settings for `trimaran node`, by name."""

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.rounds < 1:
            raise ConfigurationError(f"seconds={self.seconds} rounds={self.rounds} expected more than 0 and at least 1")
        for name, least in _LEAST.items():
            values = getattr(self, name)
            found = [value for value in (values if isinstance(values, tuple) else (values,)) if value < least]
            if found or values == ():
                raise ConfigurationError(f"{name}={values} expected numbers of at least {least}")
        if list(self.log_mibs) != sorted(set(self.log_mibs)):
            raise ConfigurationError(f"log_mibs={self.log_mibs} expected growing numbers: the log is made longer")

    def values(self, dimension: Dimension) -> tuple[int, ...]:
        """What a dimension's points are."""
        return {
            Dimension.PAYLOAD: self.payloads,
            Dimension.INFLIGHT: self.inflights,
            Dimension.MEMBERS: self.members,
            Dimension.SESSIONS: self.sessions,
            Dimension.SHARED: self.sessions,
            Dimension.LOG: self.log_mibs,
        }[dimension]


_LEAST: Final = {
    "payloads": SEQUENCE.size,
    "inflights": 1,
    "members": 1,
    "sessions": 1,
    "log_mibs": 0,
    "payload": SEQUENCE.size,
    "inflight": 1,
}


@dataclass(slots=True)
class _Found:
    """What has been measured so far."""

    points: dict[tuple[Dimension, int], list[Report]] = field(default_factory=dict)
    failures: dict[tuple[Dimension, int], str] = field(default_factory=dict)

    def measure(self, key: tuple[Dimension, int], measure: Callable[[], Report]) -> None:
        """Measure one point; what goes wrong with it is its own."""
        if key in self.failures:
            return
        try:
            self.points.setdefault(key, []).append(measure())
        except ClusterError as error:
            lines = str(error).splitlines()  # what failed; the last is what a process said of it
            self.failures[key] = ": ".join(dict.fromkeys((lines[0], lines[-1])))

    def report(self) -> dict[str, list[Report]]:
        """Return the points, each by the round with the median rate, and what could not be measured."""
        points = []
        for (dimension, value), rounds in self.points.items():
            ordered = sorted(rounds, key=lambda report: report["throughput_msgs_per_s"])
            if ordered:
                middle = ordered[len(ordered) // 2]
                rates = [report["throughput_msgs_per_s"] for report in rounds]
                points.append({"dimension": str(dimension), "value": value, **middle, "rounds": rates})
        failures = [
            {"dimension": str(dimension), "value": value, "reason": reason}
            for (dimension, value), reason in self.failures.items()
        ]
        return {"points": points, "failures": failures}


def run(parameters: ScanParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Measure every point; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: not one point could be measured.
    """
    found = _Found()
    total = parameters.rounds * sum(len(parameters.values(dimension)) for dimension in parameters.only)
    with data_directory(directory, "scan", keep=keep) as data_dir, progress_line(total) as progress:
        environment = describe(data_dir)
        settings = {"file_sync_level": str(parameters.file_sync_level), **parameters.node_settings}
        done = 0
        with ScanBench(data_dir, settings, seconds=parameters.seconds, on_step=progress.describe, keep=keep) as bench:
            for _ in range(parameters.rounds):
                for dimension in parameters.only:
                    for value in parameters.values(dimension):
                        bench.name = f"{dimension}={value:,}"
                        found.measure((dimension, value), _measurement(bench, parameters, dimension, value))
                        done += 1
                        progress.update(done)
    if not found.points or not any(found.points.values()):
        raise ClusterError(f"no point could be measured: {next(iter(found.failures.values()))}")
    given = {"file_sync_level": parameters.file_sync_level, **parameters.node_settings}
    return {
        "scenario": "scan",
        **found.report(),
        "parameters": asdict(parameters),
        "environment": {**environment, **node_settings(_NODE_SETTINGS, given)},
    }


def _measurement(
    bench: ScanBench, parameters: ScanParameters, dimension: Dimension, value: int
) -> Callable[[], Report]:
    """What measures one point: the usual load with one thing changed."""
    usual = Load(payload=parameters.payload, inflight=parameters.inflight)
    members = 3
    match dimension:
        case Dimension.PAYLOAD:
            return lambda: bench.measure(members, Load(payload=value, inflight=usual.inflight))
        case Dimension.INFLIGHT:
            return lambda: bench.measure(members, Load(payload=usual.payload, inflight=value))
        case Dimension.MEMBERS:
            return lambda: bench.measure(value, usual)
        case Dimension.SESSIONS | Dimension.SHARED:
            load = Load(payload=usual.payload, inflight=max(usual.inflight, value))
            is_shared = dimension is Dimension.SHARED
            return lambda: bench.measure_sessions(members, load, session_count=value, is_shared=is_shared)
        case Dimension.LOG:
            return lambda: bench.measure_behind_log(usual, log_mib=value)


def parse_dimensions(text: str) -> tuple[Dimension, ...]:
    """Read names with commas; nothing is all of them.

    Raises:
        ConfigurationError: one is no dimension.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in tuple(Dimension)]
    if unknown:
        raise ConfigurationError(f"only={','.join(unknown)} expected some of {','.join(Dimension)}")
    return tuple(Dimension(name) for name in names) or tuple(Dimension)


def print_points(report: Report) -> None:
    """Print a line for each point, and what could not be measured."""
    table = Table("varied", "msg/s", "p50 µs", "p99 µs", "CPU µs/msg", "msg/sync", "start s")
    for column in table.columns[1:]:
        column.justify = "right"
    for point in report["points"]:
        cpu_us = sum(point["cpu_seconds_per_100k"].values()) * 10
        syncs, start_s = point["messages_per_sync"], point.get("start_s")
        table.add_row(
            f"{point['dimension']} {point['value']:,}",
            f"{point['throughput_msgs_per_s']:,}",
            f"{point['p50_us']:,.0f}",
            f"{point['p99_us']:,.0f}",
            f"{cpu_us:,.2f}",
            "" if syncs is None else f"{syncs:,.0f}",
            "" if start_s is None else f"{start_s:.2f}",
        )
    console = Console()
    console.print(table)
    for failure in report["failures"]:
        console.print(f"{failure['dimension']} {failure['value']:,} not measured: {failure['reason']}", highlight=False)
