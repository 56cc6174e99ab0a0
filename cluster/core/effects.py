"""The effects of the core: what it wants done, as values, in order.

The agent performs effects in list order. A durable effect (`PersistCandidateTerm`, `PersistRecordingLog`) has reached
the disk before any effect after it is performed: that is how "persist, then send" is said. Effects that take long
(`StopLog`, `StartReplay`, ...) are begun, and their end comes back as an event.

Plain slotted dataclasses, frozen by convention (a frozen one costs four times as much to make) and compared by `==`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...service_api.types import NULL_VALUE, MemberId, RecordingId
from ...service_api.wire.message import Message
from ..messages.snapshot import ModuleMessage
from .events import AdminAsker
from .log.recording_log import RecordedSnapshot
from .vocabulary.configuration import Configuration
from .vocabulary.control_toggle import ActionStep
from .vocabulary.divergence import Divergence, FieldDifference
from .vocabulary.election_state import ElectionState
from .vocabulary.module_state import ModuleState
from .vocabulary.reason import Reason
from .vocabulary.reluctance import Reluctance


@dataclass(slots=True)
class SendToMember:
    """Send a consensus message; lost if the link is down, so every state repeats what matters."""

    member_id: MemberId
    message: Message


@dataclass(slots=True)
class SendToClient:
    """Send a session message on an ingress connection; `close_after` ends the connection once it is out."""

    connection_id: int
    message: Message
    close_after: bool = False


@dataclass(slots=True)
class BindIngress:
    """Accept messages of this session and term on this connection, and send its egress there."""

    connection_id: int
    cluster_session_id: int
    leadership_term_id: int


@dataclass(slots=True)
class UnbindIngress:
    """Stop taking messages of a session on this connection; of all on every one when `connection_id` is None."""

    connection_id: int | None
    cluster_session_id: int = NULL_VALUE


@dataclass(slots=True)
class MessageRefused:
    """A message that no member sends in good order came in a member's name: nothing is made of it. Only tells.

    `member_id` is None where the message names no sender; `fault` is what is wrong with it, as facts.
    """

    member_id: MemberId | None
    message: str
    fault: str


@dataclass(slots=True)
class ReluctanceNoted:
    """This member has a reason not to lead while another can, or `detail` is None: that reason is gone. Only tells."""

    kind: Reluctance
    detail: str | None


@dataclass(slots=True)
class PersistCandidateTerm:
    """Durable: this member takes part in no election of this term or an older one again; it is a voter."""

    candidate_term_id: int
    log_position: int
    timestamp: int


@dataclass(slots=True)
class PersistRecordingLog:
    """Durable: write what changed in the recording log."""


@dataclass(slots=True)
class StopLog:
    """Disconnect the log, in and out, end what copies or replays it, let writes settle. Ends with `LogStopped`."""


@dataclass(slots=True)
class TruncateLog:
    """Cut the log recording back to `position`, which is never below the commit position.

    Ends with `LogTruncated`.
    """

    position: int


@dataclass(slots=True)
class OpenLogPublication:
    """Begin to lead: connect a log link to every follower, for this log session, at the append position."""

    leadership_term_id: int
    log_session_id: int


@dataclass(slots=True)
class StartReplay:
    """Deliver the log up to `to_position`, from the archive where need be. Ends with `ReplayDone`."""

    to_position: int


@dataclass(slots=True)
class StartLogReplication:
    """Copy the log from the append position to `stop_position` out of the leader's archive, or first the source's.

    Ends with `ReplicationDone`.
    """

    leader_member_id: MemberId
    leader_recording_id: RecordingId
    stop_position: int
    source_id: MemberId
    """The leader, or another member that has the same log: if that one cannot give it, the leader is asked."""


@dataclass(slots=True)
class AcceptCatchup:
    """Take the catch-up replay of this log session at the append position when its source connects."""

    log_session_id: int
    source_id: MemberId
    """The leader, or the member that this one follows in its place."""


@dataclass(slots=True)
class FollowCatchup:
    """Take the catch-up replay for the live log from now on: its end will be told as that one's."""


