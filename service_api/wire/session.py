"""The session protocol: what clients and members say to each other on the ingress connection.

client -> member   SessionConnectRequest, ChallengeResponse, SessionKeepAlive, SessionCloseRequest,
                   AdminRequest, and SessionMessageHeader followed by the application's payload
member -> client   SessionEvent, NewLeaderEvent, Challenge, AdminResponse, SessionLimits, KeepAliveAnswer, and
                   SessionMessageHeader followed by the service's payload
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Annotated, ClassVar, Final

from ..errors import ConfigurationError, RemoteProtocolError
from ..groups.group import ONLY_GROUP, Group
from ..types import NULL_VALUE, CorrelationId
from .fields import (
    Data,
    Int32,
    Int64,
    Since,
    Text,
    Timestamp,
    Version,
    WireCorrelationId,
    WireMemberId,
    WireSessionId,
    WireTermId,
)
from .message import ClusterMessage, TrimaranMessage, message_header, message_struct

NULL_CORRELATION_ID: Final = CorrelationId(NULL_VALUE)

DEFAULT_LEADER_HEARTBEAT_TIMEOUT_NS: Final = 2_000_000_000
"""The default of members, and what a client takes where a leader does not tell its own."""


class EventCode(IntEnum):
    """What a SessionEvent tells. Source: schema 111 `EventCode`."""

    OK = 0
    ERROR = 1
    REDIRECT = 2
    AUTHENTICATION_REJECTED = 3
    CLOSED = 4


class AdminRequestType(IntEnum):
    """What an admin request asks for. Source: schema 111 `AdminRequestType`; the numbers from 100 on are ours."""

    SNAPSHOT = 0
    TRANSFER = 100
    """The leader hands over. The payload is the id of the member that is to lead (`TRANSFER_TARGET`), or empty."""


TRANSFER_TARGET: Final = struct.Struct("<i")
"""In the payload of an admin request of the type TRANSFER."""


class AdminResponseCode(IntEnum):
    """How an admin request ended. Source: schema 111 `AdminResponseCode`."""

    OK = 0
    ERROR = 1
    UNAUTHORISED_ACCESS = 2


class SessionMessageHeader(ClusterMessage):
    """Precedes an application message on ingress, in the log and on egress; the payload follows at byte 32.

    On ingress `timestamp` is 0 and the leader fills it in. A message offered by a service has
    cluster_session_id = -2^63 + service_id * 2^56 + n.
    """

    TEMPLATE_ID: ClassVar[int] = 1
    leadership_term_id: WireTermId
    cluster_session_id: WireSessionId
    timestamp: Timestamp


SESSION_MESSAGE: Final = message_header(SessionMessageHeader)
"""The SBE message header of an application message: block length, template, schema, version."""

SESSION_MESSAGE_HEADER: Final = message_struct(SessionMessageHeader)
"""The hot message in one struct: SBE header, then leadership_term_id, cluster_session_id, timestamp."""

SESSION_HEADER_LENGTH: Final = SESSION_MESSAGE_HEADER.size
"""32 bytes: the payload begins there."""


class SessionEvent(ClusterMessage):
    """Answers a connect request, or tells a client that its session has ended.

    `detail` is the ingress endpoints ("0=host:port,1=host:port") with OK and REDIRECT, otherwise a reason.
    """

    TEMPLATE_ID: ClassVar[int] = 2
    cluster_session_id: WireSessionId
    correlation_id: WireCorrelationId
    leadership_term_id: WireTermId
    leader_member_id: WireMemberId
    code: EventCode | None
    version: Annotated[Version, Since(6)] = 0
    leader_heartbeat_timeout_ns: Annotated[Int64 | None, Since(13)] = None
    detail: Text = ""


class SessionConnectRequest(ClusterMessage):
    """A client asks for a session."""

    TEMPLATE_ID: ClassVar[int] = 3
    correlation_id: WireCorrelationId
    response_stream_id: Int32
    version: Annotated[Version, Since(2)] = 0
    response_channel: Text = ""
    encoded_credentials: Data = b""
    client_info: Annotated[Text, Since(14)] = ""


class SessionCloseRequest(ClusterMessage):
    """A client ends its session."""

    TEMPLATE_ID: ClassVar[int] = 4
    leadership_term_id: WireTermId
    cluster_session_id: WireSessionId


class SessionKeepAlive(ClusterMessage):
    """A client is alive; on a member that does not lead, it binds the connection to the session."""

    TEMPLATE_ID: ClassVar[int] = 5
    leadership_term_id: WireTermId
    cluster_session_id: WireSessionId


class AskingKeepAlive(SessionKeepAlive):
    """A keep-alive that asks for an answer: a longer block, which Aeron and earlier members pass over."""

    correlation_id: Annotated[WireCorrelationId, Since(11)] = NULL_CORRELATION_ID
    """The client's; the answer repeats it."""


