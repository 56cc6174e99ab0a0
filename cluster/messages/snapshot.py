"""What snapshots of the consensus module and of services are made of.

    module (stream 107)    SnapshotMarker BEGIN, ConsensusModule, ClusterSession*, Timer*, then per service
                           PendingMessageTracker and its pending messages, SnapshotMarker END
    service (stream 106)   SnapshotMarker BEGIN, ClientSession*, then per session with requests
                           SessionRequests and its KeptReply*, SnapshotMarker END, then the application's own bytes

Source: Aeron `ConsensusModuleSnapshotTaker` and `ServiceSnapshotTaker`; schema 111, templates 100-107.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, ClassVar, Final

from service_api.types import CloseReason, TimeUnit
from service_api.wire.fields import (
    INT64_NULL,
    Capacity,
    Data,
    Int32,
    Int64,
    Position,
    Since,
    Text,
    Timestamp,
    Version,
    WireCorrelationId,
    WireMemberId,
    WireSessionId,
    WireTermId,
)
from service_api.wire.message import ClusterMessage, Registry, registry_of
from service_api.wire.session import SessionMessageHeader

from .replies import KeptReply, SessionRequests

CONSENSUS_MODULE_SNAPSHOT_TYPE_ID: Final = 1
SERVICE_SNAPSHOT_TYPE_ID: Final = 2


class SnapshotMark(IntEnum):
    """Where in a snapshot a marker stands. Source: schema 111 `SnapshotMark`."""

    BEGIN = 0
    SECTION = 1
    END = 2


class SnapshotMarker(ClusterMessage):
    """The first and the last message of a snapshot: a snapshot without its END is not one.

    `log_position` is the end of the SNAPSHOT action; `index` is 0 in what Aeron writes.
    """

    TEMPLATE_ID: ClassVar[int] = 100
    type_id: Int64
    log_position: Position
    leadership_term_id: WireTermId
    index: Int32
    mark: SnapshotMark | None
    time_unit: Annotated[TimeUnit | None, Since(4)] = None
    app_version: Annotated[Version, Since(4)] = 0


class ClientSession(ClusterMessage):
    """An open session as a service knows it."""

    TEMPLATE_ID: ClassVar[int] = 102
    cluster_session_id: WireSessionId
    response_stream_id: Int32
    response_channel: Text = ""
    encoded_principal: Data = b""


class ClusterSession(ClusterMessage):
    """An open session as the consensus module knows it.

    `opened_log_position` is the end of its SessionOpenEvent; `time_of_last_activity` is -1 and
    `close_reason` None.
    """

    TEMPLATE_ID: ClassVar[int] = 103
    cluster_session_id: WireSessionId
    correlation_id: WireCorrelationId
    opened_log_position: Position
    time_of_last_activity: Timestamp
    close_reason: CloseReason | None
    response_stream_id: Int32
    response_channel: Text = ""


class Timer(ClusterMessage):
    """A timer that has not fired."""

    TEMPLATE_ID: ClassVar[int] = 104
    correlation_id: WireCorrelationId
    deadline: Timestamp


class ConsensusModule(ClusterMessage):
    """The state of the consensus module; all but the first field describe service 0, as in old snapshots.

    The service session ids are never None: their null value, -2^63, is also the id before service 0's first
    message.
    """

    TEMPLATE_ID: ClassVar[int] = 105
    next_session_id: Int64
    next_service_session_id: Annotated[Int64, Since(3)] = INT64_NULL
    log_service_session_id: Annotated[Int64, Since(3)] = INT64_NULL
    pending_message_capacity: Annotated[Capacity, Since(3)] = 0


class ClusterMembers(ClusterMessage):
    """The members when the snapshot was taken: found in old snapshots, read and ignored."""

    TEMPLATE_ID: ClassVar[int] = 106
    member_id: WireMemberId
    high_member_id: WireMemberId
    cluster_members: Text = ""


class PendingMessageTracker(ClusterMessage):
    """Messages that one service offered and that are not in the log yet; they follow this message.

    `pending_message_capacity` is a hint of their size in bytes.
    """

    TEMPLATE_ID: ClassVar[int] = 107
    next_service_session_id: Int64
    log_service_session_id: Int64
    pending_message_capacity: Capacity
    service_id: Int32


CONSENSUS_MODULE_SNAPSHOT_MESSAGES: Final[Registry] = registry_of(
    SnapshotMarker,
    ConsensusModule,
    ClusterSession,
    Timer,
    PendingMessageTracker,
    SessionMessageHeader,
    ClusterMembers,
)
"""What the snapshot of a consensus module may hold."""

SERVICE_SNAPSHOT_MESSAGES: Final[Registry] = registry_of(SnapshotMarker, ClientSession, SessionRequests, KeptReply)
"""What the snapshot of a service holds before the application's own bytes."""
