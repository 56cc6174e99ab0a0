"""The catalog: the list of recordings, in Aeron's `archive.catalog` format, changed durably and in place.

The problem: an entry is changed in place (a recording stops, is extended, is cut), and a power loss in the
middle of that write may leave half of it, without a checksum in the middle of a list that has no other index.
The idea: before an entry is written, its new bytes go, with their CRC-32, to `archive.catalog.redo`, which is
synced first. At the next start an entry that is not valid is written again from there.
Invariant: at every moment either the entry in place or the redo record is whole.
No checksum covers the next recording id in the file header; it is in the redo record, too, which a start believes.
Rejected: rewriting the whole catalog under another name and renaming it (1 MiB written for 256 bytes), and
trusting sector atomicity (the checksum and the stop position of an entry lie in different 64-byte lines).

    file header, 32 bytes    int32 version @0, int32 length @4 (32), int64 next recording id @8,
                             int32 alignment @16 (64)
    entries, back to back    32-byte header: int32 length @0 (entry size - 32), int32 state @4,
                             int32 checksum @8;
                             80-byte block, three texts (uint32 length, bytes), zeros up to a multiple of 64
    checksum                 CRC-32 or CRC-32C over the `length` bytes after the entry header; 0 where checksums are off

Nothing says which of the two it is: the one that fits (`frame_checksum` tells where neither does).
A length of zero or less ends the list. The file is 1 MiB of zeros at first and grows by half when full.
Source: samples set A README §4, §5.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from trimaran.service_api.types import NULL_POSITION, NULL_VALUE, RecordingId
from trimaran.service_api.wire.checksum import KNOWN_CHECKSUMS, ChecksumKind
from trimaran.service_api.wire.frame import wrap_int32

from ..cold.file_system import ColdFileSystem
from ..disk.file_system import FileSystem, ReadableFileSystem, read_file, read_fully, write_fully, write_new_file
from ..errors import RESTORE_ADVICE, ArchiveError, ArchiveErrorCode, CorruptionError, UnknownVersionError
from ..format.descriptor import RecordingDescriptor, RecordingState
from .frame_checksum import has_unknown_checksums

CATALOG_FILE_NAME: Final = "archive.catalog"
REDO_FILE_NAME: Final = "archive.catalog.redo"
CATALOG_VERSION: Final = 0x0003_0100
HEADER_LENGTH: Final = 32
ENTRY_HEADER_LENGTH: Final = 32
ENTRY_ALIGNMENT: Final = 64
INITIAL_LENGTH_BYTES: Final = 1 << 20
MAX_MTU_LENGTH_BYTES: Final = 65504
"""No frame is longer: what a UDP datagram holds. Source: Aeron `Configuration.MAX_UDP_PAYLOAD_LENGTH`."""

_FILE_HEADER: Final = struct.Struct("<iiqi12x")
_ENTRY_HEADER: Final = struct.Struct("<iii20x")
_BLOCK: Final = struct.Struct("<qqqqqqqiiiiii")
_TEXT_LENGTH: Final = struct.Struct("<I")
_REDO_HEADER: Final = struct.Struct("<8sqqII")
_REDO_MAGIC: Final = b"QREDO\x00\x00\x01"
_STOP_TIMESTAMP_OFFSET: Final = 32
_STOP_POSITION_OFFSET: Final = 48
_NULL: Final = struct.pack("<q", -1)


@dataclass(slots=True, frozen=True)
class CatalogHeader:
    """The file header; `next_recording_id` is the id the next recording gets."""

    version: int
    next_recording_id: int
    alignment: int = ENTRY_ALIGNMENT


@dataclass(slots=True, frozen=True)
class CatalogEntry:
    """One entry as it lies in the file.

    `problem` is None for an entry that checks out; otherwise it says what is wrong, and `descriptor` is what
    the bytes say, or None where they say nothing. `stale_checksum` marks an entry whose checksum is valid for
    the descriptor as it was before its stop position was filled in: Aeron's own repair leaves it like that.
    `wrong_checksum` marks one whose checksum is valid for neither; `other_problem` is what is wrong besides.
    """

    offset: int
    length: int
    checksum: int
    descriptor: RecordingDescriptor | None
    problem: str | None = None
    stale_checksum: bool = False
    wrong_checksum: bool = False
    other_problem: str | None = None


@dataclass(slots=True, frozen=True)
class CatalogContent:
    """A whole catalog as read from disk: the header, the entries in file order and where room begins."""

    header: CatalogHeader
    entries: tuple[CatalogEntry, ...]
    end_offset: int
    file_length: int

    @property
    def readable(self) -> list[RecordingDescriptor]:
        """The recordings, in any state, whose entries are valid."""
        return [e.descriptor for e in self.entries if e.descriptor is not None and e.problem is None]


def entry_checksum(body: bytes, kind: ChecksumKind) -> int:
    """Compute the checksum over the descriptor of an entry, padding included, as a signed 32-bit integer."""
    return wrap_int32(kind.compute(body))


def encode_entry(descriptor: RecordingDescriptor) -> bytes:
    """Build the bytes of one catalog entry, padded to a multiple of 64.

    Raises:
        ArchiveError: a text of the descriptor is not ASCII.
    """
    stop_timestamp, stop_position = descriptor.stop_timestamp_ms, descriptor.stop_position
    block = _BLOCK.pack(
        descriptor.control_session_id,
        descriptor.correlation_id,
        descriptor.recording_id,
        descriptor.start_timestamp_ms,
        NULL_VALUE if stop_timestamp is None else stop_timestamp,
        descriptor.start_position,
        NULL_POSITION if stop_position is None else stop_position,
        descriptor.initial_term_id,
        descriptor.segment_file_length,
        descriptor.term_buffer_length,
        descriptor.mtu_length,
        descriptor.session_id,
        descriptor.stream_id,
    )
    texts = (descriptor.stripped_channel, descriptor.original_channel, descriptor.source_identity)
    body = block + b"".join(_encode_text(text, descriptor.recording_id) for text in texts)
    body += bytes(-(ENTRY_HEADER_LENGTH + len(body)) % ENTRY_ALIGNMENT)
    checksum = descriptor.unknown_checksum
    if descriptor.checksum_kind is not ChecksumKind.UNKNOWN:
        checksum = entry_checksum(body, descriptor.checksum_kind) if descriptor.checksummed else 0
    return _ENTRY_HEADER.pack(len(body), descriptor.state, checksum) + body


def encode_catalog(descriptors: Iterable[RecordingDescriptor], *, next_recording_id: int) -> bytes:
    """Build a whole catalog file, its entries in the order given, with as much room after them as it has at first.

    Raises:
        ArchiveError: a text of a descriptor is not ASCII.
    """
    data = _encode_header(next_recording_id) + b"".join(encode_entry(descriptor) for descriptor in descriptors)
    return data + bytes(max(ENTRY_HEADER_LENGTH, INITIAL_LENGTH_BYTES - len(data)))


def parse_catalog(data: bytes) -> CatalogContent:
    """Read a whole catalog file; entries that are not valid are returned with their problem.

    Raises:
        CorruptionError: the file header is not that of a catalog this version can read.
    """
    if len(data) < HEADER_LENGTH:
        raise CorruptionError(
            f"incomplete catalog: length={len(data)} expected at least {HEADER_LENGTH}; {RESTORE_ADVICE}"
        )
    version, length, next_recording_id, alignment = _FILE_HEADER.unpack_from(data)
    if version >> 16 != CATALOG_VERSION >> 16:
        raise UnknownVersionError(
            f"unknown catalog version: major={version >> 16} expected={CATALOG_VERSION >> 16}; if a newer version "
            f"wrote it, use that one, else {RESTORE_ADVICE}"
        )
    if length != HEADER_LENGTH or alignment != ENTRY_ALIGNMENT:
        raise CorruptionError(
            f"invalid catalog header: length={length} alignment={alignment} expected=32, 64; {RESTORE_ADVICE}"
        )
    if next_recording_id < 0:
        raise CorruptionError(
            f"invalid catalog header: next_recording_id={next_recording_id} expected from 0; {RESTORE_ADVICE}"
        )
    entries: list[CatalogEntry] = []
    offset = HEADER_LENGTH
    while offset + ENTRY_HEADER_LENGTH <= len(data):
        (body_length,) = struct.unpack_from("<i", data, offset)
        if body_length <= 0:
            break
        entry = _parse_entry(data, offset, body_length)
        entries.append(entry)
        offset += entry.length
        if offset > len(data) or entry.length % ENTRY_ALIGNMENT:
            break  # where the next one begins is not known
    if offset <= len(data) and data.count(0, offset) != len(data) - offset:
        hidden = "invalid entry length, or the entries end here: bytes after this place are not zero"
        entries.append(CatalogEntry(offset, 0, 0, None, hidden))
    header = CatalogHeader(version, next_recording_id, alignment)
    return CatalogContent(header, _with_unique_ids(entries), offset, len(data))


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
            self._create(CATALOG_FILE_NAME, INITIAL_LENGTH_BYTES, _encode_header(0))
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
        write_fully(self._file_system, self._handle, _encode_header(self._next_recording_id + 1), 0)
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
            write_fully(self._file_system, self._handle, _encode_header(self._next_recording_id), 0)
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
        write_fully(self._file_system, self._handle, _encode_header(next_recording_id), 0)
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


def _encode_header(next_recording_id: int) -> bytes:
    return _FILE_HEADER.pack(CATALOG_VERSION, HEADER_LENGTH, next_recording_id, ENTRY_ALIGNMENT)


def _encode_text(text: str, recording_id: int) -> bytes:
    try:
        data = text.encode("ascii")
    except UnicodeEncodeError as error:
        raise ArchiveError(f"channel is not ASCII: {text!r}", recording_id=recording_id) from error
    return _TEXT_LENGTH.pack(len(data)) + data


def _redo_crc(offset: int, next_recording_id: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(struct.pack("<qq", offset, next_recording_id)))


def _with_unknown_checksum(entry: CatalogEntry) -> CatalogEntry:
    if not entry.wrong_checksum or entry.descriptor is None:
        return entry
    unknown = replace(entry.descriptor, checksum_kind=ChecksumKind.UNKNOWN, unknown_checksum=entry.checksum)
    return replace(entry, descriptor=unknown, problem=entry.other_problem, wrong_checksum=False)


def _with_unique_ids(entries: list[CatalogEntry]) -> tuple[CatalogEntry, ...]:
    """Return the entries, with a problem on each whose recording id an earlier entry has."""
    taken: dict[int, int] = {}
    checked: list[CatalogEntry] = []
    for entry in entries:
        if entry.descriptor is not None:
            first = taken.setdefault(entry.descriptor.recording_id, entry.offset)
            if first != entry.offset and entry.problem is None:
                entry = replace(entry, problem=f"recording id is also used by the entry at offset={first}")
        checked.append(entry)
    return tuple(checked)


def _parse_entry(data: bytes, offset: int, body_length: int) -> CatalogEntry:
    """Read the entry at `offset`, whose length is positive."""
    _, state, checksum = _ENTRY_HEADER.unpack_from(data, offset)
    length = ENTRY_HEADER_LENGTH + body_length
    if length % ENTRY_ALIGNMENT or body_length < _BLOCK.size or offset + length > len(data):
        cut_short = f"invalid entry length: length={body_length} available={len(data) - offset - 32}"
        return CatalogEntry(offset, length, checksum, None, cut_short)
    body = data[offset + ENTRY_HEADER_LENGTH : offset + length]
    problem: str | None
    descriptor, problem = _parse_body(body, state)
    if descriptor is None:
        return CatalogEntry(offset, length, checksum, None, problem)
    if not checksum:
        return CatalogEntry(offset, length, checksum, descriptor, problem)
    for content, is_stale in ((body, False), (_as_before_stop(body), True)):
        for kind in KNOWN_CHECKSUMS:
            if entry_checksum(content, kind) == checksum:
                descriptor = replace(descriptor, checksummed=True, checksum_kind=kind)
                return CatalogEntry(offset, length, checksum, descriptor, problem, is_stale)
    descriptor = replace(descriptor, checksummed=True)
    expected = " or ".join(str(entry_checksum(body, kind)) for kind in KNOWN_CHECKSUMS)
    wrong = problem or f"wrong entry checksum: checksum={checksum} expected={expected}"
    return CatalogEntry(offset, length, checksum, descriptor, wrong, False, True, problem)


def _as_before_stop(body: bytes) -> bytes:
    """Return the descriptor of an entry as it was while the recording was active."""
    before = bytearray(body)
    before[_STOP_POSITION_OFFSET : _STOP_POSITION_OFFSET + 8] = _NULL
    before[_STOP_TIMESTAMP_OFFSET : _STOP_TIMESTAMP_OFFSET + 8] = _NULL
    return bytes(before)


def _parse_body(body: bytes, state: int) -> tuple[RecordingDescriptor | None, str | None]:
    """Read block and texts of an entry; the second value says what is impossible about them."""
    values = _BLOCK.unpack_from(body)
    texts: list[str] = []
    offset = _BLOCK.size
    for _ in range(3):
        if offset + 4 > len(body):
            return None, "incomplete entry texts"
        (text_length,) = _TEXT_LENGTH.unpack_from(body, offset)
        offset += 4
        if text_length > len(body) - offset:
            return None, f"invalid entry text: length={text_length} available={len(body) - offset}"
        texts.append(body[offset : offset + text_length].decode("ascii", "replace"))
        offset += text_length
    if state not in RecordingState.__members__.values():
        return None, f"unknown entry state: state={state}"
    descriptor = RecordingDescriptor(
        control_session_id=values[0],
        correlation_id=values[1],
        recording_id=RecordingId(values[2]),
        start_timestamp_ms=values[3],
        stop_timestamp_ms=None if values[4] == NULL_VALUE else values[4],
        start_position=values[5],
        stop_position=None if values[6] == NULL_POSITION else values[6],
        initial_term_id=values[7],
        segment_file_length=values[8],
        term_buffer_length=values[9],
        mtu_length=values[10],
        session_id=values[11],
        stream_id=values[12],
        stripped_channel=texts[0],
        original_channel=texts[1],
        source_identity=texts[2],
        state=RecordingState(state),
    )
    return descriptor, find_impossible(descriptor)


def find_impossible(descriptor: RecordingDescriptor) -> str | None:
    """Return what cannot be true of a descriptor, or None; of one that is impossible no frame can be found."""
    term, segment, mtu = descriptor.term_buffer_length, descriptor.segment_file_length, descriptor.mtu_length
    if term < 64 or term & (term - 1):
        return f"invalid term length: term_buffer_length={term} expected a power of two"
    if segment < term or segment % term:
        return f"invalid segment length: segment_file_length={segment} term_buffer_length={term}"
    if not 32 < mtu <= min(term, MAX_MTU_LENGTH_BYTES) or mtu % 32:
        limit = min(term, MAX_MTU_LENGTH_BYTES)
        return f"invalid mtu: mtu_length={mtu} expected a multiple of 32 from 64 to {limit}"
    if descriptor.recording_id < 0:
        return f"invalid recording id: recording_id={descriptor.recording_id} expected from 0"
    start, stop = descriptor.start_position, descriptor.stop_position
    if start < 0 or start % 32 or (stop is not None and (stop < start or stop % 32)):
        return f"invalid positions: start_position={start} stop_position={stop}"
    return None
