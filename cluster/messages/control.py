"""The messages between the consensus module and its services, and the requests of a tool to a module.

In our node both live in one process and call each other; the messages remain for recordings and for tools.
Source: Aeron `ConsensusModuleProxy` and `ServiceProxy`; schema 111, templates 30-35, 40-43 and 108.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from ...service_api.wire.fields import (
    Int32,
    Int64,
    Position,
    Since,
    Text,
    Timestamp,
    WireCorrelationId,
    WireMemberId,
    WireSessionId,
    WireTermId,
)
from ...service_api.wire.message import ClusterMessage, GroupElement


class CloseSession(ClusterMessage):
    """A service asks for a client's session to be closed."""

    TEMPLATE_ID: ClassVar[int] = 30
    cluster_session_id: WireSessionId


class ScheduleTimer(ClusterMessage):
    """A service creates a timer, or replaces the one with the same correlation id."""

    TEMPLATE_ID: ClassVar[int] = 31
    correlation_id: WireCorrelationId
    deadline: Timestamp


class CancelTimer(ClusterMessage):
    """A service cancels a timer."""

    TEMPLATE_ID: ClassVar[int] = 32
    correlation_id: WireCorrelationId


class ServiceAck(ClusterMessage):
    """A service has reached a position: joined the log, taken a snapshot, or stopped.

    `ack_id` counts up per service; `relevant_id` is the snapshot's recording id, -1 if it failed.
    """

    TEMPLATE_ID: ClassVar[int] = 33
    log_position: Position
    timestamp: Timestamp
    ack_id: Int64
    relevant_id: Int64
    service_id: Int32


class ClusterMembersQuery(ClusterMessage):
    """A tool asks for the members of the cluster."""

    TEMPLATE_ID: ClassVar[int] = 34
    correlation_id: WireCorrelationId
    extended: Annotated[bool | None, Since(5)] = None


class RemoveMember(ClusterMessage):
    """A tool asks for a member to be removed: dead since Aeron 1.41."""

    TEMPLATE_ID: ClassVar[int] = 35
    member_id: WireMemberId
    is_passive: bool | None


class JoinLog(ClusterMessage):
    """The module tells a service to read the log from one position up to another."""

    TEMPLATE_ID: ClassVar[int] = 40
    log_position: Position
    max_log_position: Position
    member_id: WireMemberId
    log_session_id: Int32
    log_stream_id: Int32
    is_startup: bool | None
    role: Int32
    """The value of a `Role`."""
    is_standby: Annotated[bool | None, Since(16)] = None
    log_channel: Text = ""


class ClusterMembersResponse(ClusterMessage):
    """Answers a tool with the members' endpoints."""

    TEMPLATE_ID: ClassVar[int] = 41
    correlation_id: WireCorrelationId
    leader_member_id: WireMemberId
    active_members: Text = ""
    passive_followers: Text = ""


class ServiceTerminationPosition(ClusterMessage):
    """The module tells its services to stop at a position; 0 means now."""

    TEMPLATE_ID: ClassVar[int] = 42
    log_position: Position


class ClusterMemberElement(GroupElement):
    """One member in a `ClusterMembersExtendedResponse`."""

    leadership_term_id: WireTermId
    log_position: Position
    time_of_last_append_ns: Int64
    member_id: WireMemberId
    ingress_endpoint: Text = ""
    consensus_endpoint: Text = ""
    log_endpoint: Text = ""
    catchup_endpoint: Text = ""
    archive_endpoint: Text = ""


class ClusterMembersExtendedResponse(ClusterMessage):
    """Answers a tool with the members, their positions and when each was last heard of."""

    TEMPLATE_ID: ClassVar[int] = 43
    correlation_id: WireCorrelationId
    current_time_ns: Int64
    leader_member_id: WireMemberId
    member_id: WireMemberId
    active_members: tuple[ClusterMemberElement, ...] = ()
    passive_members: tuple[ClusterMemberElement, ...] = ()


class RequestServiceAck(ClusterMessage):
    """The module asks its services to acknowledge a position."""

    TEMPLATE_ID: ClassVar[int] = 108
    WIRE_NAME: ClassVar[str] = "requestServiceAck"
    log_position: Position
