"""The progress of a demo: a bar in a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .request_stream import RequestStream

REFRESH_INTERVAL_S: Final = 0.1


class DemoView:
    """The live view; a context manager, so that the terminal is put back whatever happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("       requests"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, word: str, text: str) -> None:
        """Print one line that stays."""
        self._progress.console.print(f"[cyan]{word:<6}[/cyan] {text}", highlight=False, soft_wrap=True)

    async def follow(self, stream: RequestStream) -> None:
        """Show the replies as they come, until cancelled."""
        total = len(stream.replies)
        task = self._progress.add_task("", total=total)
        while True:
            flight = f"{stream.inflight_count:,} in flight"
            self._progress.update(task, completed=stream.answered_count, description=flight)
            self._progress.refresh()
            await asyncio.sleep(REFRESH_INTERVAL_S)
