"""The messages of backups and standbys, and the membership messages of old clusters.

Source: Aeron `ConsensusPublisher`; schema 111, templates 70-74 (deprecated) and 77-81.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from ...service_api.wire.fields import (
    Data,
    Int32,
    Position,
    Since,
    Text,
    Timestamp,
    Version,
    WireCorrelationId,
    WireMemberId,
    WireRecordingId,
    WireTermId,
)
from ...service_api.wire.message import ClusterMessage, GroupElement


class AddPassiveMember(ClusterMessage):
    """A node asks to join as a passive member: deprecated."""

    TEMPLATE_ID: ClassVar[int] = 70
    correlation_id: WireCorrelationId
    member_endpoints: Text = ""


class ClusterMembersChange(ClusterMessage):
    """The leader tells of changed members: deprecated."""

    TEMPLATE_ID: ClassVar[int] = 71
    correlation_id: WireCorrelationId
    leader_member_id: WireMemberId
    active_members: Text = ""
    passive_members: Text = ""


class SnapshotRecordingQuery(ClusterMessage):
    """A passive member asks for the snapshots: deprecated."""

    TEMPLATE_ID: ClassVar[int] = 72
    correlation_id: WireCorrelationId
    request_member_id: WireMemberId


class SnapshotRecording(GroupElement):
    """One snapshot that a member has: that of the consensus module (service_id -1) or of a service."""

    recording_id: WireRecordingId
    leadership_term_id: WireTermId
    term_base_log_position: Position
    log_position: Position
    timestamp: Timestamp
    service_id: Int32


class SnapshotRecordings(ClusterMessage):
    """Answers a `SnapshotRecordingQuery`: deprecated."""

    TEMPLATE_ID: ClassVar[int] = 73
    correlation_id: WireCorrelationId
    snapshots: tuple[SnapshotRecording, ...] = ()
    member_endpoints: Text = ""


class JoinCluster(ClusterMessage):
    """A passive member asks to become active: deprecated."""

    TEMPLATE_ID: ClassVar[int] = 74
    leadership_term_id: WireTermId
    member_id: WireMemberId


class BackupQuery(ClusterMessage):
    """A backup asks for the log and the newest snapshots; `log_position` bounds which snapshots."""

    TEMPLATE_ID: ClassVar[int] = 77
    correlation_id: WireCorrelationId
    response_stream_id: Int32
    version: Annotated[Version, Since(2)] = 0
    log_position: Annotated[Position | None, Since(16)] = None
    response_channel: Text = ""
    encoded_credentials: Data = b""


class BackupResponse(ClusterMessage):
    """Answers a `BackupQuery`."""

    TEMPLATE_ID: ClassVar[int] = 78
    correlation_id: WireCorrelationId
    log_recording_id: WireRecordingId
    log_leadership_term_id: WireTermId
    log_term_base_log_position: Position
    last_leadership_term_id: WireTermId
    last_term_base_log_position: Position
    commit_position_counter_id: Int32
    leader_member_id: WireMemberId
    member_id: Annotated[WireMemberId | None, Since(10)] = None
    snapshots: tuple[SnapshotRecording, ...] = ()
    cluster_members: Text = ""


class HeartbeatRequest(ClusterMessage):
    """A standby asks whether a member is alive."""

    TEMPLATE_ID: ClassVar[int] = 79
    correlation_id: WireCorrelationId
    response_stream_id: Int32
    response_channel: Text = ""
    encoded_credentials: Data = b""


class HeartbeatResponse(ClusterMessage):
    """Answers a `HeartbeatRequest`."""

    TEMPLATE_ID: ClassVar[int] = 80
    correlation_id: WireCorrelationId


class StandbySnapshotRecording(GroupElement):
    """One snapshot that a standby has taken, and the archive it can be fetched from."""

    recording_id: WireRecordingId
    leadership_term_id: WireTermId
    term_base_log_position: Position
    log_position: Position
    timestamp: Timestamp
    service_id: Int32
    archive_endpoint: Text = ""


class StandbySnapshot(ClusterMessage):
    """A standby tells the members of the snapshots it has taken."""

    TEMPLATE_ID: ClassVar[int] = 81
    correlation_id: WireCorrelationId
    version: Int32
    response_stream_id: Int32
    snapshots: tuple[StandbySnapshotRecording, ...] = ()
    response_channel: Text = ""
    encoded_credentials: Data = b""
