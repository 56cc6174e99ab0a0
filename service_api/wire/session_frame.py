"""How a session message lies in its frame: one layout for ingress, the log and egress.

    offset size
    0      32   frame header
    32     8    SBE message header of a `SessionMessageHeader`
    40     8    leadership_term_id
    48     8    cluster_session_id
    56     8    timestamp               0 on ingress: the leader fills it in
    64     ..   payload, then zeros up to a multiple of 32

The first 24 bytes of the message are the same for all messages of a session in a term: its prefix. A request and a
reply have two more numbers before their payload, see `request`. The offsets here come from the models.
"""

from __future__ import annotations

import struct
from typing import Final

from ..types import ClusterSessionId
from .frame import HEADER_LENGTH, FrameField
from .request import REQUEST_BLOCK_LENGTH, REQUEST_HEADER_LENGTH, RequestHeader
from .sbe import MESSAGE_HEADER
from .session import SESSION_HEADER_LENGTH, SESSION_MESSAGE, SESSION_MESSAGE_HEADER

PAYLOAD_OFFSET: Final = HEADER_LENGTH + SESSION_HEADER_LENGTH
"""Where the payload begins in the frame of an unfragmented session message."""

REQUEST_PAYLOAD_OFFSET: Final = HEADER_LENGTH + REQUEST_HEADER_LENGTH
"""Where the payload begins in the frame of an unfragmented request or reply."""

_AT: Final = {field.name: HEADER_LENGTH + MESSAGE_HEADER.size + field.offset for field in RequestHeader.LAYOUT.block}

PREFIX_LENGTH: Final = _AT["timestamp"] - HEADER_LENGTH
"""Bytes of a session message that identify it: message header, leadership term id, cluster session id."""

_SESSION_ID_BEGIN: Final = _AT["cluster_session_id"] - HEADER_LENGTH


class SessionField:
    """The numbers and parts of a session message, by their offsets in the frame."""

    UP_TO_TIMESTAMP: Final = FrameField(4, f"{_AT['timestamp'] - 4}s")
    """All bytes between the frame length and the timestamp: the same in every message to a session in a term."""
    PREFIX: Final = FrameField(HEADER_LENGTH, f"{PREFIX_LENGTH}s")
    MESSAGE_HEADER: Final = FrameField(HEADER_LENGTH, "q")
    """The SBE message header as one number."""
    BLOCK_AND_TEMPLATE: Final = FrameField(HEADER_LENGTH, "I")
    """Block length and template id as one number: `SESSION_BLOCK` or `REQUEST_BLOCK`."""
    LEADERSHIP_TERM_ID: Final = FrameField(_AT["leadership_term_id"], "q")
    CLUSTER_SESSION_ID: Final = FrameField(_AT["cluster_session_id"], "q")
    TIMESTAMP: Final = FrameField(_AT["timestamp"], "q")
    REQUEST_SEQUENCE: Final = FrameField(_AT["request_sequence"], "q")
    ACKNOWLEDGED_SEQUENCE: Final = FrameField(_AT["acknowledged_sequence"], "q")
    """Of a reply: its code."""


_TEMPLATE: Final = SESSION_MESSAGE[1] << 16
SESSION_BLOCK: Final = _TEMPLATE | SESSION_MESSAGE[0]
REQUEST_BLOCK: Final = _TEMPLATE | REQUEST_BLOCK_LENGTH
REQUEST_BLOCK_BYTES: Final = struct.pack("<H", REQUEST_BLOCK_LENGTH)
"""What the message of a request begins with, and no other session message."""


def session_of_prefix(prefix: bytes) -> ClusterSessionId:
    """Return the session whose messages begin with a prefix."""
    return ClusterSessionId(int.from_bytes(prefix[_SESSION_ID_BEGIN:PREFIX_LENGTH], "little", signed=True))


def session_prefix(message_header: tuple[int, int, int, int], leadership_term_id: int, session_id: int) -> bytes:
    """Return the first 24 bytes of every message of a session in a term."""
    return SESSION_MESSAGE_HEADER.pack(*message_header, leadership_term_id, session_id, 0)[:PREFIX_LENGTH]


def ingress_prefixes(leadership_term_id: int, session_id: int) -> tuple[bytes, bytes]:
    """Return the first 24 bytes of a session's messages in a term, and those of its requests."""
    prefix = session_prefix(SESSION_MESSAGE, leadership_term_id, session_id)
    return prefix, REQUEST_BLOCK_BYTES + prefix[2:]
