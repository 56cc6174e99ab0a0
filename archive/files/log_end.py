"""The end of a recording: where its last valid frame ends, whether it is damaged, and where valid frames go on.

A recording that was not stopped ends where nothing was written yet, or in a torn write: bytes that are no valid frame,
with no valid frame after them, and none further than a crash can tear. Anything else between valid frames, or before
the position at which a recording was stopped, is damage. Readers decide this here and nowhere else. A start judges more
strictly and may cut (`store.repair`): only it knows whether the machine went down, and it writes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ...service_api.wire.frame import FRAME_ALIGNMENT
from ...service_api.wire.frame_rules import FrameRules
from ..disk.file_system import ReadableFileSystem, opened, read_fully
from ..format.descriptor import RecordingDescriptor
from ..format.frame_rules import frame_rules_of
from ..format.layout import UNSYNCED_LIMIT_BYTES
from ..format.segment_names import segment_base_positions

_BLOCK_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """How a recording ends, or the part of it that was read.

    `stopped`: the stop position was reached. `open`: nothing valid was written after `position` yet, though a torn
    write may lie there. `damaged`: frames are missing or not valid at `position`, and it is not the end; or
    the last frame lies there, and nobody can tell whether all of it was written.
    """

    position: int
    """Where the last valid frame ends."""
    kind: Literal["stopped", "open", "damaged"]
    fault: str | None = None
    """Why there is no valid frame at `position`; None where nothing was written, or nothing is wrong."""
    resumes_at: int | None = None
    """Where valid frames go on after damage; None where none do."""

    @property
    def torn_write(self) -> str | None:
        """What every command says of a torn write at the end, which is no damage; None where there is none."""
        return None if self.kind != "open" or self.fault is None else f"ends in a torn write: {self.fault}"

    @property
    def damage(self) -> str | None:
        """What every command says of damage; None where there is none."""
        if self.kind != "damaged":
            return None
        goes_on = "" if self.resumes_at is None else f"; valid frames go on at position={self.resumes_at}"
        return f"{self.fault}{goes_on}"


class FollowingBytes:
    """Looks at what was written at `position` of a recording and after it, where a reader found no valid frame."""

    def __init__(
        self,
        file_system: ReadableFileSystem,
        directory: Path,
        descriptor: RecordingDescriptor,
        position: int,
        *,
        checksummed: bool | None = None,
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._descriptor = descriptor
        self._position = position
        self._rules = frame_rules_of(descriptor, checksummed=checksummed)
        names = file_system.list_directory(directory)
        length = descriptor.segment_file_length
        bases = segment_base_positions(names, descriptor.recording_id)
        self._bases = [base for base in bases if base + length > position]

    def judge(self, reason: str, *, is_blank: bool) -> LogEnd:
        """Return how the recording ends, of whose next frame a reader says `reason`.

        `is_blank`: the reader found nothing written at its position, or no file.
        """
        stop_position = self._descriptor.stop_position
        if stop_position is not None:
            resumes_at = self.find_frame()
            expected = f"; expected frames up to stop_position={stop_position}" if resumes_at is None else ""
            return LogEnd(self._position, "damaged", f"{reason}{expected}", resumes_at)
        if self._find_written(self._position) is None and is_blank:
            return LogEnd(self._position, "open")
        resumes_at = self.find_frame()
        if resumes_at is not None:
            return LogEnd(self._position, "damaged", reason, resumes_at)
        far = self._find_written(self._position + UNSYNCED_LIMIT_BYTES)
        if far is not None:
            fault = f"{reason}; bytes were written up to position={far} and beyond, so this is not a torn write"
            return LogEnd(self._position, "damaged", fault)
        return LogEnd(self._position, "open", reason)

    def find_frame(self) -> int | None:
        """Find where the next valid frame begins after the one at `position` that is not; None: there is none."""
        first = self._position + FRAME_ALIGNMENT
        for base in self._bases:
            with self._opened(base) as handle:
                end = base + min(self._file_system.file_length(handle), self._descriptor.segment_file_length)
                if self._descriptor.stop_position is not None:
                    end = min(end, self._descriptor.stop_position)
                found = _find_frame_in(self._file_system, handle, self._rules, base, max(first, base), end)
            if found is not None:
                return found
        return None

    def _find_written(self, position: int) -> int | None:
        """Find the first byte at `position` or after it that is not zero."""
        for base in self._bases:
            with self._opened(base) as handle:
                begin = max(0, position - base)
                offset = first_nonzero(self._file_system, handle, begin, self._descriptor.segment_file_length)
            if offset is not None:
                return base + offset
        return None

    def _opened(self, base_position: int) -> AbstractContextManager[int]:
        return opened(self._file_system, self._directory / self._descriptor.segment_file_name(base_position))


def first_nonzero(file_system: ReadableFileSystem, handle: int, begin: int, end: int) -> int | None:
    """Find the first byte in [begin, end) of a file that is not zero; None when there is none."""
    while begin < end:
        data = read_fully(file_system, handle, min(_BLOCK_BYTES, end - begin), begin)
        if not data:
            return None
        if data != _ZEROS[: len(data)]:  # thirty times as quick as to strip it, and most of a new segment is zeros
            return begin + len(data) - len(data.lstrip(b"\0"))
        begin += len(data)
    return None


def _find_frame_in(
    file_system: ReadableFileSystem, handle: int, rules: FrameRules, base_position: int, position: int, end: int
) -> int | None:
    """Search [position, end) of one segment, a window at a time; windows overlap by the longest frame."""
    while position < end:
        term_end = min(end, position - position % rules.term_length_bytes + rules.term_length_bytes)
        window_end = min(term_end, position + _BLOCK_BYTES)
        wanted = min(term_end, window_end + rules.mtu_length_bytes) - position
        data = read_fully(file_system, handle, wanted, position - base_position)
        found = next(rules.find_valid_frames(data, position), None)
        if found is not None:
            return found
        position = window_end
    return None