@dataclass(slots=True)
class CloseCatchup:
    """Drop the catch-up link: the live log has taken over."""


@dataclass(slots=True)
class JoinLiveLog:
    """Ask the leader's log link of this session to flow from the append position on."""

    log_session_id: int


@dataclass(slots=True)
class StartCatchupReplay:
    """Leader or source: replay the log recording from `position` to a follower's catch-up endpoint, and its live end.

    To the endpoint that the members list names; what the follower says of that would send the log anywhere.
    """

    member_id: MemberId
    position: int
    log_session_id: int


@dataclass(slots=True)
class StopCatchupReplay:
    """Leader: end the catch-up replay to a follower, if one runs."""

    member_id: MemberId


@dataclass(slots=True)
class CommitAdvanced:
    """Everything up to `position` is committed and may be delivered."""

    position: int


@dataclass(slots=True)
class ReadConfirmed:
    """Reads up to the number `through` may be answered from any state that holds the log up to `log_position`.

    What lies above was acknowledged to nobody before `as_of_ns`, monotonic time; that stays true.
    """

    through: int
    log_position: int
    as_of_ns: int


@dataclass(slots=True)
class TakeSnapshot:
    """Record the state of service and module at `log_position`, where delivery stands still.

    Ends with `SnapshotTaken` or `SnapshotFailed`; `SnapshotCaptured` may come before. The messages were made at that
    position; the service's own follow those of its container.
    """

    log_position: int
    leadership_term_id: int
    timestamp: int
    service_messages: tuple[Message, ...]
    module_messages: tuple[ModuleMessage, ...]


@dataclass(slots=True)
class ResumeDelivery:
    """Deliver on after the snapshot action at which delivery stands still."""


@dataclass(slots=True)
class PurgeArchive:
    """Give the disk back what nobody needs: recordings of snapshots, and the log's segments below a position.

    What somebody reads just now may stay for a while.
    """

    recording_ids: tuple[int, ...]
    needed_log_position: int


@dataclass(slots=True)
class FetchSnapshot:
    """Get another member's newest snapshot, and the log at that position, durably, beside what is here.

    Ends with `SnapshotFetched` or `SnapshotFetchFailed`.
    """

    leader_member_id: MemberId


@dataclass(slots=True)
class FetchStandbySnapshot:
    """Copy the recordings of a standby's snapshot, durably, beside what is here. Nothing else uses them yet.

    Ends with `StandbySnapshotFetched` or `StandbySnapshotFetchFailed`.
    """

    member_id: MemberId
    snapshots: tuple[RecordedSnapshot, ...]


@dataclass(slots=True)
class StopSnapshotFetch:
    """Get no snapshot any more, and drop what has come of it."""


@dataclass(slots=True)
class InstallSnapshot:
    """Durable: put the fetched snapshot and log in the place of this member's own, and start again from them."""

    log_position: int


@dataclass(slots=True)
class ActionProgressed:
    """One step of an action, for the tool that asked for it."""

    request_id: int
    step: ActionStep
    log_position: int | None
    detail: str
    member_id: int | None
    """The follower that the step is about; None for the leader's own."""
    is_final: bool


@dataclass(slots=True)
class AdminProgressed:
    """A client's admin request begins, or has ended: what the audit trail says of it."""

    asker: AdminAsker
    step: ActionStep | None
    """None: it begins; REFUSED: this client may make none, or not now; others: how it ended."""
    log_position: int | None = None
    detail: str = ""


@dataclass(slots=True)
class TransferNoted:
    """A hand-over to a member came a step further: one log line. `why` is what it is for."""

    target_id: MemberId
    step: ActionStep
    log_position: int
    why: str
    detail: str


@dataclass(slots=True)
class ModuleStateChanged:
    """What the consensus module does changed: one log line."""

    old: ModuleState
    new: ModuleState
    reason: str
    leadership_term_id: int


@dataclass(slots=True)
class HoldIngress:
    """Read no client, or read them again."""

    is_held: bool


@dataclass(slots=True)
class AwaitDelivery:
    """Post `DeliveredTo` once everything up to a position is delivered."""

    position: int


