"""Progress of long work on standard error, only where that is a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

Advance = Callable[[int], None]
"""Takes how many bytes are done by now."""

INTERVAL_MESSAGES: Final = 1024
"""After so many messages who reads them tells how far it has come."""


@contextlib.contextmanager
def progress_bars(*, is_printing: bool = False) -> Iterator[Progress]:
    """Show bars while the block runs; they are gone after it.

    `is_printing` says that rows go to standard output meanwhile: where that is a terminal, too, they are enough.
    """
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty() or (is_printing and sys.stdout.isatty()),
        redirect_stdout=False,  # else rows that go into a pipe would come out on the terminal
        redirect_stderr=False,
    ) as progress:
        yield progress


@contextlib.contextmanager
def one_bar(progress: Progress, what: str, total_bytes: int | None) -> Iterator[Advance]:
    """Show one bar while the block runs; without a total it only moves."""
    task = progress.add_task(what, total=total_bytes)
    try:
        yield lambda done_bytes: progress.update(task, completed=done_bytes)
    finally:
        progress.remove_task(task)
