"""Giving checksums to the frames of a recording that was made without: a CRC-32 in place of each session id.

A segment at a time, and never in place: a copy with checksums is written, synced and renamed over the file, so a crash
leaves each segment as it was or as it should be. A frame that does not check out ends the work before its segment was
changed: a checksum must not make valid what is damaged. Memory: one block, or one frame if that is longer.
Every function here blocks. Source: samples set A README §5; Aeron `ArchiveTool checksum`, which writes in place.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trimaran.service_api.wire.frame import HEADER_LENGTH, TYPE_PADDING, align, frame_crc, unpack_header

from ..disk.file_system import FileSystem, read_fully, write_fully
from ..errors import CorruptionError
from ..files.segment_files import SegmentFiles
from ..format.descriptor import RecordingDescriptor
from ..format.frame_rules import frame_rules_of
from ..format.layout import SegmentSlice, clip

_BLOCK_BYTES: Final = 1 << 20
_CHECKSUM: Final = struct.Struct("<i")
_CHECKSUM_OFFSET: Final = 12


def stamp_recording(
    file_system: FileSystem,
    directory: Path,
    descriptor: RecordingDescriptor,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Stamp all frames of a recording with a stop position; return how many there are. Doing it again is no harm.

    `on_progress` is told how many bytes are done.

    Raises:
        CorruptionError: a frame is wrong, or a segment missing.
        OSError: the disk refused.
    """
    assert descriptor.stop_position is not None
    files = SegmentFiles(file_system, directory, descriptor, sync_level=2)
    files.remove_unpublished()
    frame_count = 0
    for part in clip(
        descriptor.start_position,
        descriptor.stop_position,
        recording_start_position=descriptor.start_position,
        term_length_bytes=descriptor.term_buffer_length,
        segment_length_bytes=descriptor.segment_file_length,
    ):
        frame_count += _SegmentStamper(files, descriptor, part).run()
        if on_progress is not None:
            on_progress(part.stop_position - descriptor.start_position)
    return frame_count


class _SegmentStamper:
    """Writes one segment anew, with checksums in its data frames."""

    def __init__(self, files: SegmentFiles, descriptor: RecordingDescriptor, part: SegmentSlice) -> None:
        self._files = files
        self._file_system = files.file_system
        self._descriptor = descriptor
        self._rules = frame_rules_of(descriptor, checksummed=False)
        self._part = part
        self._frame_count = 0

    def run(self) -> int:
        """Copy the part of the recording in this segment, and put the copy in the place of the file."""
        name = self._descriptor.segment_file_name(self._part.base_position)
        try:
            source = self._file_system.open_file(self._files.directory / name, writable=False)
        except FileNotFoundError:
            raise self._damage(f"segment file missing: expected={name}", self._part.start_position) from None
        try:
            segment = self._files.create_sparse(self._part.base_position)
            try:
                self._copy(source, segment.handle)
                self._files.sync(segment)
            except BaseException:
                self._files.discard(segment)
                raise
            self._files.publish(segment)
            self._file_system.close_file(segment.handle)
        finally:
            self._file_system.close_file(source)
        return self._frame_count

    def _copy(self, source: int, target: int) -> None:
        position, stop_position = self._part.start_position, self._part.stop_position
        while position < stop_position:
            offset, left = position - self._part.base_position, stop_position - position
            block = bytearray(read_fully(self._file_system, source, min(_BLOCK_BYTES, left), offset))
            length, end = self._stamp(block, position)
            if not length and len(block) < left:  # a frame longer than a block
                wanted = min(align(self._descriptor.mtu_length), left)
                block = bytearray(read_fully(self._file_system, source, wanted, offset))
                length, end = self._stamp(block, position)
            if not length or end > stop_position:
                fault = self._rules.find_fault(block, 0, position) if not length else None
                raise self._damage(fault or f"frame runs past the end: end={stop_position}", position)
            write_fully(self._file_system, target, memoryview(block)[:length], offset)
            position = end

    def _stamp(self, block: bytearray, position: int) -> tuple[int, int]:
        """Stamp the whole valid frames that `block`, which begins at `position`, holds.

        Returns how many bytes of it that is, and the position after the frames. Of padding only the header is
        looked at: zeros follow it, however many.
        """
        offset = 0
        while offset + HEADER_LENGTH <= len(block):
            header = unpack_header(block, offset)
            if self._rules.find_header_fault(header, position + offset) is not None:
                break
            frame_length, frame_type = header.frame_length, header.type
            if frame_type == TYPE_PADDING:
                self._frame_count += 1
                return offset + HEADER_LENGTH, position + offset + frame_length
            if offset + align(frame_length) > len(block):
                break
            _CHECKSUM.pack_into(block, offset + _CHECKSUM_OFFSET, frame_crc(block, offset, frame_length))
            self._frame_count += 1
            offset += align(frame_length)
        return offset, position + offset

    def _damage(self, what: str, position: int) -> CorruptionError:
        return CorruptionError(
            f"no checksums written into this segment: {what}",
            recording_id=self._descriptor.recording_id,
            position=position,
        )
