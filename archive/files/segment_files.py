"""The segment files of one recording: create, prepare ahead, name, open, clean. Every function here may
block.

Durability order: a file is made and filled under a working name, synced, then renamed and its directory
synced; only after that may data in it be called durable.

Rejected: making the next segment out of one that was purged. It has to be zero-written all the same, as what follows
the end of a recording is zero. Measured, two busy cores, ext4, 128 MiB in steps of 4 MiB: 0.12-0.16 s for a new file,
0.09-0.13 s over an old one, the syncs of a log beside it as quick in both cases; and what is purged would not give its
room back. As it is, an append that rolls into a prepared segment takes 10-13 us, as any other; 110-125 us where a file
has to be made.

Rejected: idle I/O priority for the zero-writing, and steps of 64 KiB. Syncs of 16 KiB beside 36 MB/s of it, in turn,
medians of 8: p99.9 4.3 ms alone, 6.1 beside steps of 1 MiB, 5.5 with idle priority (mq-deadline), 5.6 beside steps of
64 KiB, which take the disk five times as long.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..disk.file_system import FileSystem, read_fully, sync_at_level, write_fully
from ..errors import RESTORE_ADVICE, ArchiveError, ArchiveErrorCode, CorruptionError
from ..format import layout
from ..format.descriptor import RecordingDescriptor
from ..format.segment_names import segment_base_positions

ZERO_STEP_BYTES: Final = 1 << 20
"""How much of a new segment is zero-written and synced in one step: about a millisecond of the disk."""

_ZEROS: Final = bytes(64 << 10)
"""What is zero-written in one call.

