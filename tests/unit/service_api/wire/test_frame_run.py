"""A run of like frames checked as a whole: it says no more than a check frame by frame."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimaran.service_api.wire.frame import FRAME_HEADER, TYPE_DATA, UNFRAGMENTED
from trimaran.service_api.wire.frame_run import MIN_RUN_FRAMES, FrameRun

LEAD = 96
"""Bytes of something else in front of the run."""


def build(count: int, *, frame_length: int = 90, term_offset: int = 64, reserved: int = 0) -> bytearray:
    """Frames of one length with random payloads, after `LEAD` bytes."""
    pick, length = random.Random(count), (frame_length + 31) & -32
    run = bytearray(LEAD + count * length)
    for number in range(count):
        body = pick.randbytes(frame_length - 32).ljust(length - 32, b"\0")
        offset, crc = LEAD + number * length, zlib.crc32(body)
        FRAME_HEADER.pack_into(
            run,
            offset,
            frame_length,
            0,
            UNFRAGMENTED,
            TYPE_DATA,
            term_offset + number * length,
            crc - ((crc & 1 << 31) << 1),
            100,
            -7,
            reserved,
        )
        run[offset + 32 : offset + length] = body
    return run


def count_valid(data: bytes | bytearray, *, limit: int, length: int = 96, checksummed: bool = True) -> int:
    run = FrameRun(memoryview(data), LEAD, length, limit)
    return run.count_valid(term_offset=64, checksummed=checksummed)


@pytest.mark.parametrize("frame_length", [33, 64, 90, 96, 1000, 8191])
@pytest.mark.parametrize("reserved", [0, -2])
@pytest.mark.parametrize("checksummed", [True, False])
def test_all_frames_of_a_right_run_are_counted(frame_length: int, reserved: int, checksummed: bool) -> None:
    data = build(50, frame_length=frame_length, reserved=reserved)
    length = (frame_length + 31) & -32

    assert count_valid(bytes(data), limit=50, length=length, checksummed=checksummed) == 50
    assert count_valid(data, limit=40, length=length, checksummed=checksummed) == 40


def test_few_frames_are_not_looked_at() -> None:
    assert count_valid(build(MIN_RUN_FRAMES), limit=MIN_RUN_FRAMES) == MIN_RUN_FRAMES
    assert count_valid(build(MIN_RUN_FRAMES), limit=MIN_RUN_FRAMES - 1) == 0


@settings(max_examples=1000)
@given(where=st.integers(0, 96 * 64 - 1), bit=st.integers(0, 7))
def test_no_wrong_frame_is_counted(where: int, bit: int) -> None:
    """One bit anywhere: only what stands before its frame may be counted, or all, where the format has no check."""
    data = build(64)
    data[LEAD + where] ^= 1 << bit

    count = count_valid(data, limit=64)

    assert count <= where // 96
    assert count in (0, where // 96)


@settings(max_examples=300)
@given(numbers=st.lists(st.integers(0, 63), min_size=2, max_size=8, unique=True), seed=st.integers(0, 1 << 30))
def test_several_wrong_frames_do_not_make_up_for_each_other(numbers: list[int], seed: int) -> None:
    """The same difference in each of them, too, which is what a CRC might cancel."""
    data, difference = build(64), random.Random(seed).randbytes(64)
    for number in numbers:
        begin = LEAD + number * 96 + 32
        data[begin : begin + 64] = bytes(a ^ b for a, b in zip(data[begin : begin + 64], difference, strict=True))

    assert count_valid(data, limit=64) == 0


@pytest.mark.parametrize(("field", "value"), [(0, 91), (2, 0x80), (4, 32), (6, 101), (7, -6)])
def test_frames_up_to_one_of_another_kind_are_counted(field: int, value: int) -> None:
    data = build(64)
    offset = LEAD + 40 * 96
    fields = list(FRAME_HEADER.unpack_from(data, offset))
    fields[field] = value
    FRAME_HEADER.pack_into(data, offset, *fields)

    assert count_valid(data, limit=64) == 40
    assert count_valid(data, limit=64, checksummed=False) == 40


def test_a_run_of_an_older_term_in_its_place_is_right_and_not_of_this_one() -> None:
    """The identity of the first frame is the caller's to check: all others have to have the same."""
    data = build(64)
    for number in range(1, 64):
        offset = LEAD + number * 96 + 20
        data[offset : offset + 4] = (-8).to_bytes(4, "little", signed=True)

    assert count_valid(data, limit=64) == 0
