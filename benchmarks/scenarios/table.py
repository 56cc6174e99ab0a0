"""Every row of the targets in one go: what is measured, its target, and whether it is reached.

The echo rows are run in rounds, one after another within a round, so that a noisy minute is shared; medians count. What
replays a long log runs once, with as many starts as there are rounds; a catch-up, which varies most, runs nearly twice
as often, behind the rounds. The disk and the processors are measured in each round by themselves, because the figures
are theirs, too, and say which runs can be compared. With the peers installed (`make peers`) a short comparison gives
the ratios.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from ..machine.data_directory import data_directory, measurement_directory
from ..machine.disk import measure_disk
from ..machine.environment import describe
from ..machine.processors import StolenTime, measure_processors
from ..statistics.report import ProgressLine, Report, progress_line
from . import catchup, compare, echo, replay, request

_HELP_RUNS: Final = 7
_WARMUP: Final = 20_000

Figures = Mapping[str, float]


@dataclass(slots=True, frozen=True, kw_only=True)
class TableParameters:
    """Parameters of one run."""

    rounds: Annotated[int, typer.Option(min=1, help="Rounds of the echo and request rows; medians count.")] = 3
    compare_rounds: Annotated[
        int, typer.Option(min=0, help="Rounds of the comparison with the peers that are installed; 0: no comparison.")
    ] = 1
    log_mib: Annotated[int, typer.Option(min=1, help="MiB of log to replay and to catch up with.")] = 1024
    scale: Annotated[float, typer.Option(min=0.001, help="Times as many messages as usual.")] = 1.0


@dataclass(slots=True, frozen=True)
class Goal:
    """A figure that is to be at least, or at most, so much."""

    row: str
    figure: str
    unit: str
    target: float
    at_least: bool

    def is_reached(self, value: float) -> bool:
        """Whether a value is good enough."""
        return value >= self.target if self.at_least else value <= self.target

    @property
    def text(self) -> str:
        """The target as people write it."""
        return f"{'>=' if self.at_least else '<='} {self.target:,.10g} {self.unit}".rstrip()


GOALS: Final = (
    Goal("1,024 in flight, level 1", "msgs_per_s", "msg/s", 250_000, True),
    Goal("1,024 in flight, level 0", "msgs_per_s", "msg/s", 350_000, True),
    Goal("64 in flight, level 1", "msgs_per_s", "msg/s", 60_000, True),
    Goal("64 in flight, level 1", "p99_us", "us", 5_000, False),
    Goal("1 in flight, level 0", "p50_us", "us", 180, False),
    Goal("1 in flight, level 1", "p50_us", "us", 350, False),
    # The floor is of bare system calls; half of it again is for what client, leader and followers do in Python.
    Goal("1 in flight, level 1", "p50_ratio", "x one round trip and two syncs", 1.5, False),
    Goal("open loop at half of peak, level 1", "p999_us", "us", 10_000, False),
    Goal("1 KiB, 1,024 in flight, level 1", "msgs_per_s", "msg/s", 100_000, True),
    Goal("request, exactly once, 1,024 in flight, level 1", "msgs_per_s", "req/s", 60_000, True),
    Goal("replay at start", "msgs_per_s", "msg/s", 1_500_000, True),
    Goal("replay at start", "in_service_s", "s", 15, False),
    Goal("idle node with that log behind it", "resident_mib", "MiB", 120, False),
    Goal("catch-up under half load", "mb_per_s", "MB/s", 200, True),
    Goal("catch-up under half load", "p99_ratio", "x p99 without", 2, False),
    Goal("trimaran --help", "ms", "ms", 300, False),
    Goal("times etcd, 1,024 in flight, level 1", "ratio", "x", 10, True),
    Goal("times ZooKeeper, 1,024 in flight, level 1", "ratio", "x", 10, True),
    Goal("times NATS JetStream R3, 1,024 in flight, level 1", "ratio", "x", 2.5, True),
    Goal("times PySyncObj, 1,024 in flight, level 1", "ratio", "x", 2.5, True),
)


@dataclass(slots=True)
class _Run:
    """What has been measured so far, by row: figures of each round."""

    parameters: TableParameters
    data_dir: Path
    keep: bool
    rounds: dict[str, list[Figures]] = field(default_factory=dict)
    reports: dict[str, list[Report]] = field(default_factory=dict)

    def place(self) -> AbstractContextManager[Path]:
        """An empty directory for one measurement."""
        return measurement_directory(self.data_dir / f"run-{sum(1 for _ in self.data_dir.iterdir())}", keep=self.keep)

    def add(self, row: str, figures: Figures, report: Report | None = None) -> None:
        """Keep the figures of a round."""
        self.rounds.setdefault(row, []).append(figures)
        if report is not None:
            self.reports.setdefault(row, []).append(report)

    def median(self, row: str, figure: str) -> float | None:
        """The median over the rounds; None where there was none."""
        values = [figures[figure] for figures in self.rounds.get(row, []) if figure in figures]
        return median(values) if values else None


def run(parameters: TableParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Measure every row; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: something could not be measured.
    """
    with data_directory(directory, "table", keep=keep) as data_dir:
        measured, stolen = _Run(parameters, data_dir, keep), StolenTime()
        steps = _steps(measured)
        with progress_line(len(steps)) as progress:
            _take(steps, progress)
        environment = describe(data_dir)
    rows = [judged_row(goal.row, goal.figure, measured.median(goal.row, goal.figure)) for goal in GOALS]
    return {
        "scenario": "table",
        "rows": rows,
        "rounds": measured.rounds,
        "reports": measured.reports,
        "stolen_percent": stolen.percent(),
        "parameters": asdict(parameters),
        "environment": environment,
    }


