"""Adds checksums to a recording without them: a CRC-32 in place of each frame's session id.

A segment at a time, and never in place: a copy with checksums is written, synced and renamed over the file, so a crash
leaves each segment as it was or as it should be. A frame that is not valid ends the work before its segment was
changed: a checksum must not make valid what is damaged. Memory: one block, or one frame if that is longer.
Every function here blocks. Source: samples set A README §5; Aeron `ArchiveTool checksum`, which writes in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ...service_api.wire.frame import (
    HEADER_LENGTH,
    TYPE_PADDING,
    stamp_checksums,
    unpack_header,
)
from ...service_api.wire.log.log_rules import Before, what_follows
from ..disk.file_system import FileSystem, read_fully, write_fully
from ..errors import RESTORE_ADVICE, CorruptionError
from ..files.segment_files import SegmentFiles
from ..format.descriptor import RecordingDescriptor
from ..format.frame_rules import frame_rules_of
from ..format.layout import SegmentSlice

_BLOCK_BYTES: Final = 1 << 20


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
    for part in descriptor.clip(descriptor.start_position, descriptor.stop_position):
        frame_count += _stamp_segment(files, descriptor, part)
        if on_progress is not None:
            on_progress(part.stop_position - descriptor.start_position)
    return frame_count


def _stamp_segment(files: SegmentFiles, descriptor: RecordingDescriptor, part: SegmentSlice) -> int:
    """Copy a segment with checksums, and put the copy in the place of the file; return how many frames it has."""
    file_system, name = files.file_system, descriptor.segment_file_name(part.base_position)
    try:
        source = file_system.open_file(files.directory / name, writable=False)
    except FileNotFoundError:
        raise _damage(
            f"segment file missing: expected={name}; {RESTORE_ADVICE}", descriptor, part.start_position
        ) from None
    try:
        segment = files.create_sparse(part.base_position)
        try:
            copied = copy_frames(file_system, source, segment.handle, descriptor, part)
            frame_count = sum(count for _, count in copied)
            files.sync(segment)
        except BaseException:
            files.discard(segment)
            raise
        files.publish(segment)
        file_system.close_file(segment.handle)
    finally:
        file_system.close_file(source)
    return frame_count


def copy_frames(
    file_system: FileSystem,
    source: int,
    target: int,
    descriptor: RecordingDescriptor,
    part: SegmentSlice,
    *,
    is_stamped: bool = True,
) -> Iterator[tuple[int, int]]:
    """Copy the frames of a segment, a block at a time, with checksums in the data frames if `is_stamped`.

    Yields for each block the position after it and the number of its frames. Of padding at the end of a block only the
    header is copied: zeros follow it, however many.

    Raises:
        CorruptionError: a frame is not valid.
        OSError: the disk refused.
    """
    rules = frame_rules_of(descriptor, checksummed=False)
    position, end, before = part.start_position, part.stop_position, Before.UNKNOWN
    while position < end:
        offset = position - part.base_position
        wanted = min(_BLOCK_BYTES, end - position, rules.term_length_bytes - position % rules.term_length_bytes)
        block = bytearray(read_fully(file_system, source, wanted, offset))
        length, last, following = rules.skip_valid_frames(block, 0, position, len(block), before)
        fault = rules.find_fault(block, 0, position, before) if last is None else None
        if fault is not None:
            raise _damage(fault, descriptor, position)
        header = unpack_header(block, last or 0)
        before = what_follows(header, before) if last is None else following
        last = last or 0
        position += last + header.aligned_length
        if position > end:
            raise _damage(f"frame runs past the end: end={position}", descriptor, position)
        is_padding = header.type == TYPE_PADDING
        whole_length, length = (last, last + HEADER_LENGTH) if is_padding else (length, length)
        frames = memoryview(block)[:length]
        count = stamp_checksums(frames[:whole_length], descriptor.checksum_kind) if is_stamped else 0
        write_fully(file_system, target, frames, offset)
        yield position, count + is_padding


def _damage(what: str, descriptor: RecordingDescriptor, position: int) -> CorruptionError:
    return CorruptionError(
        f"frames not copied: {what}; the file is unchanged", recording_id=descriptor.recording_id, position=position
    )
