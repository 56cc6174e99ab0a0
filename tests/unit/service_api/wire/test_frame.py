"""The frame layout: the numbers are those of the samples' README, sections 1, 2 and 5."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.service_api.errors import LocalProtocolError
from trimaran.service_api.wire.frame import (
    FLAG_BEGIN,
    FLAG_END,
    FRAME_HEADER,
    HEADER_LENGTH,
    MAX_MESSAGE_LENGTH,
    TYPE_PADDING,
    UNFRAGMENTED,
    align,
    encode_frame,
    encode_message,
    encode_padding,
    fragment,
    frame_crc,
    framed_length,
    position_of,
    term_of,
    unpack_header,
)
from trimaran.service_api.wire.stream import FrameParser, MessageAssembler

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def test_header_is_32_bytes_in_aeron_order() -> None:
    frame = encode_frame(b"abc", stream_id=100, session_id=-2, term_id=7, term_offset=96)

    expected = bytes.fromhex("2300000000c0010060000000feffffff6400000007000000") + bytes(8)
    assert frame == expected + b"abc" + bytes(29)
    assert len(frame) == 64


def test_unpack_header_gives_what_was_encoded() -> None:
    frame = encode_frame(b"", stream_id=5, session_id=6, term_id=7, term_offset=64, flags=FLAG_BEGIN)

    header = unpack_header(b"xx" + frame, 2)

    assert header == (32, 0, FLAG_BEGIN, 1, 64, 6, 5, 7, 0)


def test_crc_covers_payload_and_padding_but_not_the_header() -> None:
    frame = bytearray(encode_frame(b"hello", stream_id=1))
    crc = frame_crc(frame, 0, 37)

    frame[12:16] = b"\xff\xff\xff\xff"

    assert frame_crc(frame, 0, 37) == crc
    assert crc & 0xFFFF_FFFF == zlib.crc32(b"hello" + bytes(27))
    assert frame_crc(encode_frame(b"", stream_id=1), 0, 32) == 0


@given(st.binary(max_size=200))
def test_crc_is_a_signed_32_bit_integer(payload: bytes) -> None:
    frame = encode_frame(payload, stream_id=1)

    crc = frame_crc(memoryview(frame), 0, 32 + len(payload))

    assert -(1 << 31) <= crc < 1 << 31


def test_every_fragment_but_the_last_is_exactly_the_mtu() -> None:
    pieces = fragment(bytes(3000), 1408)

    assert [(flags, len(payload)) for flags, payload in pieces] == [
        (FLAG_BEGIN, 1376),
        (0, 1376),
        (FLAG_END, 248),
    ]


def test_a_message_that_fits_is_one_frame() -> None:
    assert fragment(bytes(1376), 1408) == [(UNFRAGMENTED, bytes(1376))]
    assert fragment(b"", 1408) == [(UNFRAGMENTED, b"")]


def test_messages_and_mtus_beyond_the_limits_are_the_callers_fault() -> None:
    with pytest.raises(LocalProtocolError, match=rf"length={MAX_MESSAGE_LENGTH + 1}"):
        fragment(bytes(MAX_MESSAGE_LENGTH + 1), 1408)
    with pytest.raises(LocalProtocolError, match="mtu_length=33"):
        fragment(b"abc", 33)


@given(st.binary(max_size=5000), st.sampled_from([64, 96, 1408]))
def test_fragmented_messages_are_joined_again(message: bytes, mtu_length: int) -> None:
    data = encode_message(message, stream_id=9, mtu_length=mtu_length, term_offset=64)
    parser, assembler = FrameParser(mtu_length), MessageAssembler()

    frames = parser.feed(data)
    messages = [joined for frame in frames if (joined := assembler.append(frame)) is not None]

    assert messages == [message]
    assert len(data) == framed_length(len(message), mtu_length)
    assert [frame.term_offset for frame in frames] == [64 + i * mtu_length for i in range(len(frames))]


def test_padding_is_a_header_and_zeros() -> None:
    padding = encode_padding(96, stream_id=100, term_id=3, term_offset=65440)

    assert FRAME_HEADER.unpack_from(padding) == (96, 0, UNFRAGMENTED, TYPE_PADDING, 65440, 0, 100, 3, 0)
    assert padding[HEADER_LENGTH:] == bytes(64)
    with pytest.raises(LocalProtocolError, match="length=33"):
        encode_padding(33, stream_id=1)


@given(INT32, st.integers(0, 1 << 20), st.sampled_from([65536, 1 << 26]))
def test_position_and_term_are_inverses_across_the_wrap_around(initial: int, frames: int, length: int) -> None:
    position = frames * 32

    term_id, term_offset = term_of(position, initial_term_id=initial, term_length_bytes=length)

    assert -(1 << 31) <= term_id < 1 << 31
    assert position_of(term_id, term_offset, initial_term_id=initial, term_length_bytes=length) == position


def test_align_rounds_up_to_32() -> None:
    assert [align(n) for n in (0, 1, 31, 32, 33, 64)] == [0, 32, 32, 32, 64, 64]
