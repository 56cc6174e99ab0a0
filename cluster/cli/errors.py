"""`trimaran errors`: the errors of members: asked of members that run, or read from a directory, ours or Aeron's.

In a directory they are in the mark files of a member or an archive. Nothing is asked of the member then and no lock is
taken, so it works while the member runs, after it was killed, and on a copy of the directory. The times are the
member's own clock's.

Exit status: 0 at least one member answered, or the directory was read; 2 wrong usage; 3 no member can be reached;
12 the caller may not have them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from ...archive.files.mark_file import MARK_FILE_NAME as ARCHIVE_MARK_FILE_NAME
from ...archive.log.group_directories import refuse_groups
from ...archive.tool.output import OutputFormat, OutputOption, format_time, make_console, new_table, print_rows
from ...service_api import ConfigurationError
from ..documents.diagnosis import ROW_LIMIT, DiagnosisRequest, DiagnosisTopic, ErrorRow, Level
from ..runtime.files.error_log import DistinctError, ErrorObservation, read_errors
from ..runtime.files.mark_file import MARK_FILE_NAME
from .shared.diagnosing import LevelOption, OneMemberOption, SinceOption, diagnose_all, expect_answers, parse_since
from .shared.every_group import of_every_group
from .shared.setting_flags import load_asked_cluster, with_member_flags
from .shared.watching import TimeoutOption
from .state import find_state_files

_STYLES: Final = {"critical": "bold red", "error": "red", "warning": "yellow"}


@with_member_flags
def errors(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="A member's directory, an archive's, or a mark file itself. [default: ask the members]",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
    traces: Annotated[bool, typer.Option("--traces", help="Show the stack traces in the table, too.")] = False,
    since: SinceOption = None,
    level: LevelOption = Level.DEBUG,
    member: OneMemberOption = None,
    timeout: TimeoutOption = 1.0,
    **settings: Any,
) -> None:
    """Show the errors of members: each distinct error with its count, first and last time.

    Without DIR every member is asked, which takes an operator's role. With DIR the member may be running or dead. The
    most recent error comes last.
    """
    since_ms = parse_since(since)
    if path is None:
        request = DiagnosisRequest(topic=DiagnosisTopic.ERRORS, since_ms=since_ms, level=level, limit=ROW_LIMIT)
        _ask(output=output, traces=traces, member=member, timeout=timeout, request=request, **settings)
        return
    found = [each for each in find_errors(path) if each.last_ms >= since_ms and level.includes(each.trouble.level)]
    if output is OutputFormat.TABLE:
        print_errors(found, make_console(), traces=traces)
    else:
        print_rows(map(as_dict, found), output)


@of_every_group
def _ask(
    output: OutputFormat, traces: bool, member: int | None, timeout: float, request: DiagnosisRequest, **settings: Any
) -> None:
    """Ask the members of one group, and print what they have."""
    cluster = load_asked_cluster(settings).only(member)
    answers = expect_answers(asyncio.run(diagnose_all(cluster, request, timeout)))
    found = {member_id: [_read_row(row) for row in answer.errors] for member_id, answer in answers.items()}
    if output is not OutputFormat.TABLE:
        print_rows(
            ({"member_id": member_id, **as_dict(error)} for member_id in found for error in found[member_id]), output
        )
        return
    console = make_console()
    for member_id, errors_of_member in found.items():
        console.print(Text(f"member {member_id}", style="bold"))
        print_errors(errors_of_member, console, traces=traces)


def _read_row(row: ErrorRow) -> DistinctError:
    trouble = ErrorObservation(row.level, row.event, row.kind, row.place, row.message, row.trace)
    return DistinctError(row.count, row.first_ms, row.last_ms, trouble)


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
