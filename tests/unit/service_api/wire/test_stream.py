"""Bytes in, whole frames out, whatever the sizes of the chunks and whatever the peer sends."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.service_api.errors import LocalProtocolError, RemoteProtocolError
from trimaran.service_api.wire.frame import (
    FLAG_BEGIN,
    FLAG_END,
    MAX_MESSAGE_LENGTH,
    encode_frame,
    encode_message,
    encode_padding,
)
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.stream import FrameParser, MessageAssembler, StreamFrame


def frames_of(data: bytes) -> list[StreamFrame]:
    return FrameParser().feed(data)


@given(st.lists(st.binary(max_size=100), max_size=8), st.integers(1, 64))
def test_chunk_sizes_do_not_matter(payloads: list[bytes], chunk_length: int) -> None:
    data = b"".join(encode_frame(payload, stream_id=3) for payload in payloads)
    parser = FrameParser()

    frames: list[StreamFrame] = []
    for start in range(0, len(data), chunk_length):
        frames += parser.feed(data[start : start + chunk_length])

    assert [frame.payload for frame in frames] == payloads
    assert parser.buffered_bytes == 0


def test_frame_carries_its_header_fields_and_bytes() -> None:
    setup = SetupFrame(session_id=4, stream_id=108, term_offset=64)

    (frame,) = frames_of(setup.encode())

    assert (frame.type, frame.frame_length, frame.term_offset, frame.session_id) == (5, 52, 64, 4)
    assert frame.stream_id == 108
    assert SetupFrame.decode(frame.raw) == setup


def test_an_incomplete_frame_waits_for_its_padding() -> None:
    data = encode_frame(b"abc", stream_id=3)
    parser = FrameParser()

    assert parser.feed(data[:-1]) == []
    assert repr(parser) == "<FrameParser buffered=63 max_frame_length=65536>"
    assert [frame.payload for frame in parser.feed(data[-1:])] == [b"abc"]


def test_what_is_behind_the_last_whole_frame_is_kept_and_goes_on() -> None:
    data = b"".join(encode_frame(payload, stream_id=3) for payload in (b"a", b"b", b"c"))
    parser = FrameParser()

    assert [frame.payload for frame in parser.feed(data[:104])] == [b"a"]
    assert parser.buffered_bytes == 40
    assert [frame.payload for frame in parser.feed(data[104:])] == [b"b", b"c"]
    assert parser.buffered_bytes == 0


def test_frames_outlive_the_buffer_that_they_came_in() -> None:
    received = bytearray(encode_frame(b"abc", stream_id=3))

    (frame,) = FrameParser().feed(memoryview(received))
    received[:] = bytes(len(received))

    assert frame.payload == b"abc"


@pytest.mark.parametrize("frame_length", [-1, 0, 31, 65537, (1 << 31) - 1])
def test_a_length_that_no_frame_has_is_refused_before_it_is_stored(frame_length: int) -> None:
    data = struct.pack("<i", frame_length) + encode_frame(b"", stream_id=1)[4:]
    parser = FrameParser(65536)

    with pytest.raises(RemoteProtocolError, match=f"frame_length={frame_length} "):
        parser.feed(data)


def test_an_unknown_type_and_version_are_refused() -> None:
    frame = bytearray(encode_frame(b"", stream_id=1))
    frame[6] = 4
    with pytest.raises(RemoteProtocolError, match="frame type=4"):
        frames_of(bytes(frame))
    frame[4] = 9
    with pytest.raises(RemoteProtocolError, match="frame version=9"):
        frames_of(bytes(frame))


def test_the_first_error_is_final() -> None:
    parser = FrameParser()
    with pytest.raises(RemoteProtocolError):
        parser.feed(bytes(32))

    with pytest.raises(RemoteProtocolError, match="frame_length=0"):
        parser.feed(encode_frame(b"fine", stream_id=1))
    assert parser.buffered_bytes == 0


def test_padding_between_messages_is_skipped() -> None:
    data = encode_padding(64, stream_id=1) + encode_frame(b"x", stream_id=1)
    assembler = MessageAssembler()

    assert [assembler.append(frame) for frame in frames_of(data)] == [None, b"x"]


def test_fragments_out_of_order_are_refused() -> None:
    middle, begin, end = (encode_frame(b"x", stream_id=1, flags=f) for f in (0, FLAG_BEGIN, FLAG_END))

    for first in (middle, end):
        with pytest.raises(RemoteProtocolError, match=r"order.*flags=0x"):
            MessageAssembler().append(frames_of(first)[0])
    for second in (begin, encode_frame(b"y", stream_id=1)):
        assembler = MessageAssembler()
        assembler.append(frames_of(begin)[0])
        assert assembler.is_assembling
        with pytest.raises(RemoteProtocolError, match="fragments_before=1"):
            assembler.append(frames_of(second)[0])


def test_padding_or_setup_inside_a_message_is_refused() -> None:
    assembler = MessageAssembler()
    assembler.append(frames_of(encode_frame(b"x", stream_id=1, flags=FLAG_BEGIN))[0])

    with pytest.raises(RemoteProtocolError, match="frame type=0"):
        assembler.append(frames_of(encode_padding(32, stream_id=1))[0])


def test_a_message_longer_than_the_limit_is_refused() -> None:
    assembler = MessageAssembler(max_message_length=100)
    first, second = frames_of(encode_message(bytes(110), stream_id=1, mtu_length=96))[:2]

    assert assembler.append(first) is None
    with pytest.raises(RemoteProtocolError, match="length=110 limit=100"):
        assembler.append(second)
    with pytest.raises(LocalProtocolError, match="limit="):
        MessageAssembler(MAX_MESSAGE_LENGTH + 1)
