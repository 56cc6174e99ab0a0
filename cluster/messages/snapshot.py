"""The messages in snapshots of the consensus module and of services.

    module (stream 107)    SnapshotMarker BEGIN, ConsensusModule, ClusterMembers, FeatureLevel, ClusterSession*, Timer*,
                           then per service PendingMessageTracker and its pending messages, SnapshotMarker END
    service (stream 106)   SnapshotMarker BEGIN, ClientSession*, then per session with requests
                           SessionRequests and its KeptReply*, SnapshotMarker END, then the application's own bytes

Source: Aeron `ConsensusModuleSnapshotTaker` and `ServiceSnapshotTaker`; schema 111, templates 100-107.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from ...service_api.types import NULL_TERM_ID, CloseReason
from ...service_api.wire.fields import (
    Capacity,
    Data,
    Int32,
    Int64,
    Position,
    Since,
    Text,
    Timestamp,
    WireCorrelationId,
    WireMemberId,
    WireSessionId,
)
from ...service_api.wire.log.messages import encode_session_message
from ...service_api.wire.log.snapshot_marker import SnapshotMarker
from ...service_api.wire.message import ClusterMessage, Message, PassedOverMessage, Registry, registry_of
from ...service_api.wire.sbe import INT64_NULL
from ...service_api.wire.session import SESSION_HEADER_LENGTH, SessionMessageHeader
from .replies import KeptReply, SessionRequests

CONSENSUS_MODULE_SNAPSHOT_TYPE_ID: Final = 1
SERVICE_SNAPSHOT_TYPE_ID: Final = 2

_NOT_APPENDED: Final = (1 << 63) - 1
"""The timestamp of a queued message."""


class ClientSessionSnapshot(ClusterMessage):
    """An open session as a service knows it."""

    WIRE_NAME: ClassVar[str] = "ClientSession"
    TEMPLATE_ID: ClassVar[int] = 102
    cluster_session_id: WireSessionId
    response_stream_id: Int32
    response_channel: Text = ""
    encoded_principal: Data = b""


class ClusterSessionSnapshot(ClusterMessage):
    """An open session as the consensus module knows it.

    `opened_log_position` is the end of its SessionOpenEvent; `time_of_last_activity` is -1 and
    `close_reason` None.
    """

    WIRE_NAME: ClassVar[str] = "ClusterSession"
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


class ConsensusModuleSnapshot(ClusterMessage):
    """The state of the consensus module; all but the first field describe service 0, as in old snapshots.

    The service session ids are never None: their null value, -2^63, is also the id before service 0's first
    message.
    """

    WIRE_NAME: ClassVar[str] = "ConsensusModule"
    TEMPLATE_ID: ClassVar[int] = 105
    next_session_id: Int64
    next_service_session_id: Annotated[Int64, Since(3)] = INT64_NULL
    log_service_session_id: Annotated[Int64, Since(3)] = INT64_NULL
    pending_message_capacity: Annotated[Capacity, Since(3)] = 0


class ClusterMembers(ClusterMessage):
    """The members when the snapshot was taken, as `core.configuration` writes them; in Aeron's, passed over."""

    TEMPLATE_ID: ClassVar[int] = 106
    member_id: WireMemberId
    high_member_id: WireMemberId
    cluster_members: Text = ""


class FeatureLevelSnapshot(PassedOverMessage):
    """Which levels were in force when the snapshot was taken; left out while both are 0."""

    TEMPLATE_ID: ClassVar[int] = 8120
    feature_level: Int64
    trimaran_level: Int32


class PendingMessageTracker(ClusterMessage):
    """Messages that one service offered and that are not in the log yet; they follow this message.

    `pending_message_capacity` is a hint of their size in bytes.
    """

    TEMPLATE_ID: ClassVar[int] = 107
    next_service_session_id: Int64
    log_service_session_id: Int64
    pending_message_capacity: Capacity
    service_id: Int32


@dataclass(slots=True, frozen=True)
class PendingMessage:
    """A message that a service offered and that is not in the log yet: a SessionMessageHeader and its payload."""

    session_id: int
    payload: bytes

    def encode(self) -> bytes:
        """Lay it out as Aeron does, with a timestamp that says that it was not appended."""
        return encode_session_message(NULL_TERM_ID, self.session_id, _NOT_APPENDED, self.payload)

    @classmethod
    def decode(cls, data: bytes) -> PendingMessage:
        """Read one.

        Raises:
            RemoteProtocolError: it is none.
        """
        header = SessionMessageHeader.decode(data)
        return cls(header.cluster_session_id, data[SESSION_HEADER_LENGTH:])


ModuleMessage = Message | PendingMessage
"""What the snapshot of a consensus module is made of."""

CONSENSUS_MODULE_SNAPSHOT_MESSAGES: Final[Registry] = registry_of(
    SnapshotMarker,
    ConsensusModuleSnapshot,
    ClusterSessionSnapshot,
    Timer,
    PendingMessageTracker,
    SessionMessageHeader,
    ClusterMembers,
    FeatureLevelSnapshot,
)
"""What the snapshot of a consensus module may hold."""

SERVICE_SNAPSHOT_MESSAGES: Final[Registry] = registry_of(
    SnapshotMarker, ClientSessionSnapshot, SessionRequests, KeptReply
)
"""What the snapshot of a service holds before the application's own bytes."""
