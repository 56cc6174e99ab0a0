"""The events of the core: inputs other than messages of members.

Consensus messages come in as the message models themselves (`messages`); these are the rest. Plain slotted
dataclasses, compared in tests by `==`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...service_api.access.connection_purpose import Purpose
from ...service_api.access.identity import STRANGER, Caller
from ...service_api.access.permissions import Permission
from ...service_api.types import ClusterSessionId, CorrelationId, MemberId
from ...service_api.wire.session import AdminRequest, AdminRequestType, SessionConnectRequest
from ..messages.backup import StandbySnapshot
from ..messages.consensus import StopCatchup, TerminationPosition
from .vocabulary.configuration import Configuration
from .vocabulary.control_toggle import ControlToggle
from .vocabulary.member_change import MemberChange
from .vocabulary.members import KnownLevel
from .vocabulary.reluctance import Reluctance
from .vocabulary.session_selection import SessionSelection


@dataclass(slots=True)
class LeaderSaid:
    """A message that only the leader sends and that does not name it, with the member on whose link it came."""

    member_id: MemberId
    message: StopCatchup | TerminationPosition


@dataclass(slots=True)
class StandbySaid:
    """An offer of a standby, which does not name it, with the member on whose link it came."""

    member_id: MemberId
    message: StandbySnapshot


@dataclass(slots=True)
class LinkChanged:
    """The consensus link to a member came up or went down. Down is news: its process is probably gone."""

    member_id: MemberId
    is_up: bool


@dataclass(slots=True)
class ReluctanceChanged:
    """This member has a reason not to lead while another can; `detail` says it in one line, None that it is gone."""

    kind: Reluctance
    detail: str | None


@dataclass(slots=True)
class SyncsMeasured:
    """How long a sync of this member's disk takes now; None while next to nothing is synced."""

    typical_ns: int | None


@dataclass(slots=True)
class LogUnreadable:
    """Leader: its log cannot be read where a member needs it; `detail` says where, in one line."""

    member_id: MemberId
    position: int
    detail: str


@dataclass(slots=True)
class LogStopped:
    """Nothing writes to the log recording any more; it ends, durably, at `append_position`."""

    append_position: int


@dataclass(slots=True)
class LogTruncated:
    """The log recording was cut back, durably, to `append_position`."""

    append_position: int


@dataclass(slots=True)
class LogCommitted:
    """The leader says with its log how far that is committed, in a leadership term."""

    leadership_term_id: int
    log_position: int


@dataclass(slots=True)
class Recorded:
    """The log recording is durable up to `position`."""

    position: int
    committed: LogCommitted | None = None
    """What the leader said with the frames that were recorded: one event for both costs a follower half of two."""


@dataclass(slots=True)
class ReplayDone:
    """Everything up to `position` was delivered; `timestamp` is the newest log time met so far."""

    position: int
    timestamp: int


@dataclass(slots=True)
class ReplicationDone:
    """The copy of a leadership term from the leader's archive is durable up to `position`."""

    position: int


@dataclass(slots=True)
class BelowOldestSegment:
    """This log ends at `position`, and no member can serve anything older than `oldest_position` any more."""

    position: int
    oldest_position: int


@dataclass(slots=True)
class SeedAnnounced:
    """A member says that its log begins with the state of a snapshot."""

    member_id: MemberId


@dataclass(slots=True)
class SnapshotFetched:
    """Another member's snapshot at `log_position` is here, durably, and the log at that position."""

    log_position: int


@dataclass(slots=True)
class SnapshotFetchFailed:
    """No snapshot could be had from the member that was asked."""

    reason: str


@dataclass(slots=True)
class ActivityFailed:
    """Something that an election state waited for failed; `reason` says what and why."""

    reason: str


@dataclass(slots=True)
class LogJoined:
    """The leader's log link of this session was asked to flow from the append position on."""

    log_session_id: int


@dataclass(slots=True)
class LogImageClosed:
    """The joined log link closed: the leader is gone, or dropped this follower."""

    log_session_id: int
    reason: str


@dataclass(slots=True)
class CatchupImageAvailable:
    """The leader's catch-up replay is connected and begins at the append position."""

    log_session_id: int


@dataclass(slots=True)
class LiveJoined:
    """Leader: a follower's log link began to flow at `position`, with no gap from there on."""

    member_id: MemberId
    position: int


@dataclass(slots=True, frozen=True)
class AdminAsker:
    """A client that asks for an action over its session."""

    cluster_session_id: ClusterSessionId
    correlation_id: CorrelationId
    principal: bytes = b""
    """The session's."""
    caller: Caller = STRANGER
    """Who is at the other end of the connection that the request came on."""
    address: str = "-"
    request_type: AdminRequestType = AdminRequestType.SNAPSHOT

    @property
    def permission(self) -> Permission:
        """What it has to be allowed."""
        return Permission[self.request_type.name]

    @property
    def purpose(self) -> Purpose:
        """The endpoint that it came to."""
        return Purpose.INGRESS


