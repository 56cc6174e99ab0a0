"""How Aeron writes `recording.log` and `node-state.dat`: which bytes it changes, and which it leaves as they are.

Source: Aeron `RecordingLog` (reload, append, commitLogPosition, invalidateEntry, removeEntry, restoreInvalidSnapshot),
`NodeStateFile.updateCandidateTermId`.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.service_api.wire.log.recording_log import EntryType

_BUFFER_LENGTH: Final = 4096
_SLOT: Final = 64
_INVALID: Final = 1 << 31


class AeronRecordingLog:
    """Writes into a `recording.log` as Aeron does, from one buffer that it never clears."""

    def __init__(self, disk: MemoryFileSystem, path: Path) -> None:
        self._disk = disk
        self._path = path
        data = disk.content(path) if path.name in disk.list_directory(path.parent) else b""
        self._length = len(data)
        self._buffer = bytearray(_BUFFER_LENGTH)
        for start in range(0, len(data), _BUFFER_LENGTH):  # slots of 64 bytes only: each read ends with a whole one
            chunk = data[start : start + _BUFFER_LENGTH]
            self._buffer[: len(chunk)] = chunk

    def append(self, *values: int, endpoint: str = "") -> int:
        """Append an entry of the fields in their order, the type last; give the position of its slot."""
        self._fill(*values, endpoint=endpoint)
        position = -(-self._length // _SLOT) * _SLOT
        length = 48 if values[-1] != EntryType.STANDBY_SNAPSHOT else 52 + len(endpoint)
        length = -(-length // _SLOT) * _SLOT
        self._write(position, length)
        self._length = position + length
        return position

    def restore(self, position: int, *values: int) -> None:
        """Write a whole slot again, that of a snapshot which was invalid."""
        self._fill(*values)
        self._write(position, _SLOT)

    def commit_log_position(self, position: int, log_position: int) -> None:
        """Set where the term of a slot ends."""
        struct.pack_into("<q", self._buffer, 0, log_position)
        self._write(position + 24, 8)

    def invalidate(self, position: int, entry_type: int) -> None:
        """Mark the entry of a slot as invalid."""
        struct.pack_into("<I", self._buffer, 0, entry_type | _INVALID)
        self._write(position + 44, 4)

    def remove(self, position: int) -> None:
        """Mark the entry of a slot as removed; Aeron then reads the file again."""
        struct.pack_into("<i", self._buffer, 0, -1)
        self._write(position + 44, 4)
        self.__init__(self._disk, self._path)  # type: ignore[misc]

    def _fill(self, *values: int, endpoint: str = "") -> None:
        struct.pack_into("<qqqqqii", self._buffer, 0, *values)
        if endpoint:
            struct.pack_into(f"<i{len(endpoint)}s", self._buffer, 48, len(endpoint), endpoint.encode())

    def _write(self, position: int, length: int) -> None:
        handle = self._disk.open_file(self._path, create=self._path.name not in self._disk.list_directory(Path("/")))
        self._disk.pwrite(handle, bytes(self._buffer[:length]), position)
        self._disk.close_file(handle)


def update_candidate_term(
    data: bytes, candidate_term_id: int, log_position: int, timestamp_ms: int, *, killed_after: int = 3
) -> bytes:
    """Write the three fields in Aeron's order, or only so many of them."""
    changed = bytearray(data)
    writes = ((40, log_position), (32, timestamp_ms), (24, candidate_term_id))
    for offset, value in writes[:killed_after]:
        struct.pack_into("<q", changed, offset, value)
    return bytes(changed)
