"""Copying the frames of a segment, with checksums."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.archive.disk.file_system import write_fully
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.errors import CorruptionError
from trimaran.archive.format.descriptor import RecordingDescriptor, RecordingState
from trimaran.archive.format.layout import SegmentSlice
from trimaran.archive.store.stamping import copy_frames
from trimaran.service_api.types import RecordingId
from trimaran.service_api.wire.frame import encode_frame, encode_padding, frame_crc, unpack_header

TERM_LENGTH = 64 << 10


def descriptor_of(stop_position: int) -> RecordingDescriptor:
    return RecordingDescriptor(
        recording_id=RecordingId(1),
        start_position=0,
        stop_position=stop_position,
        start_timestamp_ms=0,
        stop_timestamp_ms=0,
        initial_term_id=0,
        segment_file_length=2 * TERM_LENGTH,
        term_buffer_length=TERM_LENGTH,
        mtu_length=4096,
        session_id=7,
        stream_id=100,
        stripped_channel="",
        original_channel="",
        source_identity="",
        state=RecordingState.VALID,
    )


def copy_of(log: bytes, *, is_stamped: bool = True) -> tuple[bytes, list[tuple[int, int]]]:
    """Copy a segment that holds `log`; return the copy, and what was told of each block."""
    disk, length = MemoryFileSystem(), len(log)
    disk.make_directory(Path("/d"))
    source, target = (disk.open_file(Path("/d") / name, create=True) for name in ("source", "target"))
    write_fully(disk, source, log, 0)
    disk.set_length(target, length)
    descriptor, part = descriptor_of(length), SegmentSlice(0, 0, length)
    told = list(copy_frames(disk, source, target, descriptor, part, is_stamped=is_stamped))
    return disk.pread(target, length, 0), told


def frames_up_to(end: int) -> bytes:
    """Frames of 96 bytes, and one that is shorter, up to `end`."""
    count, rest = divmod(end, 96)
    frames = [encode_frame(b"x" * 64, stream_id=100, session_id=7, term_offset=at * 96) for at in range(count)]
    if rest:
        frames.append(encode_frame(b"x" * (rest - 32), stream_id=100, session_id=7, term_offset=count * 96))
    return b"".join(frames)


@pytest.mark.parametrize("padding_length", [32, 64, 4096 + 32])
def test_padding_keeps_its_session_id_and_counts_as_a_frame(padding_length: int) -> None:
    """Checksums stand in data frames only; samples set A README §5."""
    end = TERM_LENGTH - padding_length
    padding = encode_padding(padding_length, stream_id=100, session_id=7, term_offset=end)
    log = frames_up_to(end) + padding

    copied, told = copy_of(log)

    assert copied[end:] == padding
    assert told == [(TERM_LENGTH, -(-end // 96) + 1)]
    assert unpack_header(copied).session_id == frame_crc(log, 0, 96)
    assert [copied[at : at + 12] for at in range(0, end, 96)] == [log[at : at + 12] for at in range(0, end, 96)]


def test_copy_without_checksums_is_the_same_bytes() -> None:
    log = frames_up_to(TERM_LENGTH)

    assert copy_of(log, is_stamped=False)[0] == log


def test_wrong_frame_ends_the_copy() -> None:
    log = bytearray(frames_up_to(960))
    log[480 + 4] = 1

    with pytest.raises(CorruptionError, match="frame version: version=1 expected=0") as info:
        copy_of(bytes(log))

    assert info.value.position == 480
