"""SBE messages of the cluster schema, grouped by who exchanges them.

`consensus` member to member, `log` in the replicated log, `control` module and service, `snapshot` in
snapshots, `backup` for standbys, `nodestate` and `mark` in files.
"""

from ...service_api.wire.log.messages import CLUSTER_ACTION_FLAGS_DEFAULT as CLUSTER_ACTION_FLAGS_DEFAULT
from ...service_api.wire.log.messages import (
    CLUSTER_ACTION_FLAGS_STANDBY_SNAPSHOT as CLUSTER_ACTION_FLAGS_STANDBY_SNAPSHOT,
)
from ...service_api.wire.log.messages import LOG_MESSAGES as LOG_MESSAGES
from ...service_api.wire.log.messages import ChangeType as ChangeType
from ...service_api.wire.log.messages import ClusterAction as ClusterAction
from ...service_api.wire.log.messages import ClusterActionRequest as ClusterActionRequest
from ...service_api.wire.log.messages import MembershipChangeEvent as MembershipChangeEvent
from ...service_api.wire.log.messages import NewLeadershipTermEvent as NewLeadershipTermEvent
from ...service_api.wire.log.messages import SessionCloseEvent as SessionCloseEvent
from ...service_api.wire.log.messages import SessionOpenEvent as SessionOpenEvent
from ...service_api.wire.log.messages import TimerEvent as TimerEvent
from ...service_api.wire.log.snapshot_marker import SnapshotMark as SnapshotMark
from ...service_api.wire.log.snapshot_marker import SnapshotMarker as SnapshotMarker
from .backup import AddPassiveMember as AddPassiveMember
from .backup import BackupQuery as BackupQuery
from .backup import BackupResponse as BackupResponse
from .backup import ClusterMembersChange as ClusterMembersChange
from .backup import HeartbeatRequest as HeartbeatRequest
from .backup import HeartbeatResponse as HeartbeatResponse
from .backup import JoinCluster as JoinCluster
from .backup import SnapshotRecording as SnapshotRecording
from .backup import SnapshotRecordingQuery as SnapshotRecordingQuery
from .backup import SnapshotRecordings as SnapshotRecordings
from .backup import StandbySnapshot as StandbySnapshot
from .backup import StandbySnapshotRecording as StandbySnapshotRecording
from .consensus import APPEND_POSITION_FLAG_CATCHUP as APPEND_POSITION_FLAG_CATCHUP
from .consensus import APPEND_POSITION_FLAG_HELD as APPEND_POSITION_FLAG_HELD
from .consensus import APPEND_POSITION_FLAG_NO_VOTER as APPEND_POSITION_FLAG_NO_VOTER
from .consensus import APPEND_POSITION_FLAG_NONE as APPEND_POSITION_FLAG_NONE
from .consensus import APPEND_POSITION_FLAG_RELAYED as APPEND_POSITION_FLAG_RELAYED
from .consensus import CONSENSUS_MESSAGES as CONSENSUS_MESSAGES
from .consensus import AppendPosition as AppendPosition
from .consensus import CanvassPosition as CanvassPosition
from .consensus import CatchupPosition as CatchupPosition
from .consensus import CommitPosition as CommitPosition
from .consensus import NewLeadershipTerm as NewLeadershipTerm
from .consensus import RequestVote as RequestVote
from .consensus import StopCatchup as StopCatchup
from .consensus import TerminationAck as TerminationAck
from .consensus import TerminationPosition as TerminationPosition
from .consensus import Vote as Vote
from .control import CancelTimer as CancelTimer
from .control import CloseSession as CloseSession
from .control import ClusterMemberElement as ClusterMemberElement
from .control import ClusterMembersExtendedResponse as ClusterMembersExtendedResponse
from .control import ClusterMembersQuery as ClusterMembersQuery
from .control import ClusterMembersResponse as ClusterMembersResponse
from .control import JoinLog as JoinLog
from .control import RemoveMember as RemoveMember
from .control import RequestServiceAck as RequestServiceAck
from .control import ScheduleTimer as ScheduleTimer
from .control import ServiceAck as ServiceAck
from .control import ServiceTerminationPosition as ServiceTerminationPosition
from .mark import ClusterComponentType as ClusterComponentType
from .mark import MarkFileHeader as MarkFileHeader
from .nodestate import NODE_STATE_RECORDS as NODE_STATE_RECORDS
from .nodestate import CandidateTerm as CandidateTerm
from .nodestate import NodeStateClusterMembers as NodeStateClusterMembers
from .nodestate import NodeStateFooter as NodeStateFooter
from .nodestate import NodeStateHeader as NodeStateHeader
from .nodestate import NodeStateMessage as NodeStateMessage
from .snapshot import CONSENSUS_MODULE_SNAPSHOT_MESSAGES as CONSENSUS_MODULE_SNAPSHOT_MESSAGES
from .snapshot import CONSENSUS_MODULE_SNAPSHOT_TYPE_ID as CONSENSUS_MODULE_SNAPSHOT_TYPE_ID
from .snapshot import SERVICE_SNAPSHOT_MESSAGES as SERVICE_SNAPSHOT_MESSAGES
from .snapshot import SERVICE_SNAPSHOT_TYPE_ID as SERVICE_SNAPSHOT_TYPE_ID
from .snapshot import ClientSessionSnapshot as ClientSessionSnapshot
from .snapshot import ClusterMembers as ClusterMembers
from .snapshot import ClusterSessionSnapshot as ClusterSessionSnapshot
from .snapshot import ConsensusModuleSnapshot as ConsensusModuleSnapshot
from .snapshot import PendingMessageTracker as PendingMessageTracker
from .snapshot import Timer as Timer
