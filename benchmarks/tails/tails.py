"""Steady tails: the parts of one run, and how they are printed."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from ..machine.data_directory import data_directory, measurement_directory
from ..machine.environment import describe
from ..machine.processors import StolenTime
from ..scenarios.echo import open_loop_rate
from ..statistics.report import Report, progress_line
from .callbacks import heartbeat_timeout_ms, measure_callbacks
from .disturbances import CALM, measure_disturbances
from .open_loop import FIGURE_NAMES, measure_open_loop, measure_peak
from .parameters import TailsParameters


def run(parameters: TailsParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, or the time of a part was up.
    """
    begun_s, stolen = time.monotonic(), StolenTime()
    with data_directory(directory, "tails", keep=keep) as data_dir, progress_line(1) as progress:
        environment = describe(data_dir)
        count = 0

        def place() -> AbstractContextManager[Path]:
            nonlocal count
            count += 1
            return measurement_directory(data_dir / f"run-{count}", keep=keep)

        report: Report = {"scenario": "tails"}
        rate = parameters.rate
        if rate is None and {*parameters.only} != {"callbacks"}:
            report["peak_per_s"] = measure_peak(parameters, place, progress.describe)
            rate = open_loop_rate(report["peak_per_s"])
        if rate is not None:
            report["rate_per_s"] = round(rate)
        if "open-loop" in parameters.only and rate is not None:
            report["open_loop"] = measure_open_loop(parameters, rate, place, progress.describe)
        if "disturbances" in parameters.only and rate is not None:
            report["disturbances"] = measure_disturbances(parameters, rate, place, progress.describe)
        if "callbacks" in parameters.only:
            report["callbacks"] = measure_callbacks(parameters, rate, place, progress.describe)
            report["heartbeat_timeout_ms"] = heartbeat_timeout_ms()
    return {
        **report,
        "took_s": round(time.monotonic() - begun_s),
        "stolen_percent": stolen.percent(),
        "parameters": asdict(parameters),
        "environment": environment,
    }


def print_tails(report: Report) -> None:
    """Print the figures of each run, and those of disturbances and callbacks beside the calm."""
    console = Console(soft_wrap=True)
    console.print(f"tails: took {report['took_s']} s, the host took {report['stolen_percent']:g} % meanwhile")
    if found := report.get("open_loop"):
        for number, measured in enumerate(found["runs"], start=1):
            slow = measured["slow"]
            causes = ", ".join(f"{cause} {total['count']:g}" for cause, total in slow["causes"].items())
            console.print(
                f"run {number}: {_words(measured)}; slow for {slow['total_ms']:,.0f} ms: {causes or 'nothing'}"
            )
        console.print(f"median: {_words(found['median'])}")
        for goal in found["goals"]:
            console.print(f"{goal['figure']} {goal['target']}: {'reached' if goal['reached'] else 'not reached'}")
    for row in [*report.get("disturbances", ()), *report.get("callbacks", ())]:
        if "during" in row:
            slow_until = f"slow until {row['slow_until_ms']:,.0f} ms"
            console.print(f"{row['what']}: {_words(row['during'])}; {slow_until}; calm: {_words(row[CALM])}")
        else:
            console.print(f"{row['what']}: another leader was elected")


def _words(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {figures[figure] / 1e3:,.2f} ms" for figure, name in FIGURE_NAMES.items())
