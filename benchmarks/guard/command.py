"""The command `guard`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..statistics.report import print_table
from .guard import run
from .instructions import interpreter


def guard(
    update: Annotated[bool, typer.Option("--update", help="Store the counts instead of comparing them.")] = False,
    only: Annotated[str, typer.Option(help="Some paths, by name with commas.")] = "",
) -> None:
    """Instructions of each hot path under callgrind, beside the stored ones; fails where they grew by over 5 %."""
    counts = run(update=update, only=tuple(filter(None, only.split(","))))
    print_table(f"instructions of {interpreter()}", dict(counts))
