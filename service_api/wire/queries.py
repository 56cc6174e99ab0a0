"""What clients and members say to each other about queries, on the ingress connection. None of it is ever in the log.

client -> member   QueryRequest, with the service's own question
member -> client   QueryResponse: the service's answer and the log position that it reflects, or why there is none

Aeron Cluster has no queries, so these are messages of our own schema.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from .fields import (
    Data,
    Int32,
    Int64,
    Position,
    Text,
    WireCorrelationId,
    WireMemberId,
    WireSessionId,
    WireTermId,
)
from .message import TrimaranMessage


class QueryCode(IntEnum):
    """How a query ended."""

    OK = 0
    NOT_LEADER = 1
    """Linearizable queries are for the leader, and this member is none, or has lost its place meanwhile."""
    TOO_STALE = 2
    """No leader says in time how far the log was committed, and what this member heard last is too old."""
    UNKNOWN_SESSION = 3
    """The connection holds no session that is open here; perhaps not yet."""
    BUSY = 4
    """So many queries wait on this connection, or in all, that no more are taken just now."""
    TIMED_OUT = 5
    """It waited here for as long as it said that it may."""
    NOT_AUTHORISED = 6
    SERVICE_FAILED = 7
    """The service takes no queries, or raised, or its answer is none."""


RETRIABLE_QUERY_CODES = frozenset(
    (QueryCode.NOT_LEADER, QueryCode.TOO_STALE, QueryCode.UNKNOWN_SESSION, QueryCode.BUSY, QueryCode.TIMED_OUT)
)
"""The refusals after which another member may answer, or this one later."""


class QueryRequest(TrimaranMessage):
    """A client asks the service of a member, without a log entry. The same question may be asked again."""

    TEMPLATE_ID: ClassVar[int] = 1
    correlation_id: WireCorrelationId
    cluster_session_id: WireSessionId
    leadership_term_id: WireTermId
    service_id: Int32
    """Which service of the node answers; -1: the first one that takes queries."""
    max_staleness_ns: Int64 | None
    """None: linearizable. Otherwise everything that was acknowledged this long before the query came must be seen."""
    min_log_position: Position
    """The state has to reflect the log up to here at least."""
    timeout_ns: Int64
    """How long it may wait at the member."""
    payload: Data = b""


class QueryResponse(TrimaranMessage):
    """Answers a query; position, staleness and payload mean something with OK only."""

    TEMPLATE_ID: ClassVar[int] = 2
    correlation_id: WireCorrelationId
    cluster_session_id: WireSessionId
    member_id: WireMemberId
    code: QueryCode | None
    log_position: Position
    """The answer is of the state after exactly this much of the log."""
    staleness_ns: Int64
    """All that was acknowledged to anybody this long before the query came, or earlier, is in that state."""
    detail: Text = ""
    """Why there is no answer."""
    payload: Data = b""


QUERY_RESPONSE_OVERHEAD_BYTES = 128
"""More than what a response has around its payload."""
