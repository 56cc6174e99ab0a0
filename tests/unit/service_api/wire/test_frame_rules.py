"""The rules of a recorded frame, and their fast twin."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.facts import has_facts
from tests.unit.archive.streams import STREAM_ID, TERM_LENGTH, StreamBuilder
from trimaran.service_api.wire.frame import FRAME_HEADER, encode_padding, frame_crc
from trimaran.service_api.wire.frame_rules import FrameRules

RULES = FrameRules(
    initial_term_id=5, term_length_bytes=TERM_LENGTH, mtu_length_bytes=1408, stream_id=STREAM_ID, checksummed=True
)
START = TERM_LENGTH - 4096


def build(count: int, *, checksums: bool = True) -> bytearray:
    """Frames from near the end of the first term into the second, with padding between."""
    stream = StreamBuilder(position=START, initial_term_id=5, checksums=checksums)
    return bytearray(b"".join(chunk for n in range(count) for chunk in stream.message(n * 97 % 2000)))


def walk_slowly(data: bytes, rules: FrameRules) -> int:
    """How far the frames of `data` are right, by the readable rules."""
    offset = 0
    while len(data) - offset >= 32 and rules.find_fault(data, offset, START + offset) is None:
        length = (FRAME_HEADER.unpack_from(data, offset)[0] + 31) & -32
        if offset + length > len(data):
            break
        offset += length
    return offset


def walk_fast(data: bytes, rules: FrameRules) -> int:
    offset = 0
    while True:
        offset, last, _ = rules.skip_valid_frames(data, offset, START + offset, len(data))
        if last is None:
            return offset


@pytest.mark.parametrize("checksummed", [True, False])
def test_right_frames_are_skipped_to_the_end(checksummed: bool) -> None:
    rules = FrameRules(
        initial_term_id=5,
        term_length_bytes=TERM_LENGTH,
        mtu_length_bytes=1408,
        stream_id=STREAM_ID,
        checksummed=checksummed,
    )
    data = build(20, checksums=checksummed)

    assert walk_fast(bytes(data), rules) == len(data)


@settings(max_examples=500)
@given(where=st.integers(0, 10_000), bit=st.integers(0, 7), cut=st.integers(0, 400))
def test_fast_walk_stops_where_the_readable_rules_do(where: int, bit: int, cut: int) -> None:
    data = build(15)
    data[where % len(data)] ^= 1 << bit
    damaged = bytes(data[: len(data) - cut])

    assert walk_fast(damaged, RULES) == walk_slowly(damaged, RULES)


def build_uniform(lengths: list[int]) -> bytearray:
    """Runs of frames of one length each, so long that they are looked at as a whole."""
    stream = StreamBuilder(position=START, initial_term_id=5)
    return bytearray(b"".join(chunk for length in lengths for _ in range(150) for chunk in stream.message(length)))


def test_runs_of_like_frames_are_skipped_to_the_end() -> None:
    data = build_uniform([64, 60, 64, 0, 1000])

    assert walk_fast(bytes(data), RULES) == walk_slowly(bytes(data), RULES) == len(data)


@settings(max_examples=500)
@given(where=st.integers(0, 1 << 20), bit=st.integers(0, 7), cut=st.integers(0, 400))
def test_fast_walk_of_like_frames_stops_where_the_readable_rules_do(where: int, bit: int, cut: int) -> None:
    data = build_uniform([64, 20])
    data[where % len(data)] ^= 1 << bit
    damaged = bytes(data[: len(data) - cut])

    assert walk_fast(damaged, RULES) == walk_slowly(damaged, RULES)


@given(where=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_one_wrong_bit_is_noticed_except_where_the_format_has_no_check(where: int, bit: int) -> None:
    """The checksum covers the payload and its padding; of the header, what follows from the position is checked.

    Not covered: the flags, the reserved value, a length that rounds up to the same multiple of 32, and the type of a
    frame without a payload.
    """
    intact = build(15)
    where %= len(intact)
    damaged = bytearray(intact)
    damaged[where] ^= 1 << bit

    reached = walk_slowly(bytes(damaged), RULES)

    unchecked = offset_in_frame(bytes(intact), where) in (0, 5, *range(24, 32)) or is_empty(bytes(intact), where)
    assert reached <= where or unchecked or in_padding_body(bytes(intact), where)


def is_empty(data: bytes, where: int) -> bool:
    return bool(FRAME_HEADER.unpack_from(data, frame_start(data, where))[0] == 32)


def offset_in_frame(data: bytes, where: int) -> int:
    return where - frame_start(data, where)


def in_padding_body(data: bytes, where: int) -> bool:
    """Padding frames carry no checksum: neither their session id nor their body is checked."""
    start = frame_start(data, where)
    return FRAME_HEADER.unpack_from(data, start)[3] == 0 and where - start >= 12


def frame_start(data: bytes, where: int) -> int:
    offset = 0
    while True:
        length = (FRAME_HEADER.unpack_from(data, offset)[0] + 31) & -32
        if length <= 0 or offset + length > where:
            return offset
        offset += length


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        (0, -1, "invalid frame length"),
        (0, 1440, "invalid frame length"),
        (1, 1, "unknown frame version"),
        (3, 2, "unknown frame type"),
        (4, 64, "wrong term offset"),
        (5, 1, "wrong checksum"),
        (6, 101, "wrong stream id"),
        (7, 6, "wrong term id"),
    ],
)
def test_fault_names_the_value_and_what_was_expected(field: int, value: int, named: str) -> None:
    data = build(1)
    fields = list(FRAME_HEADER.unpack_from(data))
    fields[field] = value
    FRAME_HEADER.pack_into(data, 0, *fields)

    fault = RULES.find_fault(bytes(data), 0, START)

    assert fault is not None
    assert named in fault
    assert "expected" in fault


@pytest.mark.parametrize("flags", [0x00, 0x0F, 0xC1, 0xE0, 0xF0, 0xFF])
def test_an_application_may_set_any_flags(flags: int) -> None:
    """Source: Aeron `BufferClaim.flags`; 0x20 and 0x10 are what a heartbeat calls end of stream and revoked."""
    data = build(15)
    data[5] = flags

    assert walk_fast(bytes(data), RULES) == walk_slowly(bytes(data), RULES) == len(data)


@pytest.mark.parametrize("length", [32, 33, 64, 700, 1408, 3500])
def test_padding_may_lie_anywhere_in_a_term(length: int) -> None:
    """Source: Aeron `BufferClaim.abort`, whose frame has the length of the claim; `appendPadding`."""
    stream = StreamBuilder(position=START, initial_term_id=5)
    first = b"".join(stream.message(100))
    data = bytearray(first + encode_padding((length + 31) & -32, stream_id=STREAM_ID, **stream._place()))
    struct.pack_into("<i", data, len(first), length)
    stream.position = START + len(data)
    data += b"".join(stream.message(100))

    assert walk_fast(bytes(data), RULES) == walk_slowly(bytes(data), RULES) == len(data)


@pytest.mark.parametrize("length", [-1, 0, 31, TERM_LENGTH - 32 * 8 + 32])
def test_padding_ends_within_its_term(length: int) -> None:
    data = bytearray(encode_padding(64, stream_id=STREAM_ID, term_id=5, term_offset=32 * 8))
    struct.pack_into("<i", data, 0, length)

    fault = RULES.find_fault(bytes(data), 0, 32 * 8)

    expected = f"32 to {TERM_LENGTH - 32 * 8}"
    assert has_facts(fault, "padding", f"frame_length={length} expected {expected}")


def test_a_data_frame_whose_type_became_padding_is_told_by_its_checksum() -> None:
    """It would take a message away without a word; no archive writes bytes into padding."""
    data = bytearray(b"".join(StreamBuilder(position=START, initial_term_id=5).message(100)))
    data[6] = 0

    fault = RULES.find_fault(bytes(data), 0, START)

    assert fault is not None
    assert "turned into" in fault
    assert walk_fast(bytes(data), RULES) == 0


def test_no_padding_of_zeros_looks_like_a_data_frame_of_ours() -> None:
    """Our leaders write padding with session id 0, and no number of zeros that fits has the checksum 0."""
    assert all(frame_crc(bytes(65536), 0, length) != 0 for length in range(64, 65505, 32))
