"""How cost grows: one thing is varied at a time, from the same load: payload, messages in flight, members, sessions
with connections of their own and with shared ones, and the length of the log behind a member.

Every point is an echo in a closed loop, for a fixed time, on a cluster of its own. A point that cannot be measured is
noted with its reason, and the others go on. The log's length is varied on a cluster of one member.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from ...service_api.errors import ClusterError
from ..machine.data_directory import data_directory, measurement_directory
from ..machine.environment import describe
from ..options import Settings, SyncLevel
from ..statistics.report import Report
from . import echo
from .echo import EchoParameters


class Dimension(StrEnum):
    """What is varied."""

    PAYLOAD = "payload"
    INFLIGHT = "inflight"
    MEMBERS = "members"
    SESSIONS = "sessions"
    SHARED = "shared"
    LOG = "log"

    @property
    def unit(self) -> str:
        """What its values are."""
        return _UNITS[self]


_UNITS: Final = {
    Dimension.PAYLOAD: "bytes in a message",
    Dimension.INFLIGHT: "messages in flight",
    Dimension.MEMBERS: "members",
    Dimension.SESSIONS: "client sessions",
    Dimension.SHARED: "client sessions on shared connections",
    Dimension.LOG: "MiB of log behind the member",
}


@dataclass(slots=True, frozen=True, kw_only=True)
class ScanParameters:
    """Parameters of one run."""

    only: Annotated[tuple[Dimension, ...], typer.Option(help="What to vary.")] = tuple(Dimension)
    seconds: Annotated[float, typer.Option(min=0.01, help="How long each point is measured, about.")] = 2.0
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; of each point the one with the median rate counts.")] = 1
    payloads: Annotated[tuple[int, ...], typer.Option(min=8, help="Bytes in a message.")] = (
        *(32, 128, 512, 1024, 4096, 16_384, 65_536),
    )
    inflights: Annotated[tuple[int, ...], typer.Option(min=1, help="Messages in flight.")] = (
        *(1, 4, 16, 64, 256, 1024, 4096),
    )
    members: Annotated[tuple[int, ...], typer.Option(min=1, help="Members of the cluster.")] = (1, 3, 5)
    sessions: Annotated[tuple[int, ...], typer.Option(min=1, help="Client sessions.")] = (1, 10, 100, 1000, 10_000)
    log_mibs: Annotated[tuple[int, ...], typer.Option(min=0, help="MiB of log behind a member.")] = (0, 256, 1024)
    inflight: Annotated[int, typer.Option(min=1, help="Messages in flight where something else is varied.")] = 1024
    file_sync_level: SyncLevel = 1
    node_settings: Settings = field(default_factory=dict)

    def points(self) -> dict[tuple[Dimension, int], EchoParameters]:
        """Return what is measured, by what is varied and its value: the usual load with one thing changed."""
        usual = EchoParameters(
            inflight=self.inflight,
            seconds=self.seconds,
            messages=max(self.inflight, *self.inflights, *self.sessions),
            file_sync_level=self.file_sync_level,
            node_settings=self.node_settings,
        )
        changes: dict[Dimension, dict[int, dict[str, Any]]] = {  # values of several types
            Dimension.PAYLOAD: {value: {"payload": value} for value in self.payloads},
            Dimension.INFLIGHT: {value: {"inflight": value} for value in self.inflights},
            Dimension.MEMBERS: {value: {"members": value} for value in self.members},
            Dimension.SESSIONS: {value: self._with_sessions(value, is_shared=False) for value in self.sessions},
            Dimension.SHARED: {value: self._with_sessions(value, is_shared=True) for value in self.sessions},
            Dimension.LOG: {value: {"members": 1, "log_mib": value} for value in self.log_mibs},
        }
        return {
            (dimension, value): replace(usual, **change)
            for dimension in self.only
            for value, change in changes[dimension].items()
        }

    def _with_sessions(self, count: int, *, is_shared: bool) -> dict[str, Any]:
        """Of many sessions at least one message each is in flight."""
        return {"sessions": count, "share": is_shared, "inflight": max(self.inflight, count)}


def run(parameters: ScanParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Measure every point; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: not one point could be measured.
    """
    points = parameters.points()
    found: dict[tuple[Dimension, int], list[Report]] = {key: [] for key in points}
    failures: dict[tuple[Dimension, int], str] = {}
    with data_directory(directory, "scan", keep=keep) as data_dir:
        environment = describe(data_dir)
        for number in range(parameters.rounds):
            for (dimension, value), load in points.items():
                Console(stderr=True).print(f"round {number + 1}: {dimension} {value:,}", highlight=False)
                try:
                    with measurement_directory(data_dir / f"{dimension}-{value}-{number}", keep=keep) as place:
                        found[dimension, value].append(echo.run(load, directory=place, keep=keep))
                except ClusterError as error:
                    lines = str(error).splitlines()  # what failed; the last is what a process said of it
                    failures[dimension, value] = ": ".join(dict.fromkeys((lines[0], lines[-1])))
    measured = [_point(dimension, value, rounds) for (dimension, value), rounds in found.items() if rounds]
    if not measured:
        raise ClusterError(f"no point could be measured: {next(iter(failures.values()))}")
    return {
        "scenario": "scan",
        "points": measured,
        "failures": [
            {"dimension": str(dimension), "value": value, "reason": reason}
            for (dimension, value), reason in failures.items()
        ],
        "parameters": {**asdict(parameters), "payload": EchoParameters().payload},
        "environment": environment,
    }


def _point(dimension: Dimension, value: int, rounds: list[Report]) -> Report:
    """Return the figures of the round with the median rate."""
    rates = [report["throughput_msgs_per_s"] for report in rounds]
    middle = sorted(rounds, key=lambda report: report["throughput_msgs_per_s"])[len(rounds) // 2]
    figures = {name: figure for name, figure in middle.items() if name not in ("scenario", "parameters", "environment")}
    given = middle["parameters"]
    return {
        "dimension": str(dimension),
        "value": value,
        **{name: given[name] for name in ("members", "payload", "inflight")},
        "sessions": given["sessions"] or 1,
        "shared": given["share"],
        "client_processes": sum(name.startswith("client") for name in middle["usage"]),
        **figures,
        "rounds": rates,
    }


def print_points(report: Report) -> None:
    """Print a line for each point, and what could not be measured."""
    table = Table("varied", "msg/s", "p50 µs", "p99 µs", "CPU µs/msg", "msg/sync", "start s")
    for column in table.columns[1:]:
        column.justify = "right"
    for point in report["points"]:
        cpu_us, syncs = sum(point["cpu_seconds_per_100k"].values()) * 10, point["messages_per_sync"]
        figures = (point["throughput_msgs_per_s"], point["p50_us"], point["p99_us"])
        table.add_row(
            f"{point['dimension']} {point['value']:,}",
            *(f"{figure:,.0f}" for figure in figures),
            f"{cpu_us:,.2f}",
            "" if syncs is None else f"{syncs:,.0f}",
            f"{point['start_s']:.2f}",
        )
    console = Console()
    console.print(table)
    for failure in report["failures"]:
        console.print(f"{failure['dimension']} {failure['value']:,} not measured: {failure['reason']}", highlight=False)
