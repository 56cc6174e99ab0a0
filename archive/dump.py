"""`quorate archive dump DIR`: the frames or the complete messages of recordings, as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from service_api.wire.message import Registry

from .descriptor import RecordingDescriptor
from .errors import ArchiveError
from .message_view import APPLICATION, OPAQUE, find_message, view_message
from .output import OutputFormat, OutputOption, print_rows
from .reader import Frame, FrameReader, MessageReader
from .selection import DirectoryArgument, RecordingOption, load_catalog, refuse, select_entries

FromOption = Annotated[
    int | None, typer.Option("--from-position", min=0, help="Begin at this position, a frame boundary.")
]
LimitOption = Annotated[int | None, typer.Option("--limit", min=0, help="At most this many a recording.")]
MessagesOption = Annotated[bool, typer.Option("--messages", help="Complete messages instead of frames.")]


def build_dump(registry: Registry) -> Callable[..., None]:
    """Make the command; `registry` holds the messages that `--messages` decodes."""

    def dump(
        directory: DirectoryArgument,
        recording_id: RecordingOption = None,
        messages: MessagesOption = False,
        from_position: FromOption = None,
        limit: LimitOption = None,
        output: OutputOption = OutputFormat.JSONL,
    ) -> None:
        """Print the frames or messages of recordings."""
        rows = _dump_rows(
            directory,
            recording_id=recording_id,
            registry=registry if messages else None,
            from_position=from_position,
            limit=limit,
        )
        print_rows(rows, output, title="messages" if messages else "frames")

    return dump


def _dump_rows(
    directory: Path,
    *,
    recording_id: int | None,
    registry: Registry | None,
    from_position: int | None,
    limit: int | None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each frame, or with a registry for each message; then say on stderr what ended early."""
    entries = select_entries(load_catalog(directory), recording_id)
    if from_position is not None and recording_id is None and len(entries) > 1:
        refuse("--from-position needs --recording-id: positions are those of one recording")
    for entry in entries:
        if entry.descriptor is None:
            typer.echo(f"catalog entry at offset={entry.offset}: {entry.problem}", err=True)
            continue
        try:
            reader = FrameReader(directory, entry.descriptor, start_position=from_position)
        except ArchiveError as error:
            refuse(str(error))
        rows = (
            map(_frame_row, reader)
            if registry is None
            else _message_rows(directory, entry.descriptor, reader, registry)
        )
        for row in islice(rows, limit):
            yield {"recording_id": entry.descriptor.recording_id} | row
        if reader.stop_reason is not None and reader.stop_reason.name in ("BAD_FRAME", "FILE_CUT"):
            typer.echo(
                f"recording_id={entry.descriptor.recording_id} position={reader.position}: "
                f"{reader.stop_reason.value}: {reader.detail}",
                err=True,
            )


def _frame_row(frame: Frame) -> dict[str, Any]:
    row = frame._asdict()
    del row["payload"]
    return row


def _message_rows(
    directory: Path, descriptor: RecordingDescriptor, reader: FrameReader, registry: Registry
) -> Iterator[dict[str, Any]]:
    first = next(iter(MessageReader(FrameReader(directory, descriptor))), None)
    is_known = first is not None and find_message(first.payload, registry) is not None
    unknown_name = APPLICATION if is_known else OPAQUE
    for message in MessageReader(reader):
        yield view_message(message, registry, unknown_name=unknown_name)
