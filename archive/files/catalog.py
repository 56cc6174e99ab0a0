"""The catalog file, `archive.catalog`, changed durably and in place; `format.catalog` has its layout.

The problem: an entry is changed in place (a recording stops, is extended, is cut), and a power loss in the
middle of that write may leave half of it, without a checksum in the middle of a list that has no other index.
The idea: before an entry is written, its new bytes go, with their CRC-32, to `archive.catalog.redo`, which is
synced first. At the next start an entry that is not valid is written again from there.
Invariant: at every moment either the entry in place or the redo record is whole.
No checksum covers the next recording id in the file header; it is in the redo record, too, which a start believes.
Rejected: rewriting the whole catalog under another name and renaming it (1 MiB written for 256 bytes), and
trusting sector atomicity (the checksum and the stop position of an entry lie in different 64-byte lines).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...service_api.types import RecordingId
from ...service_api.wire.checksum import ChecksumKind
from ..cold.file_system import ColdFileSystem
from ..disk.file_system import FileSystem, ReadableFileSystem, read_file, read_fully, write_fully, write_new_file
from ..errors import RESTORE_ADVICE, ArchiveError, ArchiveErrorCode, CorruptionError
from ..format.catalog import (
    CATALOG_FILE_NAME,
    ENTRY_ALIGNMENT,
    ENTRY_HEADER_LENGTH,
    HEADER_LENGTH,
    INITIAL_LENGTH_BYTES,
    CatalogContent,
    CatalogEntry,
    encode_entry,
    encode_header,
    parse_catalog,
)
from ..format.descriptor import RecordingDescriptor
from .frame_checksum import has_unknown_checksums

REDO_FILE_NAME: Final = "archive.catalog.redo"
_REDO_HEADER: Final = struct.Struct("<8sqqII")
_REDO_MAGIC: Final = b"QREDO\x00\x00\x01"


def read_catalog(file_system: ReadableFileSystem, directory: Path) -> CatalogContent:
    """Read the catalog of an archive directory without changing anything. A log begins with its cold segments.

    Raises:
        OSError: there is no catalog, or it cannot be read.
        CorruptionError: it is not a catalog.
    """
    content = parse_catalog(read_file(file_system, directory / CATALOG_FILE_NAME))
    content = settle_checksums(file_system, directory, content)
    if not isinstance(file_system, ColdFileSystem):
        return content
    extended = [
        entry if entry.descriptor is None else replace(entry, descriptor=file_system.extend(entry.descriptor))
        for entry in content.entries
    ]
    return replace(content, entries=tuple(extended))


def settle_checksums(file_system: ReadableFileSystem, directory: Path, content: CatalogContent) -> CatalogContent:
    """Return a catalog as parsed, in which entries whose checksum is of an unknown kind are no longer called wrong.

    Where another entry has a known checksum, an archive has used that one, and what does not fit is damage.

    Raises:
        OSError: a segment file cannot be read.
    """
    if not any(entry.wrong_checksum for entry in content.entries):
        return content
    known = [entry.descriptor for entry in content.entries if entry.descriptor is not None and not entry.wrong_checksum]
    wrong = [
        entry.descriptor
        for entry in content.entries
        # Of one that is impossible besides, no frame could be found.
        if entry.descriptor is not None and entry.wrong_checksum and entry.other_problem is None
    ]
    if any(descriptor.checksummed for descriptor in known):
        return content
    if not any(has_unknown_checksums(file_system, directory, descriptor) for descriptor in wrong):
        return content
    return replace(content, entries=tuple(_with_unknown_checksum(entry) for entry in content.entries))


class Catalog:
    """The catalog of one archive, open for changes. Every method blocks; one caller at a time.

    A change is durable when the method returns, unless `sync_level` is 0.
    """

    def __init__(self, file_system: FileSystem, directory: Path, *, sync_level: int) -> None:
        self._file_system = file_system
        self._directory = directory
        self._sync_level = sync_level
        self._handle = -1
        self._redo_handle = -1
        self._file_length = 0
        self._end_offset = HEADER_LENGTH
        self._next_recording_id = 0
        self._entries: dict[RecordingId, tuple[int, RecordingDescriptor]] = {}

    def open(self) -> None:
        """Load the catalog, creating an empty one in a directory that has none, and repair a torn entry.

        Raises:
            CorruptionError: an entry is not valid and cannot be restored.
        """
        names = self._file_system.list_directory(self._directory)
        if CATALOG_FILE_NAME not in names:
            if any(name.endswith(".rec") for name in names):
                raise CorruptionError(
                    f"segment files but no {CATALOG_FILE_NAME}: directory={self._directory}; {RESTORE_ADVICE}"
                )
            self._create(CATALOG_FILE_NAME, INITIAL_LENGTH_BYTES, encode_header(0))
        if REDO_FILE_NAME not in names:
            self._create(REDO_FILE_NAME, 0, b"")
        self._handle = self._file_system.open_file(self._directory / CATALOG_FILE_NAME)
        self._redo_handle = self._file_system.open_file(self._directory / REDO_FILE_NAME)
        if self._sync_level:
            # A process that died may have left them with the kernel only, and what is read here is believed.
            for handle in (self._handle, self._redo_handle):
                self._file_system.sync_file(handle)
            self._file_system.sync_directory(self._directory)
        content = self._read()
        if any(entry.problem for entry in content.entries) or self._redo_is_beyond(content):
            self._apply_redo(content)
            content = self._read()
        self._load(content)
        self._settle_next_recording_id(content.header.next_recording_id)

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        for handle in (self._handle, self._redo_handle):
            if handle >= 0:
                self._file_system.close_file(handle)
        self._handle = self._redo_handle = -1

    @property
    def next_recording_id(self) -> RecordingId:
        """The id that the next recording gets."""
        return RecordingId(self._next_recording_id)

    def get(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording.

        Raises:
            ArchiveError: UNKNOWN_RECORDING.
        """
        try:
            return self._entries[RecordingId(recording_id)][1]
        except KeyError:
            raise ArchiveError(
                "unknown recording", code=ArchiveErrorCode.UNKNOWN_RECORDING, recording_id=recording_id
            ) from None

    def descriptors(self) -> list[RecordingDescriptor]:
        """Return every descriptor, in order of recording id."""
        return [self._entries[recording_id][1] for recording_id in sorted(self._entries)]

    def add(self, descriptor: RecordingDescriptor) -> None:
        """Append the entry of a new recording, whose id must be the next one.

        Raises:
            ArchiveError: it is another id.
            OSError: the disk refused.
        """
        if descriptor.recording_id != self._next_recording_id:
            raise ArchiveError(
                f"recording id out of order: expected={self._next_recording_id}",
                recording_id=descriptor.recording_id,
            )
        data = encode_entry(descriptor)
        offset = self._end_offset
        self._make_room(offset + len(data) + ENTRY_HEADER_LENGTH)
        self._write_redo(offset, data, self._next_recording_id + 1)
        write_fully(self._file_system, self._handle, data, offset)
        write_fully(self._file_system, self._handle, encode_header(self._next_recording_id + 1), 0)
        self._sync(self._handle)
        self._end_offset = offset + len(data)
        self._next_recording_id += 1
        self._entries[descriptor.recording_id] = (offset, descriptor)

    def update(self, descriptor: RecordingDescriptor) -> None:
        """Replace the entry of a recording in place. Its texts, hence its length, stay as first recorded.

        Raises:
            ArchiveError: the entry would change its length.
            OSError: the disk refused.
        """
        offset, old = self._entries[descriptor.recording_id]
        data = encode_entry(descriptor)
        if len(data) != len(encode_entry(old)):
            raise ArchiveError("catalog entry may not change its length", recording_id=descriptor.recording_id)
        self._write_redo(offset, data, self._next_recording_id)
        write_fully(self._file_system, self._handle, data, offset)
        self._sync(self._handle)
        self._entries[descriptor.recording_id] = (offset, descriptor)

    def assume(self, descriptor: RecordingDescriptor) -> None:
        """Take a descriptor until the next `update`, or `replace_entry` of any: the entry in the file stays as it is.

        If the process ends before, the next start finds the entry, and does again what it asks for.
        """
        offset, _ = self._entries[descriptor.recording_id]
        self._entries[descriptor.recording_id] = (offset, descriptor)

    def replace_entry(self, descriptor: RecordingDescriptor) -> None:
        """Replace the entry of a recording by one that may be of another length.

        The whole file is then written again and takes the place of the old one in one step: a rare change. The redo
        record goes before that, as the places it names are those of the old file.
        """
        offset, old = self._entries[descriptor.recording_id]
        old_length, data = len(encode_entry(old)), encode_entry(descriptor)
        if len(data) == old_length:
            self.update(descriptor)
            return
        content = read_fully(self._file_system, self._handle, self._end_offset, 0)
        content = content[:offset] + data + content[offset + old_length :]
        length = self._length_for(len(content) + ENTRY_HEADER_LENGTH)
        self._file_system.set_length(self._redo_handle, 0)
        self._sync(self._redo_handle)
        try:
            self._create(CATALOG_FILE_NAME, length, content)
        finally:
            # Whichever of the two has the name now: also when the disk refused half-way.
            self._file_system.close_file(self._handle)
            self._handle = -1
            self._handle = self._file_system.open_file(self._directory / CATALOG_FILE_NAME)
            self._load(self._read())

    def _read(self) -> CatalogContent:
        self._file_length = self._file_system.file_length(self._handle)
        content = parse_catalog(read_fully(self._file_system, self._handle, self._file_length, 0))
        return settle_checksums(self._file_system, self._directory, content)

    def _load(self, content: CatalogContent) -> None:
        entries: dict[RecordingId, tuple[int, RecordingDescriptor]] = {}
        for entry in content.entries:
            if entry.descriptor is None or entry.problem is not None:
                raise CorruptionError(
                    f"catalog entry is not valid: offset={entry.offset} {entry.problem}; {RESTORE_ADVICE}",
                    recording_id=None if entry.descriptor is None else entry.descriptor.recording_id,
                )
            entries[entry.descriptor.recording_id] = (entry.offset, entry.descriptor)
        self._entries = entries
        self._end_offset = content.end_offset
        self._next_recording_id = max(content.header.next_recording_id, max(entries, default=-1) + 1)

    def _settle_next_recording_id(self, in_header: int) -> None:
        """Put right the next recording id in the header by the redo record, whose checksum covers it.

        The record may be older than the catalog: Aeron knows none, and the tools for a directory nobody runs on forget
        it. Then the header is believed, as no recording has a higher id, and a new record holds it from now on.
        """
        record = self._read_redo()
        lowest = max(self._entries, default=-1) + 1
        if record is not None and record[1] >= lowest and self._is_in_place(record[0], record[2]):
            self._next_recording_id = record[1]
        else:
            self._write_redo(0, b"", self._next_recording_id)
        if self._next_recording_id != in_header:
            write_fully(self._file_system, self._handle, encode_header(self._next_recording_id), 0)
            self._sync(self._handle)

    def _is_in_place(self, offset: int, data: bytes) -> bool:
        return read_fully(self._file_system, self._handle, len(data), offset) == data

    def _redo_is_beyond(self, content: CatalogContent) -> bool:
        """Whether the redo record holds a new entry that never reached the catalog."""
        record = self._read_redo()
        return record is not None and record[0] == content.end_offset

    def _apply_redo(self, content: CatalogContent) -> None:
        """Write the entry of the redo record again where the entry in place is not whole, and only there."""
        record = self._read_redo()
        if record is None:
            return
        offset, next_recording_id, data = record
        in_place = next((entry for entry in content.entries if entry.offset == offset), None)
        if (in_place is not None and in_place.problem is None) or (in_place is None and offset != content.end_offset):
            return
        write_fully(self._file_system, self._handle, data, offset)
        next_recording_id = max(next_recording_id, content.header.next_recording_id)
        write_fully(self._file_system, self._handle, encode_header(next_recording_id), 0)
        self._sync(self._handle)

    def _read_redo(self) -> tuple[int, int, bytes] | None:
        """Read (offset, next recording id, entry bytes); None when the record is absent or not whole."""
        raw = read_fully(self._file_system, self._redo_handle, self._file_system.file_length(self._redo_handle), 0)
        if len(raw) < _REDO_HEADER.size:
            return None
        magic, offset, next_recording_id, length, crc = _REDO_HEADER.unpack_from(raw)
        data = raw[_REDO_HEADER.size : _REDO_HEADER.size + length]
        if magic != _REDO_MAGIC or len(data) != length or crc != _redo_crc(offset, next_recording_id, data):
            return None
        return offset, next_recording_id, data

    def _write_redo(self, offset: int, data: bytes, next_recording_id: int) -> None:
        crc = _redo_crc(offset, next_recording_id, data)
        record = _REDO_HEADER.pack(_REDO_MAGIC, offset, next_recording_id, len(data), crc) + data
        write_fully(self._file_system, self._redo_handle, record, 0)
        self._sync(self._redo_handle)

    def _make_room(self, end_offset: int) -> None:
        """Let the file grow by half until `end_offset` fits, with zeros."""
        length = self._length_for(end_offset)
        if length != self._file_length:
            self._file_system.set_length(self._handle, length)
            if self._sync_level:
                self._file_system.sync_file(self._handle)
            self._file_length = length

    def _length_for(self, end_offset: int) -> int:
        length = self._file_length
        while length < end_offset:
            length += length // 2 & -ENTRY_ALIGNMENT
        return length

    def _create(self, name: str, length: int, data: bytes) -> None:
        """Create a file of `length` bytes that is whole when it gets its name."""
        path = self._directory / (name + ".new")
        write_new_file(self._file_system, path, data, length=length, is_synced=self._sync_level > 0)
        self._file_system.rename(path, self._directory / name)
        if self._sync_level:
            self._file_system.sync_directory(self._directory)

    def _sync(self, handle: int) -> None:
        if self._sync_level:
            self._file_system.sync_data(handle)


def _redo_crc(offset: int, next_recording_id: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(struct.pack("<qq", offset, next_recording_id)))


def _with_unknown_checksum(entry: CatalogEntry) -> CatalogEntry:
    if not entry.wrong_checksum or entry.descriptor is None:
        return entry
    unknown = replace(entry.descriptor, checksum_kind=ChecksumKind.UNKNOWN, unknown_checksum=entry.checksum)
    return replace(entry, descriptor=unknown, problem=entry.other_problem, wrong_checksum=False)
