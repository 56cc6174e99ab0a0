"""What all commands share in what they print and how they end: formats, tables, documents, exit statuses.

Every command ends with one of the statuses below and says why in one line on standard error, if it is not the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

import typer
from pydantic import BaseModel
from rich.console import RenderableType

from trimaran.archive.tool.output import ABSENT as ABSENT
from trimaran.archive.tool.output import EXIT_REFUSED as EXIT_REFUSED
from trimaran.archive.tool.output import EXIT_UNHEALTHY as EXIT_UNHEALTHY
from trimaran.archive.tool.output import EXIT_USAGE as EXIT_USAGE
from trimaran.archive.tool.output import OutputFormat as OutputFormat
from trimaran.archive.tool.output import OutputOption as OutputOption
from trimaran.archive.tool.output import ended_by_reader as ended_by_reader
from trimaran.archive.tool.output import make_console as make_console
from trimaran.archive.tool.output import new_table as new_table
from trimaran.archive.tool.output import print_line as print_line
from trimaran.archive.tool.output import print_rows as print_rows

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
"""It was tried, and did not work: an error on the way, a rule that was broken."""
EXIT_UNREACHABLE: Final = 3
"""No member could be reached."""
EXIT_NO_LEADER: Final = 11
"""Members answer, and none leads."""
EXIT_INTERRUPTED: Final = 130
"""Ended by Ctrl-C before it was through."""
EXIT_TERMINATED: Final = 143
"""Ended by SIGTERM before it was through."""


def fail(exit_status: int, reason: str) -> NoReturn:
    """End the command with a status and one line on standard error.

    Raises:
        Exit: always.
    """
    typer.echo(f"trimaran: {reason}", err=True)
    raise typer.Exit(exit_status)


def print_document(document: BaseModel, output: OutputFormat, as_table: Callable[[], RenderableType]) -> None:
    """Print one document: drawn by `as_table` for people, as an object of JSON over several lines, or on one."""
    with ended_by_reader():
        if output is OutputFormat.TABLE:
            make_console().print(as_table())
        else:
            typer.echo(document.model_dump_json(indent=2 if output is OutputFormat.JSON else None))