def quantity(value: float | None, unit: str) -> str:
    """Write a figure as people read it."""
    return "not measured" if value is None else f"{_number(value)} {unit}"


def measured_words(row: Report, rounds: Mapping[str, Sequence[Figures]]) -> str:
    """What was measured of a target, with its percentile where it is of one, and how far the rounds lie apart."""
    said = quantity(row["value"], row["unit"])
    kind, _, unit = row["figure"].rpartition("_")
    if kind.startswith("p") and unit in ("us", "ratio"):
        said = f"{kind[:3]}{'.' if kind[3:] else ''}{kind[3:]} {said}"
    values = [figures[row["figure"]] for figures in rounds.get(row["what"], ())]
    return f"{said}, {_number(min(values))} to {_number(max(values))}" if len(values) > 1 else said


def ratios(compared: Report) -> dict[str, float]:
    """Return how many times faster than each we are at 1,024 in flight, by what the row is called."""
    ratios = {
        f"times {name}, 1,024 in flight, level 1": peer.get("depths", {})
        .get("1024", {})
        .get("trimaran_is_times_faster")
        for name, peer in compared["peers"].items()
    }
    return {row: ratio for row, ratio in ratios.items() if ratio is not None}


def judged_row(what: str, figure: str, value: float | None, name: str | None = None) -> Report:
    """Return the row of a target with a value, under another name if there is one."""
    (goal,) = (goal for goal in GOALS if (goal.row, goal.figure) == (what, figure))
    return {
        "what": name or what,
        "figure": figure,
        "unit": goal.unit,
        "value": value,
        "target": goal.text,
        "reached": None if value is None else goal.is_reached(value),
    }


def print_targets(report: Report) -> None:
    """Print a line for each target."""
    table = Table("what", "measured", "target", "reached")
    for row in report["rows"]:
        reached = {True: "yes", False: "NO", None: ""}[row["reached"]]
        table.add_row(row["what"], measured_words(row, report["rounds"]), row["target"], reached)
    console = Console()
    console.print(table)
    console.print(alone_words(report), soft_wrap=True)


def alone_words(report: Report) -> str:
    """Return the speed of the machine alone in each round: the floor of every figure, to compare runs by."""
    said = []
    if disk := _medians(report, "disk"):
        said.append(
            "The disk alone: fdatasync of 4 KiB into a file that is written already "
            f"{disk['fdatasync_4k_p50_us']:,.0f} µs (p50), {disk['fdatasync_4k_p99_us']:,.0f} µs (p99); "
            f"a stream synced every 4 MiB {disk['stream_mb_per_s']:,.0f} MB/s."
        )
    if alone := _medians(report, "processors"):
        said.append(
            "The processors alone: a byte to another process and back over loopback "
            f"{alone['round_trip_us']:,.0f} µs, a pass of a Python loop on each {alone['loop_ns']:,.0f} ns; "
            f"their host took {report['stolen_percent']:g} % of their time meanwhile."
        )
    return " ".join(said)


def _medians(report: Report, probe: str) -> dict[str, float]:
    rounds = report["rounds"].get(probe, [])
    return {name: median(figures[name] for figures in rounds) for name in rounds[0]} if rounds else {}


def _number(value: float) -> str:
    return f"{value:,.{0 if value >= 100 else 2}f}"


def _steps(measured: _Run) -> list[tuple[str, Callable[[], None]]]:
    """Everything that is to be done, in order, with what it is called."""
    parameters = measured.parameters
    steps: list[tuple[str, Callable[[], None]]] = []
    for number in range(parameters.rounds):
        name = f"round {number + 1}/{parameters.rounds}"
        steps.append((f"{name}: the disk", lambda: measured.add("disk", measure_disk(measured.data_dir))))
        steps.append((f"{name}: the processors", lambda: measured.add("processors", measure_processors())))
        steps += [(f"{name}: {row}", _echo_step(measured, row)) for row in _ECHO_ROWS]
        steps.append((f"{name}: open loop", lambda: _open_loop(measured)))
        steps.append((f"{name}: requests", lambda: _requests(measured)))
    steps.append(("replay", lambda: _replay(measured)))
    # The first of these are slower on a virtual machine that has to get memory for GBs of log from its host.
    run_count = 2 * parameters.rounds - 1
    runs = range(1, run_count + 1)
    steps += [(f"catch-up {number}/{run_count}", lambda: _catchup(measured)) for number in runs]
    steps.append(("trimaran --help", lambda: _help(measured)))
    if parameters.compare_rounds:
        steps.append(("peers", lambda: _compare(measured)))
    return steps


