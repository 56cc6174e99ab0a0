"""How a session message lies in its frame: one layout for ingress, the log and egress.

    offset size
    0      32   frame header
    32     8    SBE message header of a `SessionMessageHeader`
    40     8    leadership_term_id
    48     8    cluster_session_id
    56     8    timestamp               0 on ingress: the leader fills it in
    64     ..   payload, then zeros up to a multiple of 32

The first 24 bytes of the message are the same for all messages of a session in a term: its prefix. A request and a
reply have two more numbers before their payload, see `request`.
"""

from __future__ import annotations

import struct
from typing import Final

from .frame import HEADER_LENGTH, FrameField
from .request import REQUEST_BLOCK_LENGTH, REQUEST_HEADER_LENGTH, RequestHeader
from .sbe import MESSAGE_HEADER
from .session import SESSION_HEADER_LENGTH, SessionMessageHeader

PREFIX_LENGTH: Final = 24
"""Bytes of a session message that identify it: message header, leadership term id, cluster session id."""

PAYLOAD_OFFSET: Final = HEADER_LENGTH + SESSION_HEADER_LENGTH
"""Where the payload begins in the frame of an unfragmented session message."""

REQUEST_PAYLOAD_OFFSET: Final = HEADER_LENGTH + REQUEST_HEADER_LENGTH
"""Where the payload begins in the frame of an unfragmented request or reply."""

_FIELDS: Final = {
    field.name: (HEADER_LENGTH + MESSAGE_HEADER.size + field.offset, field.format)
    for field in RequestHeader.LAYOUT.block
}


class SessionField(FrameField):
    """The numbers and parts of a session message, by their offsets in the frame."""

    MESSAGE_HEADER = HEADER_LENGTH, "q"
    """The SBE message header as one number."""
    BLOCK_AND_TEMPLATE = HEADER_LENGTH, "I"
    """Block length and template id as one number: `SESSION_BLOCK` or `REQUEST_BLOCK`."""
    PREFIX = HEADER_LENGTH, f"{PREFIX_LENGTH}s"
    LEADERSHIP_TERM_ID = _FIELDS["leadership_term_id"]
    CLUSTER_SESSION_ID = _FIELDS["cluster_session_id"]
    TIMESTAMP = _FIELDS["timestamp"]
    REQUEST_SEQUENCE = _FIELDS["request_sequence"]
    ACKNOWLEDGED_SEQUENCE = _FIELDS["acknowledged_sequence"]
    """Of a reply: its code."""


SESSION_BLOCK: Final = SessionMessageHeader.TEMPLATE_ID << 16 | SessionMessageHeader.LAYOUT.block_length
REQUEST_BLOCK: Final = SessionMessageHeader.TEMPLATE_ID << 16 | REQUEST_BLOCK_LENGTH


def message_header_number(message_header: tuple[int, int, int, int]) -> int:
    """Return an SBE message header as the number that `SessionField.MESSAGE_HEADER` reads."""
    return int.from_bytes(struct.pack("<HHHH", *message_header), "little", signed=True)
