"""Archive directories with one log, written file by file: long terms, any frames, as many segments as it takes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from trimaran.archive.format.catalog import CATALOG_FILE_NAME, encode_catalog
from trimaran.archive.format.descriptor import RecordingDescriptor
from trimaran.service_api.types import RecordingId
from trimaran.service_api.wire.frame import encode_message, encode_padding, framed_length
from trimaran.service_api.wire.request import REQUEST_HEADER, REQUEST_MESSAGE

TERM_LENGTH = 1 << 20
SESSION_MESSAGE = struct.Struct("<HHHHqqq")


class Entry(NamedTuple):
    """A session message of a log."""

    payload: bytes
    leadership_term_id: int = 0
    timestamp: int = 0
    request_sequence: int | None = None
    """Of a request, whose header is 16 bytes longer."""


def write_log(
    directory: Path,
    entries: Iterable[Entry],
    *,
    term_length: int = TERM_LENGTH,
    segment_length: int = TERM_LENGTH,
    mtu_length: int = 1408,
    is_stopped: bool = True,
) -> RecordingDescriptor:
    """Write entries as recording 0; every message begins at the position that `positions_of` says."""
    data = bytearray()
    for entry in entries:
        header = SESSION_MESSAGE.pack(24, 1, 111, 16, entry.leadership_term_id, 7, entry.timestamp)
        if entry.request_sequence is not None:
            place = (entry.leadership_term_id, 7, entry.timestamp)
            header = REQUEST_HEADER.pack(*REQUEST_MESSAGE, *place, entry.request_sequence, 0)
        message = header + entry.payload
        room = term_length - len(data) % term_length
        if framed_length(len(message), mtu_length) > room:
            data += encode_padding(room, stream_id=100, **_place(data, term_length))
        data += encode_message(
            message, stream_id=100, mtu_length=mtu_length, checksum_kind=None, **_place(data, term_length)
        )
    descriptor = RecordingDescriptor(
        recording_id=RecordingId(0),
        start_timestamp_ms=0,
        start_position=0,
        stop_position=len(data) if is_stopped else None,
        initial_term_id=0,
        segment_file_length=segment_length,
        term_buffer_length=term_length,
        mtu_length=mtu_length,
        session_id=1,
        stream_id=100,
    )
    directory.mkdir(parents=True, exist_ok=True)
    for base in range(0, len(data) + 1, segment_length):
        name = descriptor.segment_file_name(base)
        (directory / name).write_bytes(bytes(data[base : base + segment_length]).ljust(segment_length, b"\0"))
    write_catalog(directory, [descriptor])
    return descriptor


def write_catalog(directory: Path, descriptors: Sequence[RecordingDescriptor]) -> None:
    """Write the catalog of an archive."""
    (directory / CATALOG_FILE_NAME).write_bytes(encode_catalog(descriptors, next_recording_id=len(descriptors)))


def overwrite(directory: Path, descriptor: RecordingDescriptor, position: int, data: bytes) -> None:
    """Change bytes of a recording."""
    base = descriptor.segment_base_position(position)
    with (directory / descriptor.segment_file_name(base)).open("r+b") as file:
        file.seek(position - base)
        file.write(data)


def renamed(descriptor: RecordingDescriptor, recording_id: int) -> RecordingDescriptor:
    """The same recording under another id."""
    return replace(descriptor, recording_id=RecordingId(recording_id))


def _place(data: bytearray, term_length: int) -> dict[str, int]:
    return {"term_id": len(data) // term_length, "term_offset": len(data) % term_length, "session_id": 1}
