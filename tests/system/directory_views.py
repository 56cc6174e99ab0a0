"""What the independent checker reads out of a member's directory: plain values, nothing of ours imported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LOG_STREAM_ID: Final = 100


class DirectoryFault(AssertionError):
    """Files of a member break the rules; the message lists each fault."""


@dataclass(slots=True, frozen=True)
class Frame:
    """One frame of a recording; `payload` is empty for padding."""

    position: int
    frame_length: int
    flags: int
    frame_type: int
    payload: bytes

    @property
    def aligned_length(self) -> int:
        return -(-self.frame_length // 32) * 32


@dataclass(slots=True, frozen=True)
class Message:
    """One assembled message: where its first frame begins, where its last one ends, and its bytes."""

    position: int
    end_position: int
    encoded: bytes


@dataclass(slots=True, kw_only=True)
class RecordingView:
    """One recording: its catalog entry and its bytes from the start to where its frames end."""

    recording_id: int
    start_position: int
    stop_position: int | None
    initial_term_id: int
    segment_length: int
    term_length: int
    mtu_length: int
    stream_id: int
    is_checksummed: bool
    is_crc32c: bool = False
    data: bytes = b""
    frames: list[Frame] = field(default_factory=list)

    @property
    def end_position(self) -> int:
        return self.start_position + len(self.data)

    def messages(self) -> Iterator[Message]:
        """Join the fragments; what is not complete at the end is left out."""
        begin, pieces = 0, list[bytes]()
        for frame in self.frames:
            if frame.frame_type == 0:
                continue
            if frame.flags & 0x80:
                begin, pieces = frame.position, []
            pieces.append(frame.payload)
            if frame.flags & 0x40:
                yield Message(begin, frame.position + frame.aligned_length, b"".join(pieces))


@dataclass(slots=True, frozen=True)
class TermEntry:
    """One leadership term of `recording.log`."""

    recording_id: int
    leadership_term_id: int
    term_base_log_position: int
    log_position: int | None


@dataclass(slots=True, frozen=True)
class SnapshotEntry:
    """One snapshot of `recording.log` that counts."""

    recording_id: int
    leadership_term_id: int
    term_base_log_position: int
    log_position: int
    timestamp: int
    service_id: int
    entry_index: int


@dataclass(slots=True)
class DirectoryReport:
    """What was found in a directory that keeps all rules."""

    directory: Path
    recordings: list[RecordingView]
    terms: list[TermEntry]
    snapshots: list[SnapshotEntry]
    candidate_term_id: int

    @property
    def log(self) -> RecordingView:
        """The recording of the cluster's log: the one that its terms name, if there are several."""
        logs = [recording for recording in self.recordings if recording.stream_id == LOG_STREAM_ID]
        named = {term.recording_id for term in self.terms}
        (log,) = [recording for recording in logs if recording.recording_id in named] if len(logs) > 1 else logs
        return log

    @property
    def last_term_id(self) -> int:
        """The newest leadership term that it has seen; -1 without one."""
        return max((term.leadership_term_id for term in self.terms), default=-1)
