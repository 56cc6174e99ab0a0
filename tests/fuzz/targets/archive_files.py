"""The files of an archive directory: catalog, segments, marks, the journal of edits."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from tests.fuzz.disks import DIRECTORY, disk_with
from tests.fuzz.samples import make_sample
from tests.fuzz.target import expect, target
from tests.fuzz.targets.wire import stamped
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.errors import ArchiveError, CorruptionError
from trimaran.archive.files.catalog import REDO_FILE_NAME, Catalog, read_catalog
from trimaran.archive.files.edit_journal import Edit, EditKind, decode_edit
from trimaran.archive.files.mark_file import MARK_FILE_NAME
from trimaran.archive.files.marks import ARCHIVE_MARKS, find_owner, read_mark_file
from trimaran.archive.files.reader import Frame, FrameReader, MessageReader
from trimaran.archive.files.segment_files import SegmentFiles
from trimaran.archive.files.vector.scan import FrameScanner
from trimaran.archive.format.catalog import (
    CATALOG_FILE_NAME,
    ENTRY_HEADER_LENGTH,
    HEADER_LENGTH,
    CatalogContent,
    CatalogEntry,
    encode_catalog,
    encode_entry,
    entry_checksum,
    parse_catalog,
)
from trimaran.archive.format.descriptor import RecordingDescriptor, RecordingState
from trimaran.archive.format.error_records import error_records
from trimaran.archive.format.messages import ArchiveMarkFileHeader
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import ArchiveLocation
from trimaran.archive.reading.verify import verify_recording
from trimaran.archive.store.repair import repair_tail
from trimaran.cluster.runtime.files.error_log import decode_errors
from trimaran.service_api.types import RecordingId
from trimaran.service_api.wire.checksum import ChecksumKind
from trimaran.service_api.wire.frame import FRAME_HEADER, encode_message, encode_padding
from trimaran.service_api.wire.log.fields import read_log_fields, read_time_unit

TERM_LENGTH = 1024
STREAM_ID = 100


def descriptor_of(recording_id: int = 0, **changes: object) -> RecordingDescriptor:
    """Describe a small recording."""
    values: dict[str, object] = {
        "recording_id": RecordingId(recording_id),
        "start_timestamp_ms": 1,
        "start_position": 0,
        "initial_term_id": 0,
        "segment_file_length": TERM_LENGTH,
        "term_buffer_length": TERM_LENGTH,
        "mtu_length": 288,
        "session_id": 7,
        "stream_id": STREAM_ID,
        "original_channel": "trimaran:tcp?alias=log",
        "source_identity": "here",
    }
    return RecordingDescriptor(**{**values, **changes})  # type: ignore[arg-type]  # changes are named by the callers


# --- catalog


def _with_checksums(data: bytes) -> bytes:
    """Give every entry of a catalog the checksum of what it holds, so that checksums do not hide the other rules."""
    catalog, offset = bytearray(data), HEADER_LENGTH
    while offset + ENTRY_HEADER_LENGTH <= len(catalog):
        (length,) = struct.unpack_from("<i", catalog, offset)
        end = offset + ENTRY_HEADER_LENGTH + length
        if length <= 0 or end > len(catalog):
            break
        checksum = entry_checksum(bytes(catalog[offset + ENTRY_HEADER_LENGTH : end]), ChecksumKind.CRC32)
        struct.pack_into("<i", catalog, offset + 8, checksum)
        offset = end
    return bytes(catalog)


def _catalog_seeds() -> Iterator[bytes]:
    stopped = descriptor_of(1, stop_position=96, stop_timestamp_ms=2, checksummed=True)
    entries = [descriptor_of(), stopped, descriptor_of(2, state=RecordingState.DELETED, stream_id=107)]
    for flags in (0, 1):
        yield bytes([flags]) + encode_catalog(entries, next_recording_id=3)[: HEADER_LENGTH + 3 * 192 + 64]
    yield b"\0" + encode_catalog([], next_recording_id=0)[:128]


@target(_catalog_seeds)
def catalog(data: bytes) -> None:
    """A catalog file: read, its entries written and read again, opened as an archive's own."""
    content = _with_checksums(data[1:]) if data[:1] == b"\1" else data[1:]
    try:
        found = parse_catalog(content)
    except CorruptionError:
        return
    _check_entries(found)
    disk = disk_with({CATALOG_FILE_NAME: content, REDO_FILE_NAME: content[-300:]})
    read_catalog(disk, DIRECTORY)
    opened = Catalog(disk, DIRECTORY, sync_level=1)
    try:
        opened.open()
        for descriptor in opened.descriptors():
            opened.update(descriptor)
    except ArchiveError:
        pass  # an entry is damaged, or a text of it is not ASCII
    finally:
        opened.close()