def _take(steps: list[tuple[str, Callable[[], None]]], progress: ProgressLine) -> None:
    for number, (name, step) in enumerate(steps):
        progress.describe(name)
        step()
        progress.update(number + 1)


# Depth, file sync level, payload, messages.
_ECHO_ROWS: Final = {
    "1,024 in flight, level 1": (echo.PEAK_INFLIGHT, 1, 32, echo.PEAK_MESSAGES),
    "1,024 in flight, level 0": (echo.PEAK_INFLIGHT, 0, 32, echo.PEAK_MESSAGES),
    "64 in flight, level 1": (64, 1, 32, 100_000),
    "1 in flight, level 0": (1, 0, 32, 5_000),
    "1 in flight, level 1": (1, 1, 32, 3_000),
    "1 KiB, 1,024 in flight, level 1": (1024, 1, 1024, 150_000),
}


def _echo_step(measured: _Run, row: str) -> Callable[[], None]:
    depth, level, payload, messages = _ECHO_ROWS[row]

    def step() -> None:
        _echo(measured, row, inflight=depth, file_sync_level=level, payload=payload, messages=messages)

    return step


def _open_loop(measured: _Run) -> None:
    peak = measured.median("1,024 in flight, level 1", "msgs_per_s")
    assert peak is not None
    rate = echo.open_loop_rate(peak)
    row = "open loop at half of peak, level 1"
    _echo(measured, row, inflight=1024, file_sync_level=1, payload=32, messages=round(rate * 3), rate=rate)


def _echo(
    measured: _Run,
    row: str,
    *,
    inflight: int,
    file_sync_level: int,
    payload: int,
    messages: int,
    rate: float | None = None,
) -> None:
    scale = measured.parameters.scale
    parameters = echo.EchoParameters(
        inflight=inflight,
        file_sync_level=file_sync_level,
        payload=payload,
        messages=max(inflight, round(messages * scale)),
        warmup=round(min(_WARMUP, messages / 5) * scale),
        rate=rate,
    )
    with measured.place() as directory:
        report = echo.run(parameters, directory=directory)
    figures = {name: report[name] for name in ("p50_us", "p99_us", "p999_us", "max_us")}
    if inflight == 1 and file_sync_level:
        figures["p50_ratio"] = report["p50_us"] / _floor_us(measured)
    measured.add(row, {"msgs_per_s": report["throughput_msgs_per_s"], **figures}, report)


def _floor_us(measured: _Run) -> float:
    """What nobody is quicker than: a byte there and back, and two syncs, as measured in the same round."""
    disk, processors = measured.rounds["disk"][-1], measured.rounds["processors"][-1]
    return processors["round_trip_us"] + 2 * disk["fdatasync_4k_p50_us"]


def _requests(measured: _Run) -> None:
    parameters = request.RequestParameters(requests=round(200_000 * measured.parameters.scale))
    with measured.place() as directory:
        report = request.run(parameters, directory=directory)
    row = "request, exactly once, 1,024 in flight, level 1"
    measured.add(row, {"msgs_per_s": report["requests_per_s"], "p99_us": report["p99_us"]}, report)


def _replay(measured: _Run) -> None:
    parameters = replay.ReplayParameters(log_mib=measured.parameters.log_mib, runs=measured.parameters.rounds)
    with measured.place() as directory:
        report = replay.run(parameters, directory=directory)
    figures = {"msgs_per_s": report["messages_per_s"], "in_service_s": report["in_service_s"]}
    measured.add("replay at start", figures, report)
    measured.add("idle node with that log behind it", {"resident_mib": report["idle_mib"]})


def _catchup(measured: _Run) -> None:
    peak = measured.median("1,024 in flight, level 1", "msgs_per_s")
    assert peak is not None
    parameters = catchup.CatchupParameters(missed_mib=measured.parameters.log_mib, rate=echo.open_loop_rate(peak))
    with measured.place() as directory:
        report = catchup.run(parameters, directory=directory)
    figures = {"mb_per_s": report["megabytes_per_s"], "p99_ratio": report["p99_ratio"]}
    measured.add("catch-up under half load", figures, report)


def _help(measured: _Run) -> None:
    command = (sys.executable, "-m", "trimaran", "--help")
    for _ in range(_HELP_RUNS):
        begin_ns = time.perf_counter_ns()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=60)
        measured.add("trimaran --help", {"ms": (time.perf_counter_ns() - begin_ns) / 1e6})


def _compare(measured: _Run) -> None:
    parameters = compare.CompareParameters(rounds=measured.parameters.compare_rounds, depths=(1024,))
    with measured.place() as directory:
        report = compare.run(parameters, directory=directory, keep=measured.keep)
    for row, ratio in ratios(report).items():
        measured.add(row, {"ratio": ratio})
    measured.reports["compare"] = [report]
