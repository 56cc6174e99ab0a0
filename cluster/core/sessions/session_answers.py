"""The answers of the consensus module to clients about their sessions."""

from __future__ import annotations

from ....service_api.types import NULL_SESSION_ID, NULL_VALUE, ClusterSessionId, CorrelationId, MemberId
from ....service_api.wire.session import EventCode, SessionEvent
from .. import effects as fx
from ..context import ConsensusContext

PROTOCOL_MAJOR_VERSION = 0
"""The client protocol's major version; others are refused. Source: aeron.md §3.5."""

PROTOCOL_VERSION = (PROTOCOL_MAJOR_VERSION << 16) | (1 << 8)


def answer(
    ctx: ConsensusContext,
    connection_id: int,
    correlation_id: CorrelationId,
    code: EventCode,
    *,
    session_id: ClusterSessionId = NULL_SESSION_ID,
    detail: str,
    close_after: bool = False,
) -> None:
    """Send a session event; `close_after` ends the connection once it is out."""
    leader = MemberId(NULL_VALUE) if ctx.leader_member_id is None else ctx.leader_member_id
    event = SessionEvent(
        cluster_session_id=session_id,
        correlation_id=correlation_id,
        leadership_term_id=ctx.leadership_term_id,
        leader_member_id=leader,
        code=code,
        version=PROTOCOL_VERSION,
        leader_heartbeat_timeout_ns=ctx.config.leader_heartbeat_timeout_ns,
        detail=detail,
    )
    ctx.emit(fx.SendToClient(connection_id, event, close_after))


def redirect(
    ctx: ConsensusContext,
    connection_id: int,
    correlation_id: CorrelationId,
    *,
    session_id: ClusterSessionId = NULL_SESSION_ID,
) -> None:
    """Send a client where the members are, and the leader's id, or -1 while there is no leader."""
    answer(ctx, connection_id, correlation_id, EventCode.REDIRECT, session_id=session_id, detail=ctx.ingress_endpoints)