_EMPTY = encode_catalog([], next_recording_id=0)[:HEADER_LENGTH]


def _check_entries(content: CatalogContent) -> None:
    for descriptor in content.readable:
        try:
            encoded = encode_entry(descriptor)
        except ArchiveError:
            continue  # a text of it is not ASCII
        (entry,) = parse_catalog(_EMPTY + encoded).entries
        expect(entry.descriptor == descriptor, "an entry is read as it was written", entry=entry, found=descriptor)


def _edit_seeds() -> Iterator[bytes]:
    for kind in EditKind:
        yield b"\1" + Edit(kind=kind, recording_id=1, position=64, stop_position=96, timestamp_ms=5).encode()


@target(_edit_seeds, length_limit=80)
def edit_journal(data: bytes) -> None:
    """The journal of the edit that is under way."""
    record = data[1:]
    if data[:1] == b"\1" and len(record) >= 60:
        record = record[:56] + struct.pack("<I", zlib.crc32(record[:56]))
    try:
        edit = decode_edit(record)
    except CorruptionError:
        return
    if edit is not None:
        expect(decode_edit(edit.encode()) == edit, "an edit is read as it was written", edit=edit)


def _mark_seeds() -> Iterator[bytes]:
    record = struct.pack("<iiqq", 24 + 16, 3, 2, 1) + b"warning a b at c"
    for is_large in (False, True):
        yield make_sample(ArchiveMarkFileHeader, is_large=is_large).encode()
    header = make_sample(ArchiveMarkFileHeader).model_copy(update={"header_length": 256, "error_buffer_length": 256})
    yield header.encode().ljust(256, b"\0") + record + bytes(16)


@target(_mark_seeds)
def archive_mark_file(data: bytes) -> None:
    """The mark file of an archive, the error log in it, and a link to one."""
    disk = disk_with({MARK_FILE_NAME: data, "archive-mark.lnk": data})
    owner = find_owner(DIRECTORY, ARCHIVE_MARKS, now_ms=1, file_system=disk)
    expect(owner is not None, "a process may run where a mark file or a link says so", owner=owner)
    try:
        _, area = read_mark_file(DIRECTORY / MARK_FILE_NAME, ARCHIVE_MARKS, disk)
    except ArchiveError:
        return
    decode_errors(error_records(area))


# --- whole directories


def _segment_seeds() -> Iterator[bytes]:
    for flags in (0b0000, 0b0001, 0b0011, 0b0111):
        yield bytes([flags, 0]) + _recording_bytes()
    yield bytes([0b1001, 3]) + _recording_bytes()[:900]


def _recording_bytes() -> bytes:
    frames = b""
    for length in (0, 40, 64, 64, 64, 250):
        message = struct.pack("<HHHH", 24, 1, 111, 16) + bytes(24) + bytes(range(1, 100)) * 3
        frames += encode_message(message[: 32 + length], stream_id=STREAM_ID, mtu_length=288, term_offset=len(frames))
    frames += encode_padding(TERM_LENGTH - len(frames), stream_id=STREAM_ID, term_offset=len(frames))
    return frames + encode_message(b"next term", stream_id=STREAM_ID, mtu_length=288, term_id=1)


