"""The catalog's format, Aeron's `archive.catalog`: the list of an archive's recordings.

    file header, 32 bytes    int32 version @0, int32 length @4 (32), int64 next recording id @8,
                             int32 alignment @16 (64)
    entries, back to back    32-byte header: int32 length @0 (entry size - 32), int32 state @4,
                             int32 checksum @8;
                             80-byte block, three texts (uint32 length, bytes), zeros up to a multiple of 64
    checksum                 CRC-32 or CRC-32C over the `length` bytes after the entry header; 0 where checksums are off

Nothing says which of the two it is: the one that fits (`files.frame_checksum` finds out where neither does).
A length of zero or less ends the list. The file is 1 MiB of zeros at first and grows by half when full.
Source: samples set A README §4, §5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from ...service_api.types import NULL_POSITION, NULL_VALUE, RecordingId
from ...service_api.wire.checksum import KNOWN_CHECKSUMS, ChecksumKind
from ...service_api.wire.frame import wrap_int32
from ..errors import RESTORE_ADVICE, ArchiveError, CorruptionError, UnknownVersionError
from .descriptor import RecordingDescriptor, RecordingState

CATALOG_FILE_NAME: Final = "archive.catalog"
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


def encode_header(next_recording_id: int) -> bytes:
    """Build the header of a catalog file."""
    return _FILE_HEADER.pack(CATALOG_VERSION, HEADER_LENGTH, next_recording_id, ENTRY_ALIGNMENT)


def encode_catalog(
    descriptors: Iterable[RecordingDescriptor], *, next_recording_id: int, length_bytes: int = INITIAL_LENGTH_BYTES
) -> bytes:
    """Build a whole catalog file, its entries in the order given: at least as long as it is at first, or as is asked.

    Raises:
        ArchiveError: a text of a descriptor is not ASCII.
    """
    data = encode_header(next_recording_id) + b"".join(encode_entry(descriptor) for descriptor in descriptors)
    return data + bytes(max(ENTRY_HEADER_LENGTH, length_bytes - len(data)))


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


def _encode_text(text: str, recording_id: int) -> bytes:
    try:
        data = text.encode("ascii")
    except UnicodeEncodeError as error:
        raise ArchiveError(f"channel is not ASCII: {text!r}", recording_id=recording_id) from error
    return _TEXT_LENGTH.pack(len(data)) + data


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
