"""The slots of `recording.log`: one for each leadership term and each snapshot.

    offset size field
    0      8    recording_id
    8      8    leadership_term_id
    16     8    term_base_log_position
    24     8    log_position             end of the term, -1 while it is open; position of the snapshot
    32     8    timestamp                cluster time
    40     4    service_id               -1 for the consensus module and for terms
    44     4    type                     0 term, 1 snapshot, 2 standby snapshot; bit 31 invalid; -1 removed
    48     4+n  endpoint                 of a standby snapshot only

A slot takes a multiple of 64 bytes: 48, or 52 and the endpoint, rounded up. Of terms and snapshots Aeron does not read
the last 16 bytes. They hold our checksum, and what it needs to tell damage from a change of Aeron's:

    48     4    number of the slot: its position / 64; in the four highest bits, a code for the type as we wrote it
    52     8    of a term, log_position as we wrote it; of a snapshot, the CRC-32s of recording_id and of timestamp
    60     4    CRC-32 of the slot before it, as we wrote it; of a snapshot, with zeros for recording_id and timestamp

Aeron knows nothing of that. Its `RecordingLog` writes a slot in three ways:

1. It appends a slot from the buffer that it read the file into, 4,096 bytes at a time. It fills in the first 48 bytes
   and leaves the others as they are: those of the slot that lies first in the buffer, which name *that* slot's number.
   Or they are zeros, or the endpoint of a standby snapshot that it wrote before. Nothing protects such a slot.
2. It writes one field in place: where a term ends (`commitLogPosition`), or the type of a snapshot that it marks as
   invalid, or of an entry that it removes. The checksum is still that of what we wrote, and both old fields are known.
3. It writes a snapshot that was invalid again, from the same buffer. So such a slot is one of the first kind, unless it
   lies first in the buffer: then recording_id and timestamp changed, and the checksum covers the rest.

So a slot is damaged where its last 16 bytes name its own number, and the rest is neither what we wrote nor what Aeron
makes of it. Every flipped bit is found in a slot of ours, but for one: the bit that makes a valid snapshot an invalid
one, as Aeron does. What Aeron set in place can be any position, and in a slot that Aeron appended only what cannot be
is found. No checksum of a slot finds that the last slots are missing or all zero. A member that starts gives every slot
its checksum again.

Imports nothing outside the standard library, for readers that have nothing else. Source: Aeron `RecordingLog`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ...errors import ConfigurationError, RemoteProtocolError

RECORDING_LOG_FILE_NAME: Final = "recording.log"

_SLOT_ALIGNMENT: Final = 64
MAX_ENTRY_LENGTH: Final = 4096
"""No entry is longer, its endpoint included. Source: Aeron `RecordingLog.MAX_ENTRY_LENGTH`."""

CONSENSUS_MODULE_SERVICE_ID: Final = -1

FORMER_TAG: Final = b"QUORATE"
"""Where our part of a file began while the project had that name."""

_ENTRY: Final = struct.Struct("<qqqqqii")
_ENDPOINT_LENGTH: Final = struct.Struct("<i")
_INVALID_FLAG: Final = -(1 << 31)
_REMOVED: Final = -1
_CHECKED: Final = struct.Struct("<IQI")
"""Slot number and type code, what Aeron may change, CRC-32."""
_NUMBER_BITS: Final = 28
_POSITION_ALIGNMENT: Final = 32
_RECORDING_ID: Final = slice(0, 8)
_LOG_POSITION: Final = slice(24, 32)
_TIMESTAMP: Final = slice(32, 40)
_TYPE: Final = slice(44, 48)


class EntryType(IntEnum):
    """What an entry stands for."""

    TERM = 0
    SNAPSHOT = 1
    STANDBY_SNAPSHOT = 2


_TYPE_CODES: Final = {
    EntryType.TERM: 3,
    EntryType.TERM | _INVALID_FLAG: 5,
    EntryType.SNAPSHOT: 6,
    EntryType.SNAPSHOT | _INVALID_FLAG: 9,
    _REMOVED: 10,
}
"""Of each type with a checksum. No flipped bit makes one 0, as the highest bits of an endpoint's length are."""
_TYPES: Final = {code: value for value, code in _TYPE_CODES.items()}


