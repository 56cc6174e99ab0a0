"""`trimaran archive diff A B`: the first position at which two members' recordings differ, and what lies there in each.

Exit status 0 the same in the range that both have, also where one goes on; 10 different, damaged, nothing in common,
or with --exact one longer than the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from rich.console import Group
from rich.text import Text

from ....service_api.wire.frame import HEADER_LENGTH
from ...files.reader import Frame, MessageReader, RecordedMessage
from ...reading.difference import Difference, Side, Verdict, compare
from ...reading.message_view import Vocabulary
from ..output import ABSENT, EXIT_UNHEALTHY, OutputFormat, OutputOption, new_table, print_object
from ..selection import choose_recording, find_location, tell_end
from .progress import one_bar, progress_bars
from .rows import MessageRows

SideArgument = Annotated[
    str, typer.Argument(metavar="DIR|URL", help="An archive directory, or a member's, or its URL in an object store.")
]
RecordingOption = Annotated[
    int | None, typer.Option("--recording-id", min=0, help="This recording, not the log.", show_default=False)
]
OtherOption = Annotated[
    int | None,
    typer.Option("--other-recording-id", min=0, help="The id of the recording in B.", show_default=False),
]
ExactOption = Annotated[bool, typer.Option("--exact", help="Exit status 10 also if one is only longer.")]

_NOT_IN_TABLE: Final = frozenset({"recording_id", "session_id", "match", "match_offset", "payload", "payload_encoding"})
_SAME: Final = (Verdict.EQUAL, Verdict.A_LONGER, Verdict.B_LONGER)


def build_diff(vocabulary: Vocabulary) -> Callable[..., None]:
    """Make the command; `vocabulary` holds the messages that it decodes."""

    def diff(
        a: SideArgument,
        b: SideArgument,
        recording_id: RecordingOption = None,
        other_recording_id: OtherOption = None,
        exact: ExactOption = False,
        output: OutputOption = OutputFormat.TABLE,
    ) -> None:
        """Compare the logs of two members, or another recording, where both have it, and show where they differ.

        It ignores where they begin and end, how they are divided into files, and the session id of a frame if a
        checksum replaces it. Exit status 10 if they differ, one is damaged, or nothing could be compared.
        """
        other_id = recording_id if other_recording_id is None else other_recording_id
        files = [choose_recording(find_location(name), wanted) for name, wanted in ((a, recording_id), (b, other_id))]
        begin = max(file.descriptor.start_position for file in files)
        sides = [Side.open(file, begin) for file in files]
        total = max(0, min(side.end.position for side in sides) - begin)
        with progress_bars() as progress, one_bar(progress, "compared", total) as advance:
            found = compare(sides[0], sides[1], on_progress=advance)
        report = _report(sides, found, vocabulary)
        print_object(report, output, lambda: _draw(report))
        damaged = [tell_end(side.file, side.end) for side in sides]
        if any(damaged) or found.verdict not in _SAME or (exact and found.verdict is not Verdict.EQUAL):
            raise typer.Exit(EXIT_UNHEALTHY)

    return diff


def _report(sides: list[Side], found: Difference, vocabulary: Vocabulary) -> dict[str, Any]:
    """Make the object that is printed; all keys are always there."""
    mismatch = found.mismatch
    frames = (None, None) if mismatch is None else (mismatch.frame_a, mismatch.frame_b)
    faults = (None, None) if mismatch is None else (mismatch.fault_a, mismatch.fault_b)
    payload_offset = None if mismatch is None else mismatch.payload_offset
    sides_in_detail = [
        {
            "directory": str(side.file.location),
            "recording_id": side.descriptor.recording_id,
            "start_position": side.descriptor.start_position,
            "end_position": side.end.position,
            "damage": side.end.damage,
            "checksummed": side.descriptor.checksummed,
            "frame": None if frame is None else _frame_row(frame),
            "message": None if frame is None else _message_row(side, frame, payload_offset, vocabulary),
            "fault": fault,
        }
        for side, frame, fault in zip(sides, frames, faults, strict=True)
    ]
    return {
        "verdict": found.verdict.value,
        "start_position": found.start_position,
        "stop_position": found.stop_position,
        "position": None if mismatch is None else mismatch.position,
        "what": [] if mismatch is None else list(mismatch.what),
        "a": sides_in_detail[0],
        "b": sides_in_detail[1],
    }


def _frame_row(frame: Frame) -> dict[str, Any]:
    row = frame._asdict()
    del row["payload"]
    return row


def _message_row(side: Side, frame: Frame, payload_offset: int | None, vocabulary: Vocabulary) -> dict[str, Any] | None:
    """Show the message that a frame is a part of, around an offset in the frame's payload.

    None for padding, or where that message is not whole. All fragments of a message but the last have the same length.
    """
    for message in _messages_of_term(side, frame.position):
        if message.position <= frame.position < message.end_position:
            mtu_length = side.descriptor.mtu_length
            offset = (frame.position - message.position) // mtu_length * (mtu_length - HEADER_LENGTH)
            around = None if payload_offset is None else offset + payload_offset
            return MessageRows.of(side.file, vocabulary).row(message, around=around)
        if message.position > frame.position:
            break
    return None


def _messages_of_term(side: Side, position: int) -> Iterator[RecordedMessage]:
    """Read the messages of the term that holds a position: none begins before it, or ends behind it."""
    term_start = position - position % side.descriptor.term_buffer_length
    start = max(term_start, side.descriptor.start_position)
    return iter(MessageReader(side.file.reader(start, checksummed=False)))


@dataclass(slots=True, frozen=True)
class _Line:
    """One line of the table: a fact, and what it is in each of the two."""

    name: str
    a: Any  # what JSON knows
    b: Any  # likewise

    @property
    def is_different(self) -> bool:
        return bool(self.a != self.b)


def _draw(report: dict[str, Any]) -> Group:
    head = f"{report['verdict']}: compared positions {report['start_position']} to {report['stop_position']}"
    if report["position"] is not None:
        head += f"; at position {report['position']}: {', '.join(report['what']) or 'a frame is missing'}"
    table = new_table("", "a", "b", folding=("a", "b"))
    for line in _lines(report["a"], report["b"]):
        style = "bold" if line.is_different else ""
        values = [Text(ABSENT if value is None else str(value), style=style) for value in (line.a, line.b)]
        table.add_row(line.name, *values)
    return Group(Text(head, style="bold"), "", table)


def _lines(a: dict[str, Any], b: dict[str, Any]) -> Iterator[_Line]:
    for name in ("directory", "recording_id", "start_position", "end_position", "damage", "checksummed", "fault"):
        yield _Line(name.replace("_", " "), a[name], b[name])
    for part in ("frame", "message"):
        of_a, of_b = _flat(a[part]), _flat(b[part])
        for name in dict.fromkeys([*of_a, *of_b]):
            if part == "frame" or name not in _NOT_IN_TABLE:
                yield _Line(f"{part} {name}", of_a.get(name), of_b.get(name))


def _flat(row: dict[str, Any] | None) -> dict[str, Any]:
    """Return the fields of a message as rows of their own."""
    if row is None:
        return {}
    fields: dict[str, Any] = row.get("fields", {})
    return {name: value for name, value in row.items() if name != "fields"} | fields
