"""The entries of a member's `recording.log`, for readers of an archive that know nothing of Raft.

What they prove about the log is said by `commit_claims`. cluster knows nothing of this; a test compares the entries
read here with those of `recording_log`. Source: samples set A README §6; Aeron `RecordingLog`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..errors import CorruptionError

RECORDING_LOG_FILE_NAME: Final = "recording.log"

_ENTRY: Final = struct.Struct("<qqqqqii")
_ENDPOINT_LENGTH: Final = struct.Struct("<i")
_CHECKSUM: Final = struct.Struct("<8s4xI")
_CHECKSUM_MAGIC: Final = b"TRIMARAN"
_ALIGNMENT: Final = 64
_LONGEST_ENTRY: Final = 4096
_TERM, _SNAPSHOT, _STANDBY_SNAPSHOT = range(3)
_REMOVED: Final = -1
_INVALID_FLAG: Final = -(1 << 31)


class LogEntry(NamedTuple):
    """One valid entry: a term, or a snapshot. Positions in bytes; -1 is an open end."""

    recording_id: int
    """Of a term the recording that is the log, of a snapshot the one that holds it."""
    leadership_term_id: int
    term_base_log_position: int
    log_position: int
    is_term: bool


def read_entries(data: bytes) -> Iterator[LogEntry]:
    """Yield the valid entries of a `recording.log` in the order of the file; what was being written last is left out.

    Raises:
        CorruptionError: an entry that cannot be one.
    """
    offset = 0
    while offset + _ENTRY.size <= len(data) and any(data[offset : offset + _ENTRY.size]):
        recording_id, leadership_term_id, base_position, log_position, _, _, kind = _ENTRY.unpack_from(data, offset)
        if kind == _REMOVED:
            offset += _ALIGNMENT
            continue
        is_valid, kind = kind >= 0, kind & ~_INVALID_FLAG
        length = _ENTRY.size
        if kind == _STANDBY_SNAPSHOT and offset + _ENTRY.size + _ENDPOINT_LENGTH.size <= len(data):
            length += _ENDPOINT_LENGTH.size + _ENDPOINT_LENGTH.unpack_from(data, offset + _ENTRY.size)[0]
        if kind not in (_TERM, _SNAPSHOT, _STANDBY_SNAPSHOT) or not _ENTRY.size <= length <= _LONGEST_ENTRY:
            raise CorruptionError(f"recording log: offset={offset} type={kind} length={length} is no entry")
        length = -(-length // _ALIGNMENT) * _ALIGNMENT
        _check_checksum(data[offset : offset + length], offset)
        if is_valid:
            yield LogEntry(recording_id, leadership_term_id, base_position, log_position, kind == _TERM)
        offset += length


def _check_checksum(slot: bytes, offset: int) -> None:
    """Check the CRC-32 that a slot of ours ends with; Aeron's have none.

    Raises:
        CorruptionError: it is another one.
    """
    magic, checksum = _CHECKSUM.unpack(slot[-_CHECKSUM.size :])
    if magic == _CHECKSUM_MAGIC and checksum != zlib.crc32(slot[: -_CHECKSUM.size]):
        raise CorruptionError(f"recording log: offset={offset} checksum wrong")
