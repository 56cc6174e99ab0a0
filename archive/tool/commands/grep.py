"""`trimaran archive grep DIR [REGEX]`: find messages by type, session, time or payload.

Memory is bounded by a message and its context, however long the recordings are.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

import typer

from ....service_api.quantities import parse_time, time_in_unit
from ....service_api.wire.message import Registry
from ...files.reader import MessageReader, RecordedMessage
from ...format.descriptor import RecordingState
from ...log.log_file import LogFile
from ...log.member_directory import ArchiveLocation
from ...reading.message_view import Vocabulary
from ...reading.search import UNKNOWN_NAMES, MessageQuery, find_hits
from ..output import EXIT_UNHEALTHY, OutputFormat, OutputOption, fail, print_rows, print_stream
from ..selection import (
    ArchiveArgument,
    RecordingOption,
    expect_descriptor,
    find_location,
    find_log,
    load_catalog,
    tell_end,
)
from .progress import INTERVAL_MESSAGES, Advance, one_bar, progress_bars
from .rows import HEADING, MessageRows, as_line

PatternArgument = Annotated[
    str | None, typer.Argument(metavar="REGEX", help="A regular expression over the payload's bytes, as UTF-8.")
]
FixedOption = Annotated[
    bool, typer.Option("-F", "--fixed", help="The pattern is a plain text, not a regular expression.")
]
IgnoreCaseOption = Annotated[bool, typer.Option("-i", "--ignore-case", help="Ignore the case of ASCII letters.")]
HexOption = Annotated[
    str | None, typer.Option("--hex", metavar="BYTES", help="Bytes to look for, such as 0a1b2c.", show_default=False)
]
TypeOption = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="NAME", help="Only messages of this type; repeatable."),
]
SessionOption = Annotated[
    int | None,
    typer.Option(
        "--session",
        metavar="ID",
        help="Only messages of this cluster session, or in other recordings of this frame session.",
        show_default=False,
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="From this time on: a date or a number.", show_default=False),
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Before this time.", show_default=False)
]
FromOption = Annotated[
    int | None, typer.Option("--from-position", min=0, help="Begin at this frame.", show_default=False)
]
ToOption = Annotated[
    int | None, typer.Option("--to-position", min=0, help="End before this position.", show_default=False)
]
LogOption = Annotated[bool, typer.Option("--log", help="Only the log of a cluster's member.")]
CountOption = Annotated[
    bool, typer.Option("-c", "--count", help="Print only the number of matches, for each recording.")
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", min=0, help="Stop after this many matches.", show_default=False)
]
ContextOption = Annotated[
    int, typer.Option("-C", "--context", min=0, max=100, help="Also show this many messages before and after a match.")
]


@dataclass(slots=True, kw_only=True)
class Search:
    """One search through recordings, and whether damage ended it early."""

    vocabulary: Vocabulary
    query: MessageQuery
    """What is looked for at any time."""
    since: int | datetime | None = None
    until: int | datetime | None = None
    """A date stands for the time in the unit that a log names."""
    context: int = 0
    from_position: int | None = None
    to_position: int | None = None
    is_damaged: bool = False

    def rows(self, log: LogFile, advance: Advance) -> Iterator[dict[str, Any]]:
        """Yield what is found in one recording."""
        rows = MessageRows.of(log, self.vocabulary)
        query = self._query_of(log)
        yield from map(rows.hit_row, find_hits(self._messages(log, advance), query, context=self.context))

    def count(self, log: LogFile, advance: Advance) -> int:
        """Count what is found in one recording."""
        query = self._query_of(log)
        return sum(query.match(message) is not None for message in self._messages(log, advance))

    def _query_of(self, log: LogFile) -> MessageQuery:
        if self.since is None and self.until is None:
            return self.query
        unit = log.time_unit()
        since, until = (None if time is None else time_in_unit(time, unit) for time in (self.since, self.until))
        return replace(self.query, since=since, until=until)

    def _messages(self, log: LogFile, advance: Advance) -> Iterator[RecordedMessage]:
        start = log.descriptor.start_position if self.from_position is None else self.from_position
        reader = log.reader(start)
        for number, message in enumerate(MessageReader(reader)):
            if self.to_position is not None and message.position >= self.to_position:
                return
            if not number % INTERVAL_MESSAGES:
                advance(message.position - start)
            yield message
        self.is_damaged |= tell_end(log, reader.ending())


def show_hits(search: Search, logs: Sequence[LogFile], limit: int | None, output: OutputFormat) -> None:
    """Print what is found, up to the limit; end with 10 where damage ended the search of a recording early."""
    start = search.from_position
    if start is not None and (start % 32 or start < logs[0].descriptor.start_position):
        expected = f"a multiple of 32, at least {logs[0].descriptor.start_position}"
        fail(f"invalid start position: --from-position={start} expected {expected}")
    print_stream(_rows(search, logs, limit), output, heading=HEADING, as_line=as_line)
    _end(search)


def _end(search: Search) -> None:
    if search.is_damaged:
        fail("damaged: the rest was not searched", EXIT_UNHEALTHY)


def build_grep(vocabulary: Vocabulary) -> Callable[..., None]:
    """Make the command; `vocabulary` holds the messages whose types, sessions and times it knows."""

    def grep(
        directory: ArchiveArgument,
        pattern: PatternArgument = None,
        fixed: FixedOption = False,
        ignore_case: IgnoreCaseOption = False,
        hex_bytes: HexOption = None,
        type_name: TypeOption = None,
        session: SessionOption = None,
        since: SinceOption = None,
        until: UntilOption = None,
        recording_id: RecordingOption = None,
        log: LogOption = False,
        from_position: FromOption = None,
        to_position: ToOption = None,
        count: CountOption = False,
        limit: LimitOption = None,
        context: ContextOption = 0,
        output: OutputOption = OutputFormat.TABLE,
    ) -> None:
        """Print the messages with a given type, session, time or payload; without a condition all of them.

        -o jsonl prints whole payloads, as text, or as base64 where they are not text. The exit status is 0 also if
        nothing is found, and 10 if damage ended the search of a recording early.
        """
        if log and recording_id is not None:
            fail("--log and --recording-id: expected one of them")
        if recording_id is None and not log and (from_position is not None or to_position is not None):
            fail("--from-position and --to-position need --recording-id or --log: they are those of one recording")
        query = MessageQuery(
            registry=vocabulary.registry,
            type_names=choose_types(type_name or [], vocabulary.registry),
            session_id=session,
            pattern=_compile(pattern, hex_bytes, is_fixed=fixed, ignores_case=ignore_case),
        )
        search = Search(
            vocabulary=vocabulary,
            query=query,
            since=_parse_time("--since", since),
            until=_parse_time("--until", until),
            context=context,
            from_position=from_position,
            to_position=to_position,
        )
        logs = [find_log(directory)] if log else _searchable(find_location(directory), recording_id)
        if not count:
            show_hits(search, logs, limit, output)
            return
        print_rows(_counts(search, logs), output)
        _end(search)

    return grep


def _searchable(archive: ArchiveLocation, recording_id: int | None) -> list[LogFile]:
    content = load_catalog(archive)
    if recording_id is not None:
        return [LogFile(archive, expect_descriptor(content, recording_id))]
    kept = [found for found in content.readable if found.state is not RecordingState.DELETED]
    return [LogFile(archive, descriptor) for descriptor in kept]


def _rows(search: Search, logs: Sequence[LogFile], limit: int | None) -> Iterator[dict[str, Any]]:
    """Yield what is found, and end with the match that reaches the limit."""
    left = limit
    with progress_bars(is_printing=True) as progress:
        for log in logs:
            if left == 0:
                return
            with one_bar(progress, f"recording {log.descriptor.recording_id}", _length(log)) as advance:
                for row in search.rows(log, advance):
                    yield row
                    if left is not None and row["match"]:
                        left -= 1
                        if not left:
                            return


def _counts(search: Search, logs: Sequence[LogFile]) -> list[dict[str, Any]]:
    counts: Counter[int] = Counter()
    with progress_bars() as progress:
        for log in logs:
            recording_id = log.descriptor.recording_id
            with one_bar(progress, f"recording {recording_id}", _length(log)) as advance:
                counts[recording_id] = search.count(log, advance)
    return [{"recording_id": number, "count": count} for number, count in counts.items()]


def _length(log: LogFile) -> int | None:
    descriptor = log.descriptor
    return None if descriptor.stop_position is None else descriptor.stop_position - descriptor.start_position


def choose_types(names: list[str], registry: Registry) -> frozenset[str]:
    """Check the names of types; what no registry knows has one name, however it is shown."""
    known = {model.WIRE_NAME for model in registry.values()} | UNKNOWN_NAMES
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=3)
            fail(f"no such type: --type={name} expected the name of a message" + (f", such as {near}" if near else ""))
    wanted = frozenset(names)
    return wanted | UNKNOWN_NAMES if wanted & UNKNOWN_NAMES else wanted


def _compile(
    pattern: str | None, hex_bytes: str | None, *, is_fixed: bool, ignores_case: bool
) -> re.Pattern[bytes] | None:
    if pattern is not None and hex_bytes is not None:
        fail("give a pattern or --hex, not both")
    if hex_bytes is not None:
        try:
            return re.compile(re.escape(bytes.fromhex(hex_bytes)))
        except ValueError:
            fail(f"invalid hex bytes: --hex={hex_bytes} expected pairs of digits, such as 0a1b2c")
    if pattern is None:
        return None
    data = pattern.encode(errors="surrogateescape")
    try:
        return re.compile(re.escape(data) if is_fixed else data, re.DOTALL | (re.IGNORECASE if ignores_case else 0))
    except re.error as error:
        fail(f"invalid regular expression: pattern={pattern}: {error}; use -F to search for plain text")


def _parse_time(option: str, text: str | None) -> int | datetime | None:
    try:
        return None if text is None else parse_time(text)
    except ValueError as error:
        fail(f"{option}: {error}")