@dataclass(slots=True)
class ActionRequested:
    """Somebody wants the cluster to do something; a tool's `asker`, a number, comes back with each step."""

    asker: int | AdminAsker | None
    """None: the leader itself, and nobody is told."""
    action: ControlToggle
    log_position: int | None = None
    """Of a SKIP_ENTRY: where the entry ends that is to be skipped."""
    change: MemberChange | None = None
    """Of a CHANGE_MEMBERS: how."""
    feature_level: int | None = None
    """Of a RAISE_FEATURE_LEVEL: to which; None: the highest that every member can."""
    sessions: SessionSelection | None = None
    """The sessions that a CLOSE_SESSIONS is to close."""
    reason: str = "requested"
    """Why, for the log line."""


@dataclass(slots=True)
class FeatureLevelSaid:
    """A member says, on the link that was dialled here, what the code of its services can."""

    member_id: MemberId
    known_level: KnownLevel


@dataclass(slots=True)
class MembersHeard:
    """A member says who the members are, by the newest configuration that it knows to be committed."""

    configuration: Configuration
    is_trusted: bool
    """True where it surely is a member: this one dialled it, or its certificate says so, and it is known."""
    is_rumour: bool = False
    """True where it shows a member's certificate, and nobody else calls it a member."""


@dataclass(slots=True)
class TransferRequested:
    """Another member is to lead; `asker` is as in `ActionRequested`."""

    asker: int | AdminAsker
    target_id: int | None
    """The member that is to lead; None: the one that fits best."""


@dataclass(slots=True)
class DeliveredTo:
    """Everything up to `position`, which was asked about, is delivered."""

    position: int


@dataclass(slots=True)
class SnapshotCaptured:
    """The state at `log_position` is set aside, and is recorded from there: it may change here."""

    log_position: int


@dataclass(slots=True)
class SnapshotTaken:
    """The snapshot at `log_position` is recorded, durably; the recordings are those of the services in order of id."""

    log_position: int
    service_recording_ids: tuple[int, ...]
    module_recording_id: int


@dataclass(slots=True)
class SnapshotFailed:
    """The snapshot at `log_position` was not recorded; what there is of it counts for nothing."""

    log_position: int
    reason: str


@dataclass(slots=True)
class StandbySnapshotFetched:
    """A standby's snapshot at `log_position` is copied here, durably, and read; recordings as in `SnapshotTaken`."""

    log_position: int
    service_recording_ids: tuple[int, ...]
    module_recording_id: int


@dataclass(slots=True)
class StandbySnapshotFetchFailed:
    """The snapshot of a standby could not be copied, or cannot be used."""

    reason: str


@dataclass(slots=True)
class SnapshotDigested:
    """What a service wrote to the snapshot at `log_position` has this digest; the module's part has service id -1."""

    log_position: int
    service_id: int
    digest: bytes


@dataclass(slots=True)
class ReadsWanted:
    """Somebody wants to read state as it is now or later; reads are numbered, and these go up to `through`."""

    through: int


@dataclass(slots=True)
class ClientConnect:
    """A client asks for a session on ingress connection `connection_id`."""

    connection_id: int
    request: SessionConnectRequest
    certified_principal: bytes = b""
    """Who it is by its certificate; empty where it has shown none that opens sessions."""
    address: str = "-"
    """Where the connection comes from, as `connection_gate.address_of` says it."""


@dataclass(slots=True)
class ClientChallengeResponse:
    """A client shows something: the answer to a challenge (negative session id), or its session's secret."""

    connection_id: int
    correlation_id: CorrelationId
    session_id: ClusterSessionId
    encoded_credentials: bytes
    certified_principal: bytes = b""
    """As in `ClientConnect`: a session that was opened with a certificate counts as shown only with one."""
    address: str = "-"
    """As in `ClientConnect`."""


@dataclass(slots=True)
class ClientKeepAlive:
    """A client is alive, and says which session it holds on this connection."""

    connection_id: int
    leadership_term_id: int
    cluster_session_id: ClusterSessionId


@dataclass(slots=True)
class ClientClose:
    """A client asks for its session to be closed."""

    connection_id: int
    leadership_term_id: int
    cluster_session_id: ClusterSessionId


@dataclass(slots=True)
class ClientAdmin:
    """A client asks for an action over its session."""

    connection_id: int
    request: AdminRequest
    caller: Caller = STRANGER
    address: str = "-"
    is_permitted: bool = False
    """Whether its role is enough, by the table of permissions; otherwise the authorisation service decides."""


@dataclass(slots=True)
class ClientStray:
    """A session message came that this connection may not send: unknown session or another term."""

    connection_id: int
    leadership_term_id: int
    cluster_session_id: ClusterSessionId


@dataclass(slots=True)
class ClientDisconnected:
    """An ingress connection is gone. Its session stays until it times out, so that the client can come back."""

    connection_id: int
