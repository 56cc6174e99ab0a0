"""`trimaran log tail|dump`: read the entries of a log; nothing is changed, and no member is disturbed.

A directory may be that of a member that runs: its log ends where nothing is written yet. What stands near the end of a
directory may not be committed; with --members only what is.

Exit status: 0 read up to the end; 2 wrong usage, or no log there; 3 no member can be reached; 10 the log is damaged:
the file, the recording and the position are named; 11 members answer, and none leads.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from trimaran.archive.errors import CorruptionError
from trimaran.archive.tool.output import (
    EXIT_UNHEALTHY,
    OutputFormat,
    OutputOption,
    ended_by_reader,
    fail,
    make_console,
    new_group,
    print_line,
)
from trimaran.service_api.errors import ConfigurationError

from ..shared.member_directory import MemberDirectoryArgument
from ..shared.setting_flags import load_members_from_flags, with_member_flags
from ..shared.watching import TimeoutOption, pause
from .directory import LogDirectory, LogReader
from .entry import TABLE_HEADING, LogEntry

FOLLOW_INTERVAL_S: Final = 0.2
WIDTH_IN_PIPE: Final = 160

OptionalDirectoryArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[DIR]", help="A member's directory; without it, the members are asked.", show_default=False
    ),
]
CountOption = Annotated[int, typer.Option("-n", "--entries", min=0, help="So many entries before the end.")]
FollowOption = Annotated[bool, typer.Option("-f", "--follow", help="Go on with new entries, until Ctrl-C.")]
FromOption = Annotated[
    int | None, typer.Option("--from-position", min=0, help="Begin at this entry.", show_default=False)
]
ToOption = Annotated[
    int | None, typer.Option("--to-position", min=0, help="End before this position.", show_default=False)
]
LimitOption = Annotated[int | None, typer.Option("--limit", min=0, help="At most so many.", show_default=False)]
TypeOption = Annotated[
    str | None, typer.Option("--type", metavar="NAME", help="Only entries of this type.", show_default=False)
]
SessionOption = Annotated[
    int | None, typer.Option("--session", metavar="ID", help="Only entries of this session.", show_default=False)
]

app: Final = new_group("Read the log: its last entries as they come, or all of it.")


@app.command()
@with_member_flags
def tail(
    directory: OptionalDirectoryArgument = None,
    count: CountOption = 10,
    follow: FollowOption = False,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 1.0,
    **settings: Any,
) -> None:
    """Show the last entries of a log, and with -f the new ones as they come.

    Of a member's directory, which may be in use; or with --members what the cluster has committed, from the archive of
    its leader.

    Examples: trimaran log tail -f data/node-0;
    trimaran log tail -f --members 0=10.0.0.1:9000,1=10.0.0.2:9000,2=10.0.0.3:9000 -o jsonl
    """
    if follow and output is OutputFormat.JSON:
        raise ConfigurationError("what goes on is no single document: -f with -o json; use -o jsonl")
    if directory is not None:
        batches = _directory_batches(directory, count, is_followed=follow)
    else:
        from .remote import ClusterLog

        batches = ClusterLog(load_members_from_flags(settings), timeout).batches(count, is_followed=follow)
    _print_entries(itertools.chain.from_iterable(batches), output)


@app.command()
def dump(
    directory: MemberDirectoryArgument,
    from_position: FromOption = None,
    to_position: ToOption = None,
    limit: LimitOption = None,
    type_name: TypeOption = None,
    session: SessionOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the log of a member, an entry a line: position, term, type, session, time, and the payload's beginning.

    With -o jsonl an object for each entry, with the whole payload as text, or base64 where it is none.

    Examples: trimaran log dump data/node-0 --type SessionOpenEvent;
    trimaran log dump data/node-0 --from-position 4096 --limit 10 -o jsonl
    """
    reader = _find_log(directory).reader(from_position)
    entries: Iterator[LogEntry] = iter(reader)
    if to_position is not None:
        entries = itertools.takewhile(lambda entry: entry.position < to_position, entries)
    if type_name is not None:
        entries = (entry for entry in entries if entry.type == type_name)
    if session is not None:
        entries = (entry for entry in entries if entry.cluster_session_id == session)
    _print_entries(itertools.islice(entries, limit), output)
    _fail_if_damaged(reader)


def _directory_batches(directory: Path, count: int, *, is_followed: bool) -> Iterator[Iterable[LogEntry]]:
    """Give the last entries, then for as long as it is followed what has come since."""
    log = _find_log(directory)
    entries, reader = log.last_entries(count)
    yield entries
    _fail_if_damaged(reader)
    position = reader.position
    while is_followed:
        pause(FOLLOW_INTERVAL_S)
        reader = log.reader(position)
        yield reader
        _fail_if_damaged(reader)
        position = reader.position


def _find_log(directory: Path) -> LogDirectory:
    try:
        return LogDirectory.find(directory)
    except CorruptionError as error:
        fail(str(error), EXIT_UNHEALTHY)


def _fail_if_damaged(reader: LogReader) -> None:
    if reader.damage is not None:
        fail(reader.damage, EXIT_UNHEALTHY)


def _print_entries(entries: Iterable[LogEntry], output: OutputFormat) -> None:
    """Print entries as they come; only a JSON document waits for the last one."""
    printers: dict[OutputFormat, Callable[[], None]] = {
        OutputFormat.TABLE: lambda: _print_lines(entries),
        OutputFormat.JSON: lambda: typer.echo(json.dumps([entry.as_dict() for entry in entries], indent=2)),
        OutputFormat.JSONL: lambda: _print_jsonl(entries),
    }
    with ended_by_reader():
        with contextlib.suppress(KeyboardInterrupt):  # the proper end of following
            printers[output]()
        sys.stdout.flush()


def _print_lines(entries: Iterable[LogEntry]) -> None:
    width = make_console(WIDTH_IN_PIPE).width
    typer.echo(TABLE_HEADING[:width])
    for entry in entries:
        typer.echo(entry.as_line(width))


def _print_jsonl(entries: Iterable[LogEntry]) -> None:
    for entry in entries:
        print_line(entry.as_dict())
