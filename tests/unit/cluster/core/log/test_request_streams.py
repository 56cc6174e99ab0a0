"""The leader's publisher of entries and requests: frames with a longer block, in runs of their own."""

from __future__ import annotations

import struct

import pytest

from tests.unit.cluster.core.log.test_log_streams import (
    PREFIX,
    PREFIXES,
    buffer_at,
    content,
    frames,
    ingress,
    messages,
    publisher,
)
from trimaran.service_api.wire.frame import FrameHeader, frame_crc
from trimaran.service_api.wire.request import REQUEST_HEADER_LENGTH

REQUEST_PREFIX = struct.pack("<H", 40) + PREFIX[2:]


def request(sequence: int, payload: bytes = b"x") -> bytearray:
    return ingress(struct.pack("<qq", sequence, 0) + payload, prefix=REQUEST_PREFIX)


def test_requests_are_stamped_and_keep_their_numbers() -> None:
    buffer = buffer_at()
    chunk = request(1, b"one") + request(2, b"two")

    taken = publisher(buffer).append_ingress(chunk, 0, len(chunk), prefixes=PREFIXES, timestamp=1234)

    data = content(buffer)
    assert taken == len(data) == len(chunk)
    for offset, header in frames(data):
        assert isinstance(header, FrameHeader)
        assert header.session_id == frame_crc(data, offset, header.frame_length)
        assert data[offset + 32 : offset + 64] == REQUEST_PREFIX + (1234).to_bytes(8, "little")
    assert [
        (struct.unpack_from("<qq", message, 32), message[REQUEST_HEADER_LENGTH:]) for message in messages(data)
    ] == [
        ((1, 0), b"one"),
        ((2, 0), b"two"),
    ]


def test_requests_and_messages_are_taken_from_one_chunk_in_order() -> None:
    """Their frames may have one length: 17 bytes of payload and 1 byte of request."""
    buffer = buffer_at()
    chunk = ingress(b"m" * 17) + request(1) + request(2) + ingress(b"m" * 17) + request(3, b"longer" * 9)

    taken = publisher(buffer).append_ingress(chunk, 0, len(chunk), prefixes=PREFIXES, timestamp=0)

    assert taken == len(chunk)
    assert [len(message) - 32 for message in messages(content(buffer))] == [17, 17, 17, 17, 70]


@pytest.mark.parametrize("kind", ["other session", "too short", "other block length"])
def test_the_pen_stops_at_what_is_no_request_of_this_session(kind: str) -> None:
    buffer = buffer_at()
    odd = request(2)
    match kind:
        case "other session":
            odd[63 - 8] ^= 1
        case "too short":
            odd = ingress(b"x" * 15, prefix=REQUEST_PREFIX)
        case "other block length":
            odd[32] = 32
    chunk = request(1) + odd

    taken = publisher(buffer).append_ingress(chunk, 0, len(chunk), prefixes=PREFIXES, timestamp=0)

    assert (taken, len(messages(content(buffer)))) == (96, 1)