@dataclass(slots=True)
class Terminate:
    """Stop this node in order: the cluster stops."""

    log_position: int
    reason: str


@dataclass(slots=True)
class RosterChanged:
    """Who is spoken to has changed, or where: dial the members that the roster names now, and no others."""


@dataclass(slots=True)
class ConfigurationCommitted:
    """The members are these from now on, under any leader."""

    configuration: Configuration


@dataclass(slots=True)
class MemberRemoved:
    """This member is none any more; `Terminate` follows."""

    reason: str


@dataclass(slots=True)
class StateChanged:
    """The election moved from one state to another; `reason` and the positions tell why."""

    old: ElectionState
    new: ElectionState
    reason: Reason
    leadership_term_id: int
    append_position: int
    commit_position: int


@dataclass(slots=True)
class ElectionStarted:
    """This member entered an election."""

    reason: Reason


@dataclass(slots=True)
class VoteRefused:
    """This member voted no; or said nothing, where its vote is nobody's concern."""

    candidate_member_id: MemberId
    candidate_term_id: int
    reason: Reason


@dataclass(slots=True)
class NominationRefused:
    """This member does not nominate itself, though those who answered its canvass are enough and hold no newer log."""

    reason: Reason


@dataclass(slots=True)
class LeaderRefused:
    """This member does not follow a leader that announced itself."""

    leader_member_id: MemberId
    leadership_term_id: int
    reason: Reason


@dataclass(slots=True)
class ElectionClosed:
    """The election is over: who leads, and which term."""

    leadership_term_id: int
    leader_member_id: MemberId
    log_position: int


@dataclass(slots=True)
class SessionChanged:
    """A client session was opened or closed, or could not be: one log line."""

    event: str
    cluster_session_id: int
    reason: str


@dataclass(slots=True)
class SessionsRevoked:
    """Leader: sessions end because their principal may have none any more: the audit trail says so."""

    encoded_principal: bytes
    cluster_session_ids: tuple[int, ...]
    addresses: tuple[str, ...]
    """The addresses that they were opened from, where this member knows them."""
    reason: str


@dataclass(slots=True)
class ServiceDiverged:
    """The log delivered another message of a service than this member's service had offered: one log line."""

    service_id: int
    detail: str


@dataclass(slots=True)
class DigestsDiffered:
    """Digests of members differ; `is_stopping` where this member is of a minority, and stops because of it."""

    divergence: Divergence
    is_stopping: bool


@dataclass(slots=True)
class DivergenceMended:
    """Members that differed were started again, and agree: one log line."""

    divergence: Divergence


@dataclass(slots=True)
class FieldDiffered:
    """A field of a service's state differs from that of a member with other code: one log line."""

    difference: FieldDifference


Effect = (
    SendToMember
    | SendToClient
    | BindIngress
    | UnbindIngress
    | PersistCandidateTerm
    | PersistRecordingLog
    | StopLog
    | TruncateLog
    | OpenLogPublication
    | StartReplay
    | StartLogReplication
    | AcceptCatchup
    | FollowCatchup
    | CloseCatchup
    | JoinLiveLog
    | StartCatchupReplay
    | StopCatchupReplay
    | CommitAdvanced
    | ReadConfirmed
    | TakeSnapshot
    | ResumeDelivery
    | ActionProgressed
    | AdminProgressed
    | TransferNoted
    | ModuleStateChanged
    | HoldIngress
    | AwaitDelivery
    | Terminate
    | RosterChanged
    | ConfigurationCommitted
    | MemberRemoved
    | PurgeArchive
    | FetchSnapshot
    | FetchStandbySnapshot
    | StopSnapshotFetch
    | InstallSnapshot
    | StateChanged
    | ElectionStarted
    | VoteRefused
    | MessageRefused
    | ReluctanceNoted
    | NominationRefused
    | LeaderRefused
    | ElectionClosed
    | SessionChanged
    | SessionsRevoked
    | ServiceDiverged
    | DigestsDiffered
    | DivergenceMended
    | FieldDiffered
)
"""Everything the core can ask for."""
