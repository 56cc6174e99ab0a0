"""Progress of long work on standard error, only where that is a terminal: what was done is never told in a pipe."""

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
def progress_bars() -> Iterator[Progress]:
    """Show bars while the block runs; they are gone after it."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
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