@dataclass(slots=True, frozen=True, kw_only=True)
class RecordingLogEntry:
    """One term or one snapshot. Positions are bytes in the log, `NULL_POSITION` where open."""

    recording_id: int
    leadership_term_id: int
    term_base_log_position: int
    log_position: int
    timestamp: int
    service_id: int = CONSENSUS_MODULE_SERVICE_ID
    entry_type: EntryType = EntryType.TERM
    is_valid: bool = True
    archive_endpoint: str = ""
    """Of a standby snapshot, the archive that has it."""
    entry_index: int
    """The place of the entry in the file, counted from 0; removed entries keep theirs."""
    file_position: int
    """Where the entry begins in the file, in bytes."""

    @property
    def length(self) -> int:
        """The bytes that the entry takes in the file."""
        return slot_length(self.entry_type, len(self.archive_endpoint))

    @property
    def is_valid_term(self) -> bool:
        """Whether this is a term that counts."""
        return self.is_valid and self.entry_type is EntryType.TERM

    @property
    def is_valid_snapshot(self) -> bool:
        """Whether this is a snapshot of our own that counts."""
        return self.is_valid and self.entry_type is EntryType.SNAPSHOT

    @property
    def is_seed(self) -> bool:
        """Whether this is the state that the log begins with, from a log before: Aeron's tool can seed a log from it.

        No other snapshot is at position 0: an entry of the log asks for each, and lies before it.
        Source: Aeron `ClusterTool seed-recording-log-from-snapshot`.
        """
        return self.entry_type is EntryType.SNAPSHOT and self.log_position == 0

    def encode(self, *, is_removed: bool = False) -> bytes:
        """Build the bytes of the slot, zeros included; `with_checksum` adds the checksum."""
        data = _ENTRY.pack(
            self.recording_id,
            self.leadership_term_id,
            self.term_base_log_position,
            self.log_position,
            self.timestamp,
            self.service_id,
            _REMOVED if is_removed else self.entry_type if self.is_valid else self.entry_type | _INVALID_FLAG,
        )
        if self.entry_type is EntryType.STANDBY_SNAPSHOT:
            endpoint = self.archive_endpoint.encode("ascii")
            data += _ENDPOINT_LENGTH.pack(len(endpoint)) + endpoint
        return data.ljust(self.length, b"\0")


def read_slots(data: bytes) -> Iterator[RecordingLogEntry | int]:
    """Yield each slot of a file in its order: an entry, or the length in bytes of one that was removed.

    Ends before a last slot that is cut short, and before zeros to the end of the file: a crash interrupted the write.

    Raises:
        RemoteProtocolError: a slot that cannot be one, or with a wrong checksum; its index and position are named.
        ConfigurationError: the file has the project's former tag.
    """
    position = entry_index = 0
    while position < len(data):
        slot = _parse_slot(data, position, entry_index)
        if slot is None:
            return
        length = slot.length if isinstance(slot, RecordingLogEntry) else slot
        refuse_former_tag(RECORDING_LOG_FILE_NAME, data[position + _ENTRY.size : position + length])
        if not _is_explained(data[position : position + length].ljust(length, b"\0"), position, len(data)):
            raise RemoteProtocolError(f"recording log: entry_index={entry_index} position={position}: wrong checksum")
        yield slot
        position += length
        entry_index += 1


