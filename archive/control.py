"""What both ends of an archive connection agree on: streams, framing, versions.

A connection begins with a setup frame of the dialer (stream 10). Requests are data frames on stream 10,
responses on stream 20, one message a frame. A replay's frames follow on the same connection, byte for byte as
recorded, between whole response frames; they are told apart by their stream id, so a recording of stream 10
or 20 is not replayed here.
Source: Aeron archive schema 101; the transport is ours.
"""

from __future__ import annotations

from typing import Final

from service_api.wire.frame import encode_frame
from service_api.wire.message import Message

CONTROL_STREAM_ID: Final = 10
RESPONSE_STREAM_ID: Final = 20
PROTOCOL_VERSION: Final = 1 << 16 | 11 << 8
"""Semantic version of the control protocol: major, minor, patch in one int. The major one must match."""

MAX_CONTROL_FRAME_LENGTH: Final = 65536
FOLLOW_LENGTH: Final = -1
"""The `length` of a replay request that goes on as the recording grows."""
ALL_LENGTH: Final = -2
"""The `length` of a replay request that ends where the recording ends when it is received."""


def major_version(version: int) -> int:
    """Take the major part of a semantic version."""
    return version >> 16 & 0xFF


def encode_request(message: Message) -> bytes:
    """Frame a message for the archive."""
    return encode_frame(message.encode(), stream_id=CONTROL_STREAM_ID)


def encode_response(message: Message) -> bytes:
    """Frame a message from the archive."""
    return encode_frame(message.encode(), stream_id=RESPONSE_STREAM_ID)
