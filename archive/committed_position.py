"""How far a log is surely committed, by what one member has written down in its `recording.log`.

The commit position itself is in memory only. But some of what a member writes down is true only of a committed log:

- A *snapshot* is taken where it was delivered, so the log is committed up to its position.
- A *term* begins at its base with a leader that had first made sure that a majority held its whole log. So the base is
  committed once the log goes on behind it. A base right at the end of the log is only a mark: the leader may have died
  before a majority had it, and then the mark is taken back and the log may be cut.
- The *last term* has an end after an orderly stop, at a position that was committed. (And after a crash in the instant
  between the two writes that begin a term: the end of the one before it, and itself. The next start repairs that.)

So what is found may lie far below what was committed when the member stopped, and but for that instant it is never
beyond it. The archive
knows nothing of Raft and cluster nothing of this; a test compares the entries read here with those of
`cluster.core.recording_log`. Source: samples set A README §6; Aeron `RecordingLog`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from .errors import CorruptionError

RECORDING_LOG_FILE_NAME: Final = "recording.log"

_ENTRY: Final = struct.Struct("<qqqqqii")
_ENDPOINT_LENGTH: Final = struct.Struct("<i")
_CHECKSUM: Final = struct.Struct("<8s4xI")
_CHECKSUM_MAGIC: Final = b"QUORATE\0"
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


class CommittedLog(NamedTuple):
    """Which recording is the log, and up to which position it is surely committed."""

    recording_id: int
    position: int


def find_committed_log(data: bytes, end_position: int) -> CommittedLog | None:
    """Say how far the log is committed by the content of a `recording.log`; None if that names no log.

    `end_position` is where the log's recording ends.

    Raises:
        CorruptionError: an entry that cannot be one.
    """
    entries = list(read_entries(data))
    terms = [entry for entry in entries if entry.is_term]
    if not terms:
        return None
    last = max(terms, key=lambda entry: entry.leadership_term_id)
    positions = [entry.log_position for entry in entries if not entry.is_term]
    positions += [entry.term_base_log_position for entry in terms if entry.term_base_log_position < end_position]
    positions.append(last.log_position)
    return CommittedLog(last.recording_id, min(max(0, *positions), end_position))


def find_log_recording(data: bytes) -> int | None:
    """Say which recording is the log; None if there is no term yet.

    Raises:
        CorruptionError: an entry that cannot be one.
    """
    terms = [entry for entry in read_entries(data) if entry.is_term]
    return max(terms, key=lambda entry: entry.leadership_term_id).recording_id if terms else None


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
