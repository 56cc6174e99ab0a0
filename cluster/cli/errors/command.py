"""`quorate errors`: read the error log in a member's mark file and show it.

Nothing is asked of the member and no lock is taken, so it works while the member runs, after it was killed, and on a
copy of the directory. The times are the member's own clock's.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cluster.cli.status.view import make_console
from cluster.runtime.error_log import DistinctError, read_errors
from cluster.runtime.mark_file import MARK_FILE_NAME
from service_api import ConfigurationError

_STYLES: Final = {"critical": "bold red", "error": "red", "warning": "yellow"}


class OutputFormat(StrEnum):
    """How the command prints the errors."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


def errors(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A member's directory, or the mark file itself.")],
    output: Annotated[OutputFormat, typer.Option("-o", "--output", help="Output format.")] = OutputFormat.TABLE,
    traces: Annotated[bool, typer.Option("--traces", help="Show the stack traces in the table, too.")] = False,
) -> None:
    """Show what has gone wrong in a member: each distinct error with its count, first and last time.

    Works on the directory of a member that runs or one that is dead. The error that was seen last comes last.
    """
    found = read_errors(find_mark_file(directory))
    if output is OutputFormat.JSON:
        typer.echo(json.dumps([as_dict(error) for error in found], indent=2))
    elif output is OutputFormat.JSONL:
        for error in found:
            typer.echo(json.dumps(as_dict(error)))
    else:
        show(found, make_console(), traces=traces)


def find_mark_file(directory: Path) -> Path:
    """Find the mark file in a member's directory, in the `cluster` directory in it, or given itself.

    Raises:
        ConfigurationError: there is none.
    """
    for path in (directory / "cluster" / MARK_FILE_NAME, directory / MARK_FILE_NAME, directory):
        if path.is_file():
            return path
    raise ConfigurationError(f"no member has run here: directory={directory} expected cluster/{MARK_FILE_NAME} in it")


def as_dict(error: DistinctError) -> dict[str, Any]:
    """Make the object that stands for an error in JSON; all keys are always there."""
    trouble = error.trouble
    return {
        "count": error.observation_count,
        "first": _iso(error.first_ms),
        "last": _iso(error.last_ms),
        "level": trouble.level,
        "event": trouble.event,
        "kind": trouble.kind,
        "place": trouble.place,
        "message": trouble.message,
        "trace": trouble.trace,
    }


def show(found: list[DistinctError], console: Console, *, traces: bool) -> None:
    """Print a table, and below it the traces if they are wanted."""
    if not found:
        console.print("no errors")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("first", no_wrap=True)
    table.add_column("last", no_wrap=True)
    table.add_column("error", overflow="fold")
    for error in found:
        trouble = error.trouble
        what = Text(" ".join(part for part in (trouble.event, trouble.kind) if part) or "?")
        what.stylize(_STYLES.get(trouble.level, ""))
        where = f" at {trouble.place}" if trouble.place else ""
        what.append(f"{where}\n{trouble.message}", style="default")
        table.add_row(f"{error.observation_count:,}", _short(error.first_ms), _short(error.last_ms), what)
    console.print(table)
    for error in found:
        if traces and error.trouble.trace:
            console.print()
            console.print(Text(f"{error.trouble.headline}\n{error.trouble.trace}"), soft_wrap=True)


def _time(epoch_ms: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):  # a damaged file may hold any number
        return None


def _iso(epoch_ms: int) -> str | None:
    moment = _time(epoch_ms)
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _short(epoch_ms: int) -> str:
    moment = _time(epoch_ms)
    return "?" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%SZ")
