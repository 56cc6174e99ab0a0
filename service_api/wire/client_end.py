"""The last message to a client whose connection ends: a session event that says why.

A client may dial a port of a member that is no ingress: ports of one member are next to each other. The setup frame of
its connection says what it wants, so every port knows such a client, and answers in the client's own words.
"""

from __future__ import annotations

from typing import Final

from ..types import (
    EGRESS_STREAM_ID,
    INGRESS_STREAM_ID,
    NULL_VALUE,
    ClusterSessionId,
    CorrelationId,
    MemberId,
    TermId,
)
from .frame import encode_message
from .link_frames import SetupFrame
from .session import EventCode, SessionEvent

WRONG_PORT_ID: Final = -2
"""The correlation id of an event that says that a port is no ingress: it answers no request."""
_MTU_LENGTH: Final = 65_504


def encode_client_end(reason: str, *, cluster_session_id: int = NULL_VALUE, correlation_id: int = NULL_VALUE) -> bytes:
    """Make the frames that tell a client why its connection ends."""
    event = SessionEvent(
        cluster_session_id=ClusterSessionId(cluster_session_id),
        correlation_id=CorrelationId(correlation_id),
        leadership_term_id=TermId(NULL_VALUE),
        leader_member_id=MemberId(NULL_VALUE),
        code=EventCode.ERROR,
        version=0,
        leader_heartbeat_timeout_ns=None,
        detail=reason,
    )
    return encode_message(event.encode(), stream_id=EGRESS_STREAM_ID, mtu_length=_MTU_LENGTH)


def find_wrong_port(setup: SetupFrame, port: str, ingress: str) -> str | None:
    """Describe where a client is that wants a session at a port which is no ingress; None for any other connection.

    `port` says what the port is, `ingress` where the ingress of the same member is; empty if there is none.
    """
    if setup.stream_id != INGRESS_STREAM_ID:
        return None
    remedy = f"connect to its ingress, {ingress}" if ingress else "connect to the ingress of a member"
    return f"this is {port}, where clients have no sessions: {remedy}"
