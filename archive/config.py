"""The settings of an archive."""

from __future__ import annotations

from dataclasses import dataclass

from ..service_api.wire.checksum import ChecksumKind


@dataclass(slots=True, frozen=True, kw_only=True)
class RecordingLayout:
    """How one recording lies in its files. Lengths in bytes, powers of two for terms."""

    term_length_bytes: int
    segment_length_bytes: int
    mtu_length_bytes: int


@dataclass(slots=True, frozen=True, kw_only=True)
class ArchiveConfig:
    """How an archive lays out new recordings and how durable they are. Lengths in bytes, powers of two for
    terms.
    """

    term_length_bytes: int = 64 << 20
    segment_length_bytes: int = 128 << 20
    mtu_length_bytes: int = 65504
    file_sync_level: int = 1
    """0: with the kernel; 1: data durable (fdatasync); 2: data and metadata (fsync)."""
    checksums: bool = True
    """Whether the data frames of new recordings carry a checksum; the sender that builds the frames computes it."""
    checksum_kind: ChecksumKind = ChecksumKind.CRC32
    """Which checksum that is."""
    inline_sync_limit_bytes: int = 256 << 10
    """A batch up to this size may be synced on the event loop when the disk is quick.

    Measured with three members on two cores, 1,024 messages of 32 bytes in flight: 4 KiB gave 182k and 221k msg/s,
    1 MiB 197k and 252k in interleaved runs. A thread hop costs more than the 0.1 ms that the loop stands still.
    """
    low_space_threshold_bytes: int | None = None
    """With less free on the disk no recording is started or extended, and one that runs warns once. None: a segment, as
    Aeron has it. Source: Aeron `Archive.Configuration.LOW_STORAGE_SPACE_THRESHOLD_PROP_NAME`."""
    drops_copied_pages: bool = True
    """Whether long batches of a copy leave the page cache once they are durable."""
    spares_readers: bool = True
    """Whether an edit is refused that would take from a running replay what it has yet to read. Who turns this off asks
    `Archive.reader_positions` and decides, as a member does that may not keep its log for ever."""

    @property
    def checksum_label(self) -> str:
        """Which checksum new recordings get: none, crc32 or crc32c."""
        return self.checksum_kind.label if self.checksums else "none"

    @property
    def layout(self) -> RecordingLayout:
        """How new recordings lie in their files, unless they are copies of others."""
        return RecordingLayout(
            term_length_bytes=self.term_length_bytes,
            segment_length_bytes=max(self.segment_length_bytes, self.term_length_bytes),
            mtu_length_bytes=self.mtu_length_bytes,
        )

    @property
    def space_threshold_bytes(self) -> int:
        """How much has to be free for a recording to begin."""
        threshold = self.low_space_threshold_bytes
        return max(self.segment_length_bytes, self.term_length_bytes) if threshold is None else threshold