def _archive_of(data: bytes) -> tuple[MemoryFileSystem, RecordingDescriptor]:
    """Make a directory of one recording: bits of the first byte say how it is described, the rest are its segments."""
    flags, place, frames = data[0], data[1], data[2:]
    kind = ChecksumKind.CRC32C if flags & 4 else ChecksumKind.CRC32
    if flags & 1:
        frames = stamped(frames, kind)
    descriptor = descriptor_of(
        checksummed=bool(flags & 2),
        checksum_kind=kind,
        stop_position=32 * place if flags & 8 else None,
        segment_file_length=2 * TERM_LENGTH if flags & 16 else TERM_LENGTH,
    )
    length = descriptor.segment_file_length
    files = {CATALOG_FILE_NAME: _EMPTY + encode_entry(descriptor) + bytes(64)}
    for base in range(0, max(1, len(frames)), length):
        segment = frames[base : base + length]
        is_whole = not flags & 32
        files[descriptor.segment_file_name(base)] = segment.ljust(length, b"\0") if is_whole else segment
    return disk_with(files), descriptor


def _frames_of(reader: FrameReader) -> tuple[list[Frame], object]:
    frames = list(reader)
    return frames, (reader.position, reader.stop_reason, reader.detail, reader.ending())


def _scanned(scanner: FrameScanner) -> tuple[list[Frame], object]:
    frames = []
    for block in scanner:
        data = block.words.tobytes()
        for slot, header, position in zip(block.slots.tolist(), block.headers, block.positions.tolist(), strict=True):
            fields = FRAME_HEADER.unpack(header.tobytes())
            payload = data[slot * 32 + 32 : slot * 32 + fields[0]] if fields[3] == 1 else b""
            frames.append(Frame._make((position, *fields, payload)))
    return frames, (scanner.position, scanner.stop_reason, scanner.detail, scanner.ending())


@target(_segment_seeds, length_limit=4100)
def recording(data: bytes) -> None:
    """The segments of a recording: read frame by frame and in columns, joined, verified, searched for their end."""
    if len(data) < 2:
        return
    disk, descriptor = _archive_of(data)
    frames, end = _frames_of(FrameReader(DIRECTORY, descriptor, file_system=disk))
    scanned, scanned_end = _scanned(FrameScanner(DIRECTORY, descriptor, file_system=disk, block_length_bytes=65536))
    expect((frames, end) == (scanned, scanned_end), "both readers find the same", one=end, other=scanned_end)
    for message in MessageReader(FrameReader(DIRECTORY, descriptor, file_system=disk)):
        read_log_fields(message.payload)
        read_time_unit(message.payload)
    log = LogFile(ArchiveLocation(disk, DIRECTORY), descriptor)
    expect(log.ending().position == end[0], "the end is where the frames end")  # type: ignore[index]  # a tuple
    log.find_reach()
    log.find_gap()
    log.time_unit()
    (entry,) = read_catalog(disk, DIRECTORY).entries
    _verify(disk, entry)


def _verify(disk: MemoryFileSystem, entry: CatalogEntry) -> None:
    strict = verify_recording(disk, DIRECTORY, entry)
    tolerant = verify_recording(disk, DIRECTORY, entry, is_fault_tolerant=True)
    expect(strict.is_ok == tolerant.is_ok, "what is wrong is wrong for both", strict=strict, tolerant=tolerant)


@target(_segment_seeds, length_limit=4100)
def recording_repair(data: bytes) -> None:
    """The end of a recording after a crash: refused, or cut so that the second repair finds nothing to do."""
    if len(data) < 2:
        return
    disk, descriptor = _archive_of(bytes([data[0] & ~8]) + data[1:])
    files = SegmentFiles(disk, DIRECTORY, descriptor, sync_level=1)
    try:
        first = repair_tail(files, descriptor, torn_limit_bytes=(data[1] & 1) << 12)
    except CorruptionError:
        return
    again = repair_tail(files, descriptor, torn_limit_bytes=0)
    expect(again.stop_position == first.stop_position and not again.cut, "repair is final", first=first, again=again)
    frames, _ = _frames_of(FrameReader(DIRECTORY, descriptor, file_system=disk))
    # Only the highest segment may be torn, so a start reads only that one.
    if first.stop_position < descriptor.segment_file_length:
        expect((frames[-1].end_position if frames else 0) == first.stop_position, "frames end there", first=first)
