"""`trimaran errors`: read the error logs in the mark files of a member or an archive, ours or Aeron's, and show them.

Nothing is asked of the member and no lock is taken, so it works while the member runs, after it was killed, and on a
copy of the directory. The times are the member's own clock's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from ...archive.files.mark_file import MARK_FILE_NAME as ARCHIVE_MARK_FILE_NAME
from ...archive.log.group_directories import refuse_groups
from ...archive.tool.output import OutputFormat, OutputOption, format_time, make_console, new_table, print_rows
from ...service_api import ConfigurationError
from ..runtime.files.error_log import DistinctError, read_errors
from ..runtime.files.mark_file import MARK_FILE_NAME
from .state import find_state_files

_STYLES: Final = {"critical": "bold red", "error": "red", "warning": "yellow"}


def errors(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A member's directory, an archive's, or a mark file itself.")
    ],
    output: OutputOption = OutputFormat.TABLE,
    traces: Annotated[bool, typer.Option("--traces", help="Show the stack traces in the table, too.")] = False,
) -> None:
    """Show the errors of a member and its archive: each distinct error with its count, first and last time.

    The member may be running or dead. The most recent error comes last.
    """
    found = find_errors(directory)
    if output is OutputFormat.TABLE:
        print_errors(found, make_console(), traces=traces)
    else:
        print_rows(map(as_dict, found), output)


def find_errors(directory: Path) -> list[DistinctError]:
    """Read the errors in the mark files of a directory, in the order of their last observation.

    Raises:
        ConfigurationError: there is no mark file, or the directory holds groups.
        ClusterError: a mark file has no header.
    """
    names = (MARK_FILE_NAME, ARCHIVE_MARK_FILE_NAME)
    paths = [path for path in find_state_files(directory) if path.name in names or directory.is_file()]
    if not paths:
        refuse_groups(directory)
        expected = f"cluster/{MARK_FILE_NAME} or archive/{ARCHIVE_MARK_FILE_NAME} in it"
        raise ConfigurationError(f"nothing has run here: directory={directory} expected {expected}")
    found = [error for path in paths for error in read_errors(path)]
    return sorted(found, key=lambda error: error.last_ms)


def as_dict(error: DistinctError) -> dict[str, Any]:
    """Make the object that stands for an error in JSON; all keys are always there."""
    trouble = error.trouble
    return {
        "count": error.observation_count,
        "first": format_time(error.first_ms),
        "last": format_time(error.last_ms),
        "level": trouble.level,
        "event": trouble.event,
        "kind": trouble.kind,
        "place": trouble.place,
        "message": trouble.message,
        "trace": trouble.trace,
    }


def print_errors(found: list[DistinctError], console: Console, *, traces: bool) -> None:
    """Print a table, and below it the traces if they are wanted."""
    if not found:
        console.print("no errors")
        return
    table = new_table("count", "first", "last", "error", numbers=["count"])
    for error in found:
        trouble = error.trouble
        what = Text(" ".join(part for part in (trouble.event, trouble.kind) if part) or "?")
        what.stylize(_STYLES.get(trouble.level, ""))
        where = f" at {trouble.place}" if trouble.place else ""
        what.append(f"{where}\n{trouble.message}", style="default")
        table.add_row(f"{error.observation_count:,}", _time(error.first_ms), _time(error.last_ms), what)
    console.print(table)
    for error in found:
        if traces and error.trouble.trace:
            console.print()
            console.print(Text(f"{error.trouble.headline}\n{error.trouble.trace}"), soft_wrap=True)


def _time(epoch_ms: int) -> str:
    return format_time(epoch_ms) or "?"  # a damaged file may hold any number
