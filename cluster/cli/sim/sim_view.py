"""The progress of a campaign, on standard error: a bar in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .campaign_report import SimulationReport

LINE_INTERVAL_S: Final = 10.0
"""Between two plain lines."""


class SimView:
    """The live view; a context manager, so that the terminal is put back whatever happens."""

    def __init__(self, console: Console, seed_count: int | None) -> None:
        self._seed_count = seed_count
        self._has_bar = console.is_terminal
        self._next_line_s = LINE_INTERVAL_S
        self._progress = Progress(
            TextColumn("seeds"),
            BarColumn(bar_width=30),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not self._has_bar,
        )
        self._task = self._progress.add_task("", total=seed_count)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print one line that stays."""
        self._progress.console.print(escape(text), highlight=False, soft_wrap=True)

    def show(self, report: SimulationReport) -> None:
        """Show how far a campaign has come."""
        if self._has_bar:
            self._progress.update(self._task, completed=report.totals.seed_count, description=self._describe(report))
            self._progress.refresh()
        elif report.elapsed_s >= self._next_line_s:
            self._next_line_s = report.elapsed_s + LINE_INTERVAL_S
            self.say(f"seeds {self._describe(report)}, {report.elapsed_s:.0f} s")

    def _describe(self, report: SimulationReport) -> str:
        totals = report.totals
        seeds = f"{totals.seed_count:,}" + ("" if self._seed_count is None else f"/{self._seed_count:,}")
        return (
            f"{seeds}, {totals.simulated_s / 3600:,.3f} simulated h, {report.rate:,.1f} s/s, "
            f"{len(totals.failures):,} failed"
        )