class NewLeaderEvent(ClusterMessage):
    """A new leader tells a client where to send from now on."""

    TEMPLATE_ID: ClassVar[int] = 6
    leadership_term_id: WireTermId
    cluster_session_id: WireSessionId
    leader_member_id: WireMemberId
    ingress_endpoints: Text = ""


class Challenge(ClusterMessage):
    """The authenticator asks a client to prove who it is."""

    TEMPLATE_ID: ClassVar[int] = 7
    correlation_id: WireCorrelationId
    cluster_session_id: WireSessionId
    encoded_challenge: Data = b""


class ChallengeResponse(ClusterMessage):
    """A client answers a challenge."""

    TEMPLATE_ID: ClassVar[int] = 8
    correlation_id: WireCorrelationId
    cluster_session_id: WireSessionId
    encoded_credentials: Data = b""


class AdminRequest(ClusterMessage):
    """A client asks for an administrative action over its session."""

    TEMPLATE_ID: ClassVar[int] = 26
    leadership_term_id: WireTermId
    cluster_session_id: WireSessionId
    correlation_id: WireCorrelationId
    request_type: AdminRequestType | None
    payload: Data = b""


class AdminResponse(ClusterMessage):
    """Answers an admin request."""

    TEMPLATE_ID: ClassVar[int] = 27
    cluster_session_id: WireSessionId
    correlation_id: WireCorrelationId
    request_type: AdminRequestType | None
    response_code: AdminResponseCode | None
    message: Text = ""
    payload: Data = b""


class SessionLimits(TrimaranMessage):
    """What a client may send over its session; it comes just before the OK that opens it. A message of our own."""

    TEMPLATE_ID: ClassVar[int] = 7
    max_message_length: Int32
    """Bytes of a message with its session header: an eighth of a log term, and 16 MiB at most."""
    refused: Int32 = 0
    """A sum of the `REFUSES_...` that hold."""
    group_index: Annotated[Int32 | None, Since(2)] = None
    group_count: Annotated[Int32 | None, Since(2)] = None
    """Which of the cluster's groups the session is with; None of an older leader, which knows no groups."""
    session_timeout_ms: Annotated[Int32 | None, Since(2)] = None
    """How long a session may be silent; None of an older leader, which does not say it."""

    @property
    def group(self) -> Group:
        """Which of the cluster's groups the session is with.

        Raises:
            RemoteProtocolError: there is no such group.
        """
        try:
            return ONLY_GROUP if self.group_count is None else Group(self.group_index or 0, self.group_count)
        except ConfigurationError as error:
            raise RemoteProtocolError(f"session limits: {error}") from None


class KeepAliveAnswer(TrimaranMessage):
    """Says that a member's process runs, and whether it leads; only to a client that asks. A message of our own.

    A member that does not read its clients, as while it is suspended, says so once a second without being asked.
    """

    TEMPLATE_ID: ClassVar[int] = 8
    correlation_id: WireCorrelationId
    """That of the `AskingKeepAlive`; `NULL_CORRELATION_ID` where none was read."""
    is_leader: Int32
    """1 if the member leads and takes input, otherwise 0."""


REFUSES_MESSAGES: Final = 1
"""No service of the cluster has an `on_session_message`."""
REFUSES_REQUESTS: Final = 2
"""No service of the cluster has an `on_request`; or the setting, which `REFUSED_BY_SETTING` says."""
REFUSED_BY_SETTING: Final = 4
"""It is `aeron_messages_only` that refuses requests."""


def refusal_of_requests(refused: int) -> str:
    """Say why requests are refused, given what `SessionLimits.refused` says."""
    if refused & REFUSED_BY_SETTING:
        return (
            "the cluster takes no requests: it runs with aeron_messages_only = true; "
            "use offer, or set it to false on every member"
        )
    return "the service takes no requests: it has no on_request"
