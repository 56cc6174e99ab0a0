"""Figures for eyes and for files: the progress line, the final table, the JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .histogram import Histogram

Report = dict[str, Any]  # JSON

_PERCENTILES = {"p50_us": 50.0, "p90_us": 90.0, "p99_us": 99.0, "p999_us": 99.9}


class ProgressLine(Protocol):
    """Says how far the run is."""

    def describe(self, text: str) -> None:
        """Name what happens now."""

    def update(self, done: int) -> None:
        """Tell how many messages are done, of all."""


class _RichProgress:
    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("starting", total=total)

    def describe(self, text: str) -> None:
        self._progress.update(self._task, description=text)

    def update(self, done: int) -> None:
        self._progress.update(self._task, completed=done)


@contextmanager
def progress_line(total: int) -> Iterator[ProgressLine]:
    """Show one line of progress on standard error; gone at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as progress:
        yield _RichProgress(progress, total)


def latency_figures(histogram: Histogram) -> dict[str, float]:
    """The percentiles that every report has, in microseconds."""
    figures = {name: round(histogram.percentile_ns(percentile) / 1000, 1) for name, percentile in _PERCENTILES.items()}
    return {**figures, "max_us": round(histogram.max_ns / 1000, 1)}


def percentile_curve(histogram: Histogram) -> dict[str, float]:
    """Latencies in microseconds by percentile, for a plot: 0, 25, 50, 62.5, 75, ..., twice in each halving of the rest.

    It ends with the percentile that one of all latencies exceeds; the largest is that of "100".
    """
    curve = {"0": round(histogram.percentile_ns(0.0) / 1000, 1)}
    rest = 100.0
    while rest > 100 / max(histogram.count, 1):
        for percentile in (100 - rest * 3 / 4, 100 - rest / 2):
            curve[f"{percentile:.7g}"] = round(histogram.percentile_ns(percentile) / 1000, 1)
        rest /= 2
    return {**curve, "100": round(histogram.max_ns / 1000, 1)}


def write_json(report: Report, path: Path) -> None:
    """Write a report to a file, which is whole or as it was at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(json.dumps(report, indent=2) + "\n")
    beside.replace(path)


def print_table(title: str, rows: Mapping[str, object]) -> None:
    """Print the final figures on standard output."""
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    for name, value in rows.items():
        table.add_row(name, str(value))
    console = Console()
    console.print(title, highlight=False, soft_wrap=True)
    console.print(table)


def print_figures(report: Report) -> None:
    """Print the figures of a report, below what was measured."""
    given = {name: value for name, value in report.get("parameters", {}).items() if value}
    told = (
        f"{name}={','.join(map(str, value)) if isinstance(value, tuple) else value}" for name, value in given.items()
    )
    rows: dict[str, object] = {}
    for name, value in report.items():
        if name in ("environment", "parameters", "scenario", "runs", "usage", "latency_percentiles_us"):
            continue
        if isinstance(value, dict):
            rows.update({f"{name} {key}": f"{n:,}" for key, n in value.items() if isinstance(n, int | float)})
        elif value is not None:  # what was not counted, such as syncs at file sync level 0
            rows[name] = value if isinstance(value, str) else f"{value:,}"
    print_table(f"{report['scenario']}: {', '.join(told)}", rows)
