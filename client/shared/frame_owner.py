"""Whose a frame is that came on a connection which sessions share."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from ...service_api.wire.frame import HEADER_LENGTH
from ...service_api.wire.message import MESSAGE_HEADER_LENGTH, Message, peek_header
from ...service_api.wire.queries import QueryResponse
from ...service_api.wire.session import (
    AdminResponse,
    Challenge,
    EventCode,
    KeepAliveAnswer,
    NewLeaderEvent,
    SessionEvent,
    SessionLimits,
    SessionMessageHeader,
)

_SESSION_ID: Final = struct.Struct("<q")


@dataclass(slots=True, frozen=True)
class FrameOwner:
    """What a frame says of whom it is for."""

    session_id: int | None = None
    """Of a message to an open session."""
    correlation_id: int | None = None
    """Of an answer to a connect request."""
    opened_session_id: int | None = None
    """Of an answer that opens a session."""
    leadership_term_id: int = -1
    is_limits: bool = False
    """It is for the next session that opens."""
    is_new_leader: bool = False
    keep_alive_answer: KeepAliveAnswer | None = None
    """It is for the connection itself."""


EVERYBODY: Final = FrameOwner()


def _session_id_offset(kind: type[Message]) -> int:
    offset = next(field.offset for field in kind.LAYOUT.block if field.name == "cluster_session_id")
    return HEADER_LENGTH + MESSAGE_HEADER_LENGTH + offset


_TO_SESSIONS: Final = {
    (kind.TEMPLATE_ID, kind.SCHEMA_ID): _session_id_offset(kind) for kind in (QueryResponse, AdminResponse)
}
"""Where messages to a session name it."""

SESSION_ID_OFFSET: Final = _session_id_offset(SessionMessageHeader)
SESSION_MESSAGE_KIND: Final = struct.pack("<HH", SessionMessageHeader.TEMPLATE_ID, SessionMessageHeader.SCHEMA_ID)
KIND_OFFSET: Final = HEADER_LENGTH + 2
"""Where the template and the schema of a frame's message stand."""


def owner_of(frame: memoryview) -> FrameOwner:
    """Read whose a control message is, from its first frame.

    Raises:
        ProtocolError: the message is incomplete.
    """
    message = bytes(frame[HEADER_LENGTH:])
    _, template_id, schema_id, _ = peek_header(message)
    kind = template_id, schema_id
    offset = _TO_SESSIONS.get(kind)
    if offset is not None and len(frame) >= offset + _SESSION_ID.size:
        return FrameOwner(session_id=_SESSION_ID.unpack_from(frame, offset)[0])
    if kind == (NewLeaderEvent.TEMPLATE_ID, NewLeaderEvent.SCHEMA_ID):
        news = NewLeaderEvent.decode(message)
        return FrameOwner(
            session_id=news.cluster_session_id, leadership_term_id=news.leadership_term_id, is_new_leader=True
        )
    if kind == (SessionLimits.TEMPLATE_ID, SessionLimits.SCHEMA_ID):
        return FrameOwner(is_limits=True)
    if kind == (KeepAliveAnswer.TEMPLATE_ID, KeepAliveAnswer.SCHEMA_ID):
        return FrameOwner(keep_alive_answer=KeepAliveAnswer.decode(message))
    if kind == (Challenge.TEMPLATE_ID, Challenge.SCHEMA_ID):
        return FrameOwner(correlation_id=Challenge.decode(message).correlation_id)
    if kind == (SessionEvent.TEMPLATE_ID, SessionEvent.SCHEMA_ID):
        event = SessionEvent.decode(message)
        if event.correlation_id >= 0:
            opened_id = event.cluster_session_id if event.code is EventCode.OK else None
            return FrameOwner(
                session_id=None if event.cluster_session_id < 0 else event.cluster_session_id,
                correlation_id=event.correlation_id,
                opened_session_id=opened_id,
                leadership_term_id=event.leadership_term_id,
            )
        if event.cluster_session_id >= 0 and event.code is not EventCode.ERROR:
            return FrameOwner(session_id=event.cluster_session_id)
    return EVERYBODY
