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

A slot takes a multiple of 64 bytes: 48, or 52 and the endpoint, rounded up. Its last 16 bytes, which Aeron leaves zero
and does not read, hold the text TRIMARAN, 4 zero bytes, and the CRC-32 of the slot before them (unsigned). A slot with
zeros there, as Aeron writes it, is accepted: in it only what cannot be is found. So are the entry of a standby snapshot
whose endpoint leaves no room, and a slot in which Aeron has left the endpoint of a standby snapshot that it wrote
before. What no checksum of a slot finds: that the last slots are missing or all zero.

Imports nothing outside the standard library, for readers that have nothing else. Source: Aeron `RecordingLog`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ...errors import RemoteProtocolError

RECORDING_LOG_FILE_NAME: Final = "recording.log"

_SLOT_ALIGNMENT: Final = 64
MAX_ENTRY_LENGTH: Final = 4096
"""No entry is longer, its endpoint included. Source: Aeron `RecordingLog.MAX_ENTRY_LENGTH`."""

CONSENSUS_MODULE_SERVICE_ID: Final = -1

_ENTRY: Final = struct.Struct("<qqqqqii")
_ENDPOINT_LENGTH: Final = struct.Struct("<i")
_INVALID_FLAG: Final = -(1 << 31)
_REMOVED: Final = -1
_CHECKSUM: Final = struct.Struct("<8s4xI")
_CHECKSUM_MAGIC: Final = b"TRIMARAN"
_TYPE_AND_ENDPOINT_LENGTH: Final = struct.Struct("<ii")
_TYPE_OFFSET: Final = 44


class EntryType(IntEnum):
    """What an entry stands for."""

    TERM = 0
    SNAPSHOT = 1
    STANDBY_SNAPSHOT = 2


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
    """
    position = entry_index = 0
    while position < len(data):
        slot = _parse_slot(data, position, entry_index)
        if slot is None:
            return
        length = slot.length if isinstance(slot, RecordingLogEntry) else slot
        _check_slot(data[position : position + length].ljust(length, b"\0"), position, entry_index)
        yield slot
        position += length
        entry_index += 1


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
        endpoint = data[start : start + size].decode("ascii", "replace")
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


def with_checksum(slot: bytes) -> bytes:
    """Fill in the checksum where the slot has room for it."""
    checked_length = len(slot) - _CHECKSUM.size
    if _content_length(slot) > checked_length:
        return slot
    return slot[:checked_length] + _CHECKSUM.pack(_CHECKSUM_MAGIC, zlib.crc32(slot[:checked_length]))


def _content_length(slot: bytes) -> int:
    """How many bytes of a slot its entry takes: all but a standby snapshot's take 48."""
    entry_type, endpoint_length = _TYPE_AND_ENDPOINT_LENGTH.unpack_from(slot, _TYPE_OFFSET)
    is_standby = entry_type & 0x7FFF_FFFF == EntryType.STANDBY_SNAPSHOT  # the highest bit says invalid
    return _TYPE_OFFSET + 8 + endpoint_length if is_standby else _TYPE_OFFSET + 4


def _check_slot(slot: bytes, position: int, entry_index: int) -> None:
    """Hold a slot against its checksum, if it has one.

    Raises:
        RemoteProtocolError: the slot is not what was written.
    """
    has_checksum = any(slot[max(_content_length(slot), len(slot) - _CHECKSUM.size) :])
    if has_checksum and slot != with_checksum(slot) and not _holds_older_endpoint(slot):
        raise RemoteProtocolError(f"recording log: entry_index={entry_index} position={position}: wrong checksum")


def _holds_older_endpoint(slot: bytes) -> bool:
    """Whether Aeron, which does not clear its buffer, has left an earlier entry's endpoint after this one."""
    rest = slot[_content_length(slot) :].rstrip(b"\0")
    if _content_length(slot) == _TYPE_OFFSET + 4:  # no standby snapshot: the length of that endpoint comes first
        (endpoint_length,) = _ENDPOINT_LENGTH.unpack_from(slot, _TYPE_OFFSET + 4)
        rest = rest[4:] if 0 < endpoint_length < MAX_ENTRY_LENGTH else b"\0"
    return rest.isascii() and rest.decode("ascii").isprintable()
