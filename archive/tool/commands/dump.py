"""`trimaran archive dump DIR`: the frames or the complete messages of recordings, as rows.

A row has the names that the layouts and the schema give to its parts, in their order, so that two dumps are compared
with `diff`. What is in the way of a whole dump is one line on standard error with the recording, the position and the
reason, and exit status 10 at the end; the recordings behind it are dumped all the same. It reads what the catalog
names: what lies before and behind that, `verify` looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

import typer

from ...errors import ArchiveError
from ...files.reader import NO_END, Frame, FrameReader, IncompleteMessage, MessageReader
from ...format.catalog import CatalogEntry, find_impossible
from ...format.descriptor import RecordingDescriptor
from ...log.log_file import LogFile
from ...log.member_directory import ArchiveLocation
from ...reading.message_view import Vocabulary
from ..output import EXIT_UNHEALTHY, OutputFormat, OutputOption, fail, print_rows
from ..selection import ArchiveArgument, RecordingOption, find_location, load_catalog, select_entries, tell_end
from .rows import view_recording

FromOption = Annotated[
    int | None, typer.Option("--from-position", min=0, help="Begin at this position, a frame boundary.")
]
LimitOption = Annotated[int | None, typer.Option("--limit", min=0, help="At most this many for each recording.")]
MessagesOption = Annotated[bool, typer.Option("--messages", help="Complete messages instead of frames.")]


def build_dump(vocabulary: Vocabulary) -> Callable[..., None]:
    """Make the command; `vocabulary` holds the messages that `--messages` decodes."""

    def dump(
        directory: ArchiveArgument,
        recording_id: RecordingOption = None,
        messages: MessagesOption = False,
        from_position: FromOption = None,
        limit: LimitOption = None,
        output: OutputOption = OutputFormat.JSONL,
    ) -> None:
        """Print the frames or messages of recordings; exit status 10 if damage stopped it."""
        archive = find_location(directory)
        entries = select_entries(load_catalog(archive), recording_id)
        if from_position is not None:
            _check_position(from_position, entries, recording_id)
        job = Dump(archive, vocabulary if messages else None, from_position=from_position, limit=limit)
        print_rows(job.rows(entries), output, title="messages" if messages else "frames")
        if job.damage_count:
            raise typer.Exit(EXIT_UNHEALTHY)

    return dump


def _check_position(from_position: int, entries: list[CatalogEntry], recording_id: int | None) -> None:
    """Refuse a position that is not one of the recording."""
    if recording_id is None and len(entries) > 1:
        fail("--from-position needs --recording-id: positions are those of one recording")
    for descriptor in (entry.descriptor for entry in entries):
        if descriptor is not None and (stop := descriptor.stop_position) is not None and from_position > stop:
            fail(
                f"--from-position is after the end: from_position={from_position} "
                f"recording_id={descriptor.recording_id} stop_position={stop}"
            )


@dataclass(slots=True)
class Dump:
    """One dump: of messages, given what they may be, or else of frames. `damage_count` is what was in the way."""

    archive: ArchiveLocation
    vocabulary: Vocabulary | None
    from_position: int | None = None
    limit: int | None = None
    damage_count: int = 0

    def rows(self, entries: list[CatalogEntry]) -> Iterator[dict[str, Any]]:
        """Yield a row for each frame or message of these recordings, saying on standard error what ends one early."""
        for entry in entries:
            descriptor = entry.descriptor
            if entry.problem is not None:
                named = "" if descriptor is None else f" recording_id={descriptor.recording_id}"
                self._report(f"catalog entry at offset={entry.offset}{named}: {entry.problem}")
            if descriptor is not None and find_impossible(descriptor) is None:
                yield from self._rows_of(descriptor)

    def _rows_of(self, descriptor: RecordingDescriptor) -> Iterator[dict[str, Any]]:
        recording_id = descriptor.recording_id
        try:
            log = LogFile(self.archive, descriptor)
            reader = log.reader(self.from_position)
        except ArchiveError as error:
            fail(str(error))
        rows = map(_frame_row, reader) if self.vocabulary is None else self._message_rows(log, reader)
        try:
            for row in islice(rows, self.limit):
                yield {"recording_id": recording_id} | row
            self.damage_count += tell_end(log, reader.ending())
        except OSError as error:
            self._report(f"recording_id={recording_id} position={reader.position}: not readable: {error}")

    def _message_rows(self, log: LogFile, reader: FrameReader) -> Iterator[dict[str, Any]]:
        assert self.vocabulary is not None
        descriptor = log.descriptor

        def on_incomplete(found: IncompleteMessage) -> None:
            line = f"recording_id={descriptor.recording_id} position={found.position}: {found.missing}"
            facts = f"{line}: end_position={found.end_position} frame_count={found.frame_count}"
            # A leader that died inside a message has left no end; and who begins inside one sees no beginning.
            is_expected = found.missing == NO_END or found.position == self.from_position
            self._note(facts) if is_expected else self._report(facts)

        is_whole = self.from_position in (None, descriptor.start_position)
        viewer = view_recording(log, self.vocabulary, is_whole=is_whole)
        for message in MessageReader(reader, on_incomplete=on_incomplete):
            view = viewer.view(message)
            if "problem" in view:
                self._report(
                    f"recording_id={descriptor.recording_id} position={message.position}: "
                    f"message does not decode: {view['problem']}"
                )
            yield view

    def _report(self, line: str) -> None:
        self.damage_count += 1
        self._note(line)

    def _note(self, line: str) -> None:
        typer.echo(line, err=True)


def _frame_row(frame: Frame) -> dict[str, Any]:
    row = frame._asdict()
    del row["payload"]
    return row
