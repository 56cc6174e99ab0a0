"""What clients and members say to each other about queries, on the ingress connection. None of it is ever in the log.

client -> member   QueryRequest, with the service's own question
member -> client   QueryResponse: the service's answer and the log position that it reflects, or why there is none

Aeron Cluster has no queries, so these are messages of our own schema. Reads are as many as requests: both sides write
and read them by one struct each, and make no models.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final

from ..types import ClusterSessionId, CorrelationId
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
from .frame import HEADER_LENGTH, FrameField
from .message import TrimaranMessage, message_header, message_struct
from .sbe import INT64_NULL, MESSAGE_HEADER


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


# Without models


@dataclass(slots=True)
class AskedQuery:
    """A query as a member takes it: the fields of `QueryRequest`, but for the term.

    Not frozen: making one that is frozen takes twice as long.
    """

    correlation_id: CorrelationId
    cluster_session_id: ClusterSessionId
    service_id: int
    max_staleness_ns: int | None
    min_log_position: int
    timeout_ns: int
    payload: bytes


_REQUEST: Final = struct.Struct(f"{message_struct(QueryRequest).format}I")
_REQUEST_HEADER: Final = message_header(QueryRequest)
_RESPONSE: Final = struct.Struct(f"{message_struct(QueryResponse).format}I")
_RESPONSE_HEADER: Final = message_header(QueryResponse)
_LENGTH: Final = struct.Struct("<I")
_OK: Final = int(QueryCode.OK)

QUERY_HEADER: Final = int.from_bytes(MESSAGE_HEADER.pack(*_REQUEST_HEADER), "little", signed=True)
"""The SBE header of a `QueryRequest`, as one number."""
ANSWER_HEADER: Final = int.from_bytes(MESSAGE_HEADER.pack(*_RESPONSE_HEADER), "little", signed=True)
"""The SBE header of a `QueryResponse`, as one number."""
ANSWER_FIELDS: Final = FrameField(HEADER_LENGTH + MESSAGE_HEADER.size, f"{QueryResponse.LAYOUT.block_format}II")
"""In the frame of a `QueryResponse` without detail: its block, and the lengths of detail and payload."""
ANSWER_PAYLOAD_OFFSET: Final = HEADER_LENGTH + _RESPONSE.size + _LENGTH.size
"""In that frame."""


def write_query(
    correlation_id: int,
    cluster_session_id: int,
    leadership_term_id: int,
    service_id: int,
    max_staleness_ns: int | None,
    min_log_position: int,
    timeout_ns: int,
    payload: bytes,
) -> bytes:
    """Write a `QueryRequest` with these fields; numbers are in their ranges."""
    staleness_ns = INT64_NULL if max_staleness_ns is None else max_staleness_ns
    ids = correlation_id, cluster_session_id, leadership_term_id, service_id
    block = _REQUEST.pack(*_REQUEST_HEADER, *ids, staleness_ns, min_log_position, timeout_ns, len(payload))
    return block + payload


def read_query(message: bytes) -> AskedQuery:
    """Read a `QueryRequest`.

    Raises:
        RemoteProtocolError: it is malformed; says what.
    """
    if len(message) >= _REQUEST.size:
        fields = _REQUEST.unpack_from(message)
        if fields[:4] == _REQUEST_HEADER and len(message) == _REQUEST.size + fields[-1]:
            *_, correlation_id, session_id, _, service_id, staleness_ns, min_log_position, timeout_ns, _ = fields
            return AskedQuery(
                correlation_id,
                session_id,
                service_id,
                None if staleness_ns == INT64_NULL else staleness_ns,
                min_log_position,
                timeout_ns,
                message[_REQUEST.size :],
            )
    request = QueryRequest.decode(message)
    return AskedQuery(
        request.correlation_id,
        request.cluster_session_id,
        request.service_id,
        request.max_staleness_ns,
        request.min_log_position,
        request.timeout_ns,
        request.payload,
    )


def write_answer(question: AskedQuery, member_id: int, log_position: int, staleness_ns: int, payload: bytes) -> bytes:
    """Write a `QueryResponse` of code OK."""
    ids = question.correlation_id, question.cluster_session_id, member_id
    block = _RESPONSE.pack(*_RESPONSE_HEADER, *ids, _OK, log_position, staleness_ns, 0)
    return b"".join((block, _LENGTH.pack(len(payload)), payload))
