"""The journal of the pending edit, so that after a crash the edit is done or not begun.

The problem: cutting, purging or moving segments changes the catalog and several files, and a crash may come between any
two of these changes. The idea: what is to be done is written to `archive.edit`, durably, before anything is changed.
Each step of an edit may be done again without harm, so the next start does the whole edit once more, and then removes
the file. Invariant: at most one edit is under way, and no other change begins before it is over.
Rejected: telling from the files what was meant. Segments below the start of a recording are what an interrupted purge
leaves, and just as well what a detach means to keep.

    8 bytes magic @0, int32 kind @8, int64 recording id @16, int64 position @24, int64 stop position @32,
    int64 destination recording id @40, int64 timestamp in ms @48, uint32 CRC-32 over all else @56,
    and of a MEND what belongs in [position, stop position) @60
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

from ...service_api.types import NULL_POSITION, NULL_VALUE
from ..disk.file_system import FileSystem, read_fully, write_fully
from ..errors import RESTORE_ADVICE, UnknownVersionError

EDIT_FILE_NAME: Final = "archive.edit"

_MAGIC: Final = b"QEDIT\x00\x00\x01"
_RECORD: Final = struct.Struct("<8si4xqqqqq")
_CRC: Final = struct.Struct("<I")
_HEAD_LENGTH: Final = _RECORD.size + _CRC.size


class EditKind(IntEnum):
    """What is done to a recording. The values are on disk."""

    TRUNCATE = 1
    """Its stop position becomes `position`; what lies after is removed or zeroed."""
    PURGE = 2
    """Its start position becomes `position`, if it is before that; the segments below are removed."""
    MIGRATE = 3
    """The segments of its range [`position`, `stop_position`) go to the recording `dst_recording_id`."""
    MEND = 4
    """Its range [`position`, `stop_position`), which lies in one segment, gets the bytes `data`."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Edit:
    """One edit, in numbers that stay true however much of it is done."""

    kind: EditKind
    recording_id: int
    position: int
    stop_position: int = NULL_POSITION
    dst_recording_id: int = NULL_VALUE
    timestamp_ms: int
    data: bytes = b""

    def encode(self) -> bytes:
        """Build the record."""
        record = _RECORD.pack(
            _MAGIC,
            self.kind,
            self.recording_id,
            self.position,
            self.stop_position,
            self.dst_recording_id,
            self.timestamp_ms,
        )
        return record + _CRC.pack(zlib.crc32(self.data, zlib.crc32(record))) + self.data


def decode_edit(data: bytes) -> Edit | None:
    """Read a record; None for one that is not whole: then its edit was not begun.

    Raises:
        CorruptionError: it is whole and says something this version does not know.
    """
    record, crc, frames = data[: _RECORD.size], data[_RECORD.size : _HEAD_LENGTH], data[_HEAD_LENGTH:]
    if len(record) < _RECORD.size or crc != _CRC.pack(zlib.crc32(frames, zlib.crc32(record))):
        return None
    magic, kind, recording_id, position, stop_position, dst_recording_id, timestamp_ms = _RECORD.unpack(record)
    if magic != _MAGIC or kind not in EditKind.__members__.values():
        raise UnknownVersionError(
            f"unknown edit: file={EDIT_FILE_NAME} magic={magic!r} kind={kind}; if a newer version wrote it, use that "
            f"one, else {RESTORE_ADVICE}"
        )
    return Edit(
        kind=EditKind(kind),
        recording_id=recording_id,
        position=position,
        stop_position=stop_position,
        dst_recording_id=dst_recording_id,
        timestamp_ms=timestamp_ms,
        data=frames,
    )


class EditJournal:
    """The file of the edit under way in one archive directory. Every method blocks; one caller at a time."""

    def __init__(self, file_system: FileSystem, directory: Path, *, sync_level: int) -> None:
        self._file_system = file_system
        self._directory = directory
        self._path = directory / EDIT_FILE_NAME
        self._sync_level = sync_level
        self.is_pending = False
        """Whether an edit was begun here and is not over: it has failed half-way."""

    def begin(self, edit: Edit) -> None:
        """Write the edit down, durably. There is none under way."""
        self.is_pending = True
        handle = self._file_system.open_file(self._path, create=True)
        try:
            write_fully(self._file_system, handle, edit.encode(), 0)
            if self._sync_level:
                self._file_system.sync_file(handle)
        finally:
            self._file_system.close_file(handle)
        self._sync_directory()

    def end(self) -> None:
        """Record durably that the edit is over: it must not be done again after a later edit."""
        if EDIT_FILE_NAME in self._file_system.list_directory(self._directory):
            self._file_system.remove(self._path)
        self._sync_directory()
        self.is_pending = False

    def read(self) -> Edit | None:
        """Return the edit that is to be done again; None when there is none, or one that was not begun."""
        try:
            handle = self._file_system.open_file(self._path, writable=False)
        except FileNotFoundError:
            return None
        self.is_pending = True
        try:
            return decode_edit(read_fully(self._file_system, handle, self._file_system.file_length(handle), 0))
        finally:
            self._file_system.close_file(handle)

    def _sync_directory(self) -> None:
        if self._sync_level:
            self._file_system.sync_directory(self._directory)