The page cache keeps a file in pieces as long as the writes that made it, and a write of one message is dearer in a long
one: 3.3 us in a piece of 1 MiB, 1.5 us in one of 64 KiB, and the sync after it 2 us more (Linux 6.18, ext4).
"""
_SUFFIX_IN_USE: Final = ".rec.next"
_SUFFIX_ZEROING: Final = ".rec.zero"


@dataclass(slots=True)
class Segment:
    """One open segment file. `name` is the file's name now; it is `named` once that is its final name,
    durably.
    """

    base_position: int
    handle: int
    name: str
    named: bool


class SegmentFiles:
    """Makes, opens and cleans the segment files of one recording in one directory."""

    def __init__(
        self, file_system: FileSystem, directory: Path, descriptor: RecordingDescriptor, *, sync_level: int
    ) -> None:
        self.file_system = file_system
        self.directory = directory
        self.recording_id = descriptor.recording_id
        self.segment_length_bytes = descriptor.segment_file_length
        self.sync_level = sync_level

    def base_positions(self) -> list[int]:
        """Return the base positions of the segment files on disk, ascending."""
        return segment_base_positions(self.file_system.list_directory(self.directory), self.recording_id)

    def open_segment(self, base_position: int) -> Segment:
        """Open a segment file for writing, and bring it to its full length.

        Raises:
            FileNotFoundError: it is not there.
        """
        name = layout.segment_file_name(self.recording_id, base_position)
        handle = self.file_system.open_file(self.directory / name)
        try:
            if self.file_system.file_length(handle) != self.segment_length_bytes:
                self.file_system.set_length(handle, self.segment_length_bytes)
                if self.sync_level:
                    self.file_system.sync_file(handle)
        except BaseException:
            self.file_system.close_file(handle)
            raise
        return Segment(base_position, handle, name, named=True)

    def create_first(self, base_position: int, *, zero: bool) -> Segment:
        """Make the segment a recording begins or goes on with, under its final name, durably."""
        segment = self.create_for_zeroing(base_position)
        try:
            offset = 0
            while zero and offset < self.segment_length_bytes:
                offset = self.zero_step(segment, offset)
            self.sync(segment)
            self.publish(segment)
        except BaseException:
            with suppress(OSError):
                self.discard(segment)
            raise
        return segment

    def create_sparse(self, base_position: int) -> Segment:
        """Make a segment file of full length under a working name, without writing it: quick, but slower to
        sync.
        """
        return self._create(base_position, _SUFFIX_IN_USE)

    def create_for_zeroing(self, base_position: int) -> Segment:
        """Make a segment file under the working name of one that is still being zero-written."""
        return self._create(base_position, _SUFFIX_ZEROING)

    def zero_step(self, segment: Segment, offset: int) -> int:
        """Zero-write and sync the next part of a segment; return where the following part begins.

        Written blocks make later syncs cheap: fdatasync then has no allocation to record (80-105 us against
        130-270).
        """
        end = min(self.segment_length_bytes, offset + ZERO_STEP_BYTES)
        while offset < end:
            length = min(len(_ZEROS), end - offset)
            write_fully(self.file_system, segment.handle, memoryview(_ZEROS)[:length], offset)
            offset += length
        if self.sync_level:
            self.file_system.sync_file(segment.handle)
        return offset

    def publish(self, segment: Segment) -> None:
        """Give a segment its final name, durably. Every earlier byte of the recording must be durable
        already.
        """
        name = layout.segment_file_name(self.recording_id, segment.base_position)
        self.file_system.rename(self.directory / segment.name, self.directory / name)
        if self.sync_level:
            self.file_system.sync_directory(self.directory)
        segment.name = name
        segment.named = True

    def sync(self, segment: Segment) -> None:
        """Make what was written to a segment durable, as the sync level says."""
        sync_at_level(self.file_system, segment.handle, self.sync_level)

    def evict(self, segment: Segment, begin_position: int, end_position: int) -> None:
        """Drop a durable range of positions from the page cache; later reads come from the disk."""
        begin = max(0, begin_position - segment.base_position)
        end = min(self.segment_length_bytes, end_position - segment.base_position)
        if begin < end:
            self.file_system.evict(segment.handle, begin, end - begin)

    def discard(self, segment: Segment) -> None:
        """Close and remove a segment file that was never published."""
        self.file_system.close_file(segment.handle)
        self.file_system.remove(self.directory / segment.name)

    def remove_blank_orphans(self) -> None:
        """Remove segments that a crash left before their recording had a catalog entry: they hold only zeros.

        Raises:
            CorruptionError: one holds data, so an entry has been lost; nothing is removed.
        """
        for base_position in self.base_positions():
            if not self.is_blank(base_position):
                name = layout.segment_file_name(self.recording_id, base_position)
                raise CorruptionError(
                    f"segment file holds data but its recording is not in the catalog: file={name}; "
                    f"{RESTORE_ADVICE}; if the file is of no use, move it away",
                    recording_id=self.recording_id,
                )
        self.remove_from(0)

    def is_blank(self, base_position: int) -> bool:
        """Whether the segment at `base_position` holds nothing but zeros."""
        segment = self.open_segment(base_position)
        try:
            return all(data.count(0) == len(data) for _, data in self._blocks(segment, 0))
        finally:
            self.file_system.close_file(segment.handle)

    def remove_unpublished(self) -> None:
        """Remove what a crash left under working names: nothing in there was ever called durable."""
        prefix = f"{self.recording_id}-"
        for name in self.file_system.list_directory(self.directory):
            if name.startswith(prefix) and name.endswith((_SUFFIX_IN_USE, _SUFFIX_ZEROING)):
                self.file_system.remove(self.directory / name)

    def remove_from(self, base_position: int) -> int:
        """Remove the segments at and after `base_position`, the last one first; return how many."""
        doomed = [base for base in self.base_positions() if base >= base_position]
        for base in reversed(doomed):
            self.file_system.remove(self.directory / layout.segment_file_name(self.recording_id, base))
            if self.sync_level:
                self.file_system.sync_directory(self.directory)
        return len(doomed)

    def remove_all(self) -> int:
        """Remove whatever there is of the recording; return how many segments that was."""
        self.remove_unpublished()
        return self.remove_from(0)

    def remove_below(self, base_position: int) -> int:
        """Remove the segments before `base_position`, the first one first; return how many."""
        doomed = [base for base in self.base_positions() if base < base_position]
        for base in doomed:
            self.file_system.remove(self.directory / layout.segment_file_name(self.recording_id, base))
        if doomed and self.sync_level:
            self.file_system.sync_directory(self.directory)
        return len(doomed)

    def move_to(self, target: SegmentFiles, start_position: int, stop_position: int) -> int:
        """Move the segments that begin in [start_position, stop_position) to another recording; return how many.

        Those that are not here any more were moved before.
        """
        count = 0
        for base in self.base_positions():
            if start_position <= base < stop_position:
                name = layout.segment_file_name(target.recording_id, base)
                self.file_system.rename(
                    self.directory / layout.segment_file_name(self.recording_id, base), target.directory / name
                )
                count += 1
        if self.sync_level:
            self.file_system.sync_directory(self.directory)
        return count

    def clean_after(self, base_position: int, stop_position: int) -> bool:
        """Make sure that nothing but zeros follows `stop_position`, which lies in the segment at
        `base_position`.

        Later segments are removed; the rest of this one is zeroed where it is not zero. Returns whether anything
        had to change. A recording may be appended to only after this: bytes of an older tail could otherwise be
        taken for its own after the next crash.

        The segment and its name are synced in any case: a process that died may have left its last bytes with the
        kernel only, and from here on they count as recorded.
        """
        changed = self.remove_from(base_position + self.segment_length_bytes) > 0
        if base_position not in self.base_positions():
            return changed
        segment = self.open_segment(base_position)
        try:
            dirty = False
            for offset, data in self._blocks(segment, stop_position - base_position):
                if data.count(0) != len(data):
                    write_fully(self.file_system, segment.handle, bytes(len(data)), offset)
                    dirty = True
            if self.sync_level:
                self.file_system.sync_file(segment.handle)
                self.file_system.sync_directory(self.directory)
            return changed or dirty
        finally:
            self.file_system.close_file(segment.handle)

    def _blocks(self, segment: Segment, offset: int) -> Iterator[tuple[int, bytes]]:
        while offset < self.segment_length_bytes:
            length = min(len(_ZEROS), self.segment_length_bytes - offset)
            data = read_fully(self.file_system, segment.handle, length, offset)
            yield offset, data
            offset += length

    def _create(self, base_position: int, suffix: str) -> Segment:
        name = f"{self.recording_id}-{base_position}{suffix}"
        try:
            handle = self.file_system.open_file(self.directory / name, create=True)
        except OSError as error:
            raise storage_error(error, "segment file not created", self.recording_id, base_position) from error
        try:
            self.file_system.set_length(handle, self.segment_length_bytes)
        except OSError as error:
            self.file_system.close_file(handle)
            self.file_system.remove(self.directory / name)
            raise storage_error(error, "segment file not sized", self.recording_id, base_position) from error
        return Segment(base_position, handle, name, named=False)


def storage_error(error: OSError, what: str, recording_id: int | None, position: int | None) -> ArchiveError:
    """Say in the archive's words that the disk refused."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    code = ArchiveErrorCode.STORAGE_SPACE if full else ArchiveErrorCode.STORAGE_FAILED
    return ArchiveError(f"{what}: {error}", code=code, recording_id=recording_id, position=position)
