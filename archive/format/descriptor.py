"""The catalog's record of one recording."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from ...service_api.types import RecordingId
from ...service_api.wire.checksum import ChecksumKind
from . import layout


class RecordingState(IntEnum):
    """What the catalog says about a recording. Source: schema 101 `RecordingState`."""

    INVALID = 0
    VALID = 1
    DELETED = 2


@dataclass(slots=True, frozen=True, kw_only=True)
class RecordingDescriptor:
    """One recording: its identity, its range of positions and how it is laid out. Positions and lengths in
    bytes.

    Source: schema 101 `RecordingDescriptor` (template 22) and its header (21).
    """

    recording_id: RecordingId
    control_session_id: int = 0
    correlation_id: int = 0
    start_timestamp_ms: int
    stop_timestamp_ms: int | None = None
    start_position: int
    stop_position: int | None = None
    """None while the recording is active, and after a crash until the archive has repaired the tail."""
    initial_term_id: int
    segment_file_length: int
    term_buffer_length: int
    mtu_length: int
    session_id: int
    stream_id: int
    stripped_channel: str = ""
    original_channel: str = ""
    source_identity: str = ""
    state: RecordingState = RecordingState.VALID
    checksummed: bool = False
    """Whether its catalog entry, and therefore each of its data frames, carries a checksum."""
    checksum_kind: ChecksumKind = ChecksumKind.CRC32
    """Which checksum that is."""
    unknown_checksum: int = 0
    """The checksum of its catalog entry as it stands there, of a kind that is not known: it stays."""

    @property
    def is_checkable(self) -> bool:
        """Whether each data frame carries a checksum that can be computed here."""
        return self.checksummed and self.checksum_kind is not ChecksumKind.UNKNOWN

    @property
    def checksum_label(self) -> str:
        """What tables and settings call its checksum: none, crc32, crc32c or unknown."""
        return self.checksum_kind.label if self.checksummed else "none"

    def segment_base_position(self, position: int) -> int:
        """Compute the base position of the segment that holds `position`."""
        return layout.segment_base_position(
            position,
            start_position=self.start_position,
            term_length_bytes=self.term_buffer_length,
            segment_length_bytes=self.segment_file_length,
        )

    def clip(self, start_position: int, stop_position: int) -> Iterator[layout.SegmentSlice]:
        """Cut the range [start_position, stop_position) at segment boundaries, in order; nothing for an empty range."""
        return layout.clip(
            start_position,
            stop_position,
            recording_start_position=self.start_position,
            term_length_bytes=self.term_buffer_length,
            segment_length_bytes=self.segment_file_length,
        )

    def segment_file_name(self, base_position: int) -> str:
        """Name the file of the segment at `base_position`."""
        return layout.segment_file_name(self.recording_id, base_position)
