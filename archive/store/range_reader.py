"""Reads ranges of recordings as they were recorded: whole valid frames, through a few open files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from ...service_api.wire.frame import HEADER_LENGTH, unpack_header
from ...service_api.wire.frame_rules import FrameRules
from ...service_api.wire.log.log_rules import FIRST_ENTRY_LENGTH, Before
from ..disk.file_system import ReadableFileSystem, read_fully
from ..errors import VERIFY_ADVICE, ArchiveError, CorruptionError, is_damage
from ..format.descriptor import RecordingDescriptor
from ..format.frame_rules import find_before, frame_rules_of
from .recording import Recording

READ_HANDLE_LIMIT: Final = 16
"""How many segment files are kept open for reading; the one used longest ago is closed for another."""


class RangeReader:
    """Reads the frames of the recordings in one directory. Blocks, on what is mostly in the page cache."""

    def __init__(
        self,
        directory: Path,
        file_system: ReadableFileSystem,
        *,
        refuse_if_purged: Callable[[int, int], object],
        evict: Callable[[int, int, int], object] | None = None,
        cold_path: Callable[[RecordingDescriptor, int], Path | None] = lambda descriptor, position: None,
    ) -> None:
        self._directory = directory
        self._file_system = file_system
        self._refuse_if_purged = refuse_if_purged
        """Raises when this position of this recording is not kept any more: then its lack is no damage."""
        self._evict = evict
        """Drops a range of an open file from the page cache; None: this reader may use what the kernel has there."""
        self._cold_path = cold_path
        """Names the file of a position whose segment left the directory, or raises where that is to be fetched."""
        self._before: dict[tuple[int, int], Before] = {}
        """By recording id and position: what lies before the next frame of a log, where reads have ended."""
        self._handles: dict[tuple[int, int], int] = {}
        self._cold_key: tuple[int, int] | None = None
        """Which of them is of the cache: only one, for an open file keeps its room on the disk after it was removed."""

    def __repr__(self) -> str:
        return f"<RangeReader directory={str(self._directory)!r} handles={len(self._handles)}>"

    def read(
        self,
        descriptor: RecordingDescriptor,
        active: Recording | None,
        position: int,
        limit_bytes: int,
        *,
        stop_position: int,
    ) -> bytes:
        """Read the valid frames from `position` on: as many as fit, but one at least.

        Raises:
            ArchiveError: the segment was purged.
            CorruptionError: there is no valid frame at `position`.
            OSError: the disk refused.
        """
        base_position = descriptor.segment_base_position(position)
        handle = self._handle(descriptor, position, active)
        available = min(stop_position, base_position + descriptor.segment_file_length) - position
        offset = position - base_position
        rules = frame_rules_of(descriptor)
        before, _ = self._find_before(rules, descriptor, active, position)
        data = self._read_what_can_be_read(handle, max(HEADER_LENGTH, min(limit_bytes, available)), offset)
        whole, following = _valid_frames_length(rules, data, position, before)
        if not whole:
            aligned = unpack_header(data).aligned_length if len(data) >= HEADER_LENGTH else 0
            if len(data) < aligned <= available:
                data = read_fully(self._file_system, handle, aligned, offset)
                whole, following = _valid_frames_length(rules, data, position, before)
        if not whole:
            fault = (
                rules.find_fault(data, 0, position, before) or f"frame runs past the end: end={position + available}"
            )
            raise CorruptionError(
                f"recorded frame is not valid: {fault}: file={descriptor.segment_file_name(base_position)}; "
                f"{VERIFY_ADVICE}",
                recording_id=descriptor.recording_id,
                position=position,
            )
        if rules.is_cluster_written:
            self._note_before(descriptor.recording_id, position + whole, following)
        return data if whole == len(data) else data[:whole]

    def find_damage(self, descriptor: RecordingDescriptor, active: Recording | None, position: int) -> int:
        """Find where the damage begins that a read at `position` has met: there, or in the frame before.

        A message of a log that begins in another one is valid by itself: then the frame before may have lost the flag
        that ends its message.

        Raises:
            ArchiveError: the segment was purged, or there is none.
            OSError: the disk refused.
        """
        rules = frame_rules_of(descriptor)
        self._before.pop((descriptor.recording_id, position), None)
        before, begin = self._find_before(rules, descriptor, active, position)
        data = self._read_part(descriptor, active, position, FIRST_ENTRY_LENGTH)
        if begin is None or len(data) < HEADER_LENGTH:
            return position
        header = unpack_header(data)
        is_whole = rules.find_header_fault(header, position) is None
        return begin if is_whole and rules.find_order_fault(header, before, data, 0, position) else position

    def _find_before(
        self, rules: FrameRules, descriptor: RecordingDescriptor, active: Recording | None, position: int
    ) -> tuple[Before, int | None]:
        """Find what lies before a position of a log: this reader knows it where it goes on, or else looks."""
        known = self._before.pop((descriptor.recording_id, position), None)
        if known is not None:
            return known, None
        try:
            return find_before(
                rules,
                descriptor.start_position,
                position,
                lambda begin, length: self._read_part(descriptor, active, begin, length),
            )
        except (ArchiveError, OSError):
            return Before.UNKNOWN, None  # who reads what lies there is told of it

    def _read_part(
        self, descriptor: RecordingDescriptor, active: Recording | None, position: int, length: int
    ) -> bytes:
        handle = self._handle(descriptor, position, active)
        return self._read_what_can_be_read(handle, length, position - descriptor.segment_base_position(position))

    def _note_before(self, recording_id: int, position: int, before: Before) -> None:
        if len(self._before) >= READ_HANDLE_LIMIT:
            del self._before[next(iter(self._before))]
        self._before[recording_id, position] = before

    def _read_what_can_be_read(self, handle: int, length: int, offset: int) -> bytes:
        """Read `length` bytes, or only the first of them where the disk cannot read the rest.

        Raises:
            OSError: the disk refuses already the shortest read, or for a reason that has nothing to do with the place.
        """
        evict = self._evict
        while True:
            if evict is not None:
                evict(handle, offset, length)
            try:
                return read_fully(self._file_system, handle, length, offset)
            except OSError as error:
                if length <= HEADER_LENGTH or not is_damage(error):
                    raise
            finally:
                if evict is not None:
                    evict(handle, offset, length)
            length = max(HEADER_LENGTH, length // 2)

    def forget(self, recording_id: int | None) -> None:
        """Close the files kept open for a recording, or for all, and forget what was read of it."""
        for place in [place for place in self._before if recording_id in (None, place[0])]:
            del self._before[place]
        for key in [key for key in self._handles if recording_id in (None, key[0])]:
            self._file_system.close_file(self._handles.pop(key))

    def _handle(self, descriptor: RecordingDescriptor, position: int, active: Recording | None) -> int:
        """Return an open handle of the segment of `position`: the writer's own, or else one of a few kept open."""
        base_position = descriptor.segment_base_position(position)
        if active is not None:
            handle = active.handle_at(base_position)
            if handle is not None:
                return handle
        key = (descriptor.recording_id, base_position)
        handle = self._handles.pop(key, None)
        if handle is None:
            path = self._directory / descriptor.segment_file_name(base_position)
            try:
                cold_path = self._cold_path(descriptor, position)
                if cold_path is not None:
                    if self._cold_key in self._handles:
                        self._file_system.close_file(self._handles.pop(self._cold_key))
                    self._cold_key = key
                handle = self._file_system.open_file(cold_path or path, writable=False)
            except FileNotFoundError as error:
                self._refuse_if_purged(descriptor.recording_id, position)
                raise CorruptionError(
                    f"segment file missing: expected={path.name}; {VERIFY_ADVICE}",
                    recording_id=descriptor.recording_id,
                    position=base_position,
                ) from error
            if len(self._handles) >= READ_HANDLE_LIMIT:
                oldest = next(iter(self._handles))
                self._file_system.close_file(self._handles.pop(oldest))
        self._handles[key] = handle
        return handle


def _valid_frames_length(rules: FrameRules, data: bytes, position: int, before: Before) -> tuple[int, Before]:
    """Return how many bytes of `data`, which begins at `position`, are valid frames, and what lies before the next."""
    end = 0
    while end < len(data):
        following, _, before = rules.skip_valid_frames(data, end, position + end, len(data), before)
        if following == end:
            break
        end = following
    return end, before