def refuse_former_tag(file_name: str, part: bytes) -> None:
    """Refuse a file whose part of ours begins with the tag of the project's former name: it is not damaged.

    Raises:
        ConfigurationError: it does.
    """
    if part.startswith(FORMER_TAG):
        raise ConfigurationError(
            f"file={file_name} has the tag {FORMER_TAG.decode()}, which this project had before its first release, and "
            "no Trimaran reads it: read the directory with the version that wrote it, or begin with a new one"
        )


def slot_length(entry_type: EntryType, endpoint_length: int) -> int:
    """How many bytes the slot of an entry takes; `endpoint_length` counts for standby snapshots only."""
    length = _ENTRY.size
    if entry_type is EntryType.STANDBY_SNAPSHOT:
        length += _ENDPOINT_LENGTH.size + endpoint_length
    return -(-length // _SLOT_ALIGNMENT) * _SLOT_ALIGNMENT


def _parse_slot(data: bytes, position: int, entry_index: int) -> RecordingLogEntry | int | None:
    """Read the slot at `position`: an entry, the length of a removed one, None where the file is torn."""
    available = len(data) - position
    if available < _ENTRY.size or not any(data[position : position + _ENTRY.size]):
        rest = data[position + _ENTRY.size :]
        if any(rest):
            raise RemoteProtocolError(f"recording log: entry_index={entry_index} position={position} is empty")
        return None
    *values, service_id, type_value = _ENTRY.unpack_from(data, position)
    if type_value == _REMOVED:
        return _SLOT_ALIGNMENT
    is_valid = type_value >= 0
    where = f"recording log: entry_index={entry_index} position={position}"
    try:
        entry_type = EntryType(type_value if is_valid else type_value - _INVALID_FLAG)
    except ValueError:
        raise RemoteProtocolError(f"{where} type={type_value} expected one of [0, 1, 2]") from None
    endpoint = ""
    if entry_type is EntryType.STANDBY_SNAPSHOT:
        start = position + _ENTRY.size + _ENDPOINT_LENGTH.size
        if available < start - position:
            return None
        (size,) = _ENDPOINT_LENGTH.unpack_from(data, position + _ENTRY.size)
        if not 0 <= size <= MAX_ENTRY_LENGTH - _ENTRY.size - _ENDPOINT_LENGTH.size:
            raise RemoteProtocolError(f"{where} endpoint length={size} limit={MAX_ENTRY_LENGTH}")
        if len(data) - start < size:
            return None
        try:
            endpoint = data[start : start + size].decode("ascii")
        except UnicodeDecodeError:
            raise RemoteProtocolError(f"{where} endpoint={data[start : start + size]!r} expected ASCII") from None
    recording_id, leadership_term_id, term_base_log_position, log_position, timestamp = values
    return RecordingLogEntry(
        recording_id=recording_id,
        leadership_term_id=leadership_term_id,
        term_base_log_position=term_base_log_position,
        log_position=log_position,
        timestamp=timestamp,
        service_id=service_id,
        entry_type=entry_type,
        is_valid=is_valid,
        archive_endpoint=endpoint,
        entry_index=entry_index,
        file_position=position,
    )


def with_checksum(slot: bytes, file_position: int) -> bytes:
    """Fill in the checksum of a slot that belongs at `file_position`; that of a standby snapshot has none."""
    fields = slot[: _ENTRY.size]
    type_value = _type_of(fields)
    code = _TYPE_CODES.get(type_value)
    if code is None:
        return slot
    match type_value & ~_INVALID_FLAG:
        case EntryType.TERM:
            kept = int.from_bytes(fields[_LOG_POSITION], "little")
        case EntryType.SNAPSHOT:
            kept = zlib.crc32(fields[_RECORDING_ID]) | zlib.crc32(fields[_TIMESTAMP]) << 32
        case _:
            kept = 0
    number = file_position // _SLOT_ALIGNMENT
    return fields + _CHECKED.pack(code << _NUMBER_BITS | number, kept, _checksum(fields, number, code, kept))


def slots_without_checksum(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield position and new bytes of each slot that Aeron wrote or changed, so that it has its checksum again.

    Raises:
        RemoteProtocolError: as `read_slots`.
    """
    position = 0
    for slot in read_slots(data):
        length = slot.length if isinstance(slot, RecordingLogEntry) else slot
        found = data[position : position + length].ljust(length, b"\0")
        if found != (expected := with_checksum(found, position)):
            yield position, expected
        position += length


def _checksum(fields: bytes, number: int, code: int, kept: int) -> int:
    """Compute a slot's checksum as it was written: with the type of `code`, and with what `kept` stands for."""
    checked = bytearray(fields)
    type_value = _TYPES[code]
    checked[_TYPE] = type_value.to_bytes(4, "little", signed=True)
    match type_value & ~_INVALID_FLAG:
        case EntryType.TERM:
            checked[_LOG_POSITION] = kept.to_bytes(8, "little")
        case EntryType.SNAPSHOT:
            checked[_RECORDING_ID] = checked[_TIMESTAMP] = bytes(8)
        case _:
            pass
    return zlib.crc32(_CHECKED.pack(code << _NUMBER_BITS | number, kept, 0)[:-4], zlib.crc32(checked))


def _type_of(fields: bytes) -> int:
    return int.from_bytes(fields[_TYPE], "little", signed=True)


def _is_explained(slot: bytes, file_position: int, file_length: int) -> bool:
    """Whether a slot is as we wrote it, or as Aeron writes one or changes one."""
    fields, rest = slot[: _ENTRY.size], slot[_ENTRY.size :]
    if _type_of(fields) not in _TYPE_CODES or not any(rest):
        return True  # a standby snapshot; or Aeron's, from an empty buffer
    values: tuple[int, int, int] = _CHECKED.unpack(rest)
    numbered, kept, checksum = values
    code, named = numbered >> _NUMBER_BITS, numbered & (1 << _NUMBER_BITS) - 1
    if code not in _TYPES:
        return code == 0 and _is_endpoint(rest)
    number = file_position // _SLOT_ALIGNMENT
    if checksum == _checksum(fields, number, code, kept):
        return named == number and _is_change_of_aerons(fields, _TYPES[code], kept)
    return named != number and named * _SLOT_ALIGNMENT < file_length


def _is_change_of_aerons(fields: bytes, old_type: int, kept: int) -> bool:
    """Whether the fields that Aeron may change are as we wrote them, or as it changes them."""
    new_type = _type_of(fields)
    match old_type & ~_INVALID_FLAG:
        case EntryType.TERM:
            log_position = int.from_bytes(fields[_LOG_POSITION], "little")
            changed_bits = (log_position ^ kept).bit_count()
            is_position = log_position < 1 << 63 and log_position % _POSITION_ALIGNMENT == 0
            has_log_position = changed_bits == 0 or (changed_bits > 1 and is_position)
            return has_log_position and new_type in (old_type, _REMOVED)
        case EntryType.SNAPSHOT:
            has_recording_id = zlib.crc32(fields[_RECORDING_ID]) == kept & 0xFFFF_FFFF
            has_timestamp = zlib.crc32(fields[_TIMESTAMP]) == kept >> 32
            if has_recording_id and has_timestamp:
                return new_type in (old_type, old_type | _INVALID_FLAG, _REMOVED)
            is_another = not has_recording_id and not has_timestamp
            return is_another and new_type != EntryType.TERM
        case _:
            return new_type == old_type


def _is_endpoint(rest: bytes) -> bool:
    """Whether the end of a slot is the length and the begin of an endpoint, which Aeron has left in its buffer."""
    (length,) = _ENDPOINT_LENGTH.unpack_from(rest)
    endpoint = rest[_ENDPOINT_LENGTH.size :][:length]
    return 0 < length <= MAX_ENTRY_LENGTH and endpoint.isascii() and endpoint.decode("ascii").isprintable()
