"""What the commands that write directories share: the flag that writes nothing, and the bar of a pass over files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ....archive.tool.commands.progress import one_bar, progress_bars

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Read and check everything, print the result, write nothing.")
]


@contextmanager
def pass_bar(what: str, total_bytes: int | None) -> Iterator[Callable[[int], None]]:
    """Show how far a pass over the files has come; gives what takes how many bytes more are done.

    Without a total the bar only moves.
    """
    done_bytes = 0
    with progress_bars() as progress, one_bar(progress, what, total_bytes) as advance:

        def on_progress(more_bytes: int) -> None:
            nonlocal done_bytes
            done_bytes += more_bytes
            advance(done_bytes)

        yield on_progress
