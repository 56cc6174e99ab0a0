"""The state that all parts of the consensus module share: configuration, log positions, members, effects.

Elections and terms are separate objects, which own what exists only in them (`phase`); this is what outlives them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from ...service_api import Role, invariant
from ...service_api.authenticator import AcceptAll, Authenticator
from ...service_api.authorisation import AuthorisationService, DefaultAuthorisation
from ...service_api.cluster_id import NULL_CLUSTER_ID, ClusterId
from ...service_api.groups.group import ONLY_GROUP, Group
from ...service_api.types import (
    NULL_POSITION,
    NULL_TERM_ID,
    MemberId,
    RecordingId,
    TermId,
    TimeUnit,
)
from ...service_api.wire.checksum import ChecksumKind
from ...service_api.wire.log.code_digest import UNKNOWN_CODE
from ...service_api.wire.message import Message
from ..messages.consensus import CanvassPosition
from .effects import CommitAdvanced, Effect, PersistCandidateTerm, PersistRecordingLog, ReluctanceNoted, SendToMember
from .events import FeatureLevelSaid, LinkChanged, SeedAnnounced
from .log.log_buffer import LogBuffer
from .log.log_comparison import LogDifference
from .log.log_copies import LogCopies
from .log.log_source import SourceChoice
from .log.recording_log import RecordingLog
from .log.retention import KEEP_ALL, RetentionPolicy
from .vocabulary.cluster_clock import ClusterClock
from .vocabulary.configuration import MemberKind
from .vocabulary.feature_levels import NO_FEATURES, FeatureLevels
from .vocabulary.held_entry import HeldEntry
from .vocabulary.members import (
    NO_LEVEL,
    ClusterMember,
    KnownLevel,
    compare_log,
    is_active,
    is_empty_log,
    quorum_threshold,
    voter_threshold,
)
from .vocabulary.reason import Reason
from .vocabulary.reason import ReasonKind as K
from .vocabulary.reluctance import Reluctance
from .vocabulary.roster import Roster
from .vocabulary.snapshot_policy import ON_REQUEST_ONLY, SnapshotPolicy
from .vocabulary.terms import LAST_TERM_ID, TERM_LEAP_LIMIT, first_vouched_term_id

PROTOCOL_VERSION = 1 << 16
"""Version of the consensus protocol, major.minor.patch in three bytes. Source: seed 001, `protocolVersion=65536`."""

SLOW_DELIVERY_NS = 10_000_000
"""A service that needs this long for one go of delivery is slow. A busy machine makes quick ones wait for 8 ms."""

SLOW_SERVICE_NS = 10_000_000_000
"""How near to each other two such deliveries are of a service that counts as slow, and how long it does after them.

One by itself may be the machine's: where the leader lost its processor for 10 ms once in a minute, each commit of that
minute cost two more messages and two more wake-ups.
"""


@dataclass(slots=True, frozen=True, kw_only=True)
class ConsensusConfig:
    """What the core needs of the configuration. Times in nanoseconds, lengths in bytes."""

    member_id: MemberId
    catchup_endpoint: str
    startup_canvass_timeout_ns: int
    election_timeout_ns: int
    election_status_interval_ns: int
    leader_heartbeat_timeout_ns: int
    leader_heartbeat_interval_ns: int
    session_timeout_ns: int
    session_limit: int
    client_session_limit: int = 10_000
    """The most sessions of one principal, or of one address where clients have no principal."""
    connection_session_limit: int = 10_000
    """The most sessions that one connection may hold."""
    termination_timeout_ns: int = 10_000_000_000
    """How long a leader that stops with its cluster waits for the followers, once its own part is done."""
    service_count: int = 1
    refused_ingress: int = 0
    """What no service has a callback for, or a setting refuses, as in `SessionLimits`: it never enters the log."""
    aeron_messages_only: bool = False
    """Whether what an Aeron member would misread is kept out of the log; the same on every member."""
    shared_timer_ids: bool = False
    """Whether services share the ids of timers, and each is told of every timer; the same on every member."""
    service_queue_limit_bytes: int = 64 << 20
    """What one service may have offered and not delivered; the same on every member."""
    initial_term_id: int = 0
    term_length_bytes: int
    mtu_length_bytes: int
    checksums: bool
    checksum_kind: ChecksumKind = ChecksumKind.CRC32
    ingress_window_bytes: int
    """Services' messages are appended while no more than this is appended and not committed."""
    catchup_near_bytes: int
    """A follower in catch-up joins the live log when it is this close to its end; less than the leader retains."""
    retention: RetentionPolicy = KEEP_ALL
    snapshot_policy: SnapshotPolicy = ON_REQUEST_ONLY
    app_version: int = 1
    known_level: KnownLevel = NO_LEVEL
    """The highest feature level that the services know."""
    code_digest: int = UNKNOWN_CODE
    """Names the code of the services, as `service.service_code` computes it."""
    stops_when_diverged: bool = True
    """Whether this member stops where its digests differ from those of a majority."""
    leader_priority: int = 0
    """A member with a higher one gets leadership from one with a lower one, once it is fit for it. See `transfer`."""
    group: Group = ONLY_GROUP
    """Which of the cluster's groups this member is in, by its settings; the same on every member."""
    log_source_id: MemberId | None = None
    """The member that this one, while it is a standby, takes the log from; None: the leader. See `log_source`."""
    clock_skew_limit_ns: int = 1_000_000_000
    """From here on a clock is off."""
    sync_slow_ns: int = 100_000_000
    """From here on a sync is slow."""
    slow_disk_hand_over: bool = True
    """True if a leader with a slow disk hands over to a member with a clearly faster one. See `transfer`."""


@dataclass(slots=True, kw_only=True)
class ConsensusContext:
    """The shared state of one member's consensus module.

    Invariant: `commit_position <= append_position <= log_buffer.append_position`.
    """

    config: ConsensusConfig
    random: Callable[[], float]
    recording_log: RecordingLog
    log_recording_id: RecordingId
    log_buffer: LogBuffer
    roster: Roster
    """Who the members are."""
    log_copies: LogCopies = field(default_factory=LogCopies)
    """Which ranges of this member's log are copies, on disk here."""
    told_copies: dict[MemberId, LogCopies] = field(default_factory=dict)
    """The same of other members, as each said last."""
    authenticator: Authenticator = field(default_factory=AcceptAll)
    """Who may open a session; it never raises."""
    authorisation: AuthorisationService = field(default_factory=DefaultAuthorisation)
    """Who may make requests; it never raises. Members may answer differently: what comes of it needs a log entry."""

    append_position: int
    """How far the local log recording is durable."""
    commit_position: int = 0
    """How far the log is known to be committed and recorded here; delivery never passes it."""
    notified_commit_position: int = 0
    """The highest commit position heard from a leader; it never goes backwards."""
    leadership_term_id: TermId = NULL_TERM_ID
    """The leadership term this member believes in."""
    log_leadership_term_id: TermId = NULL_TERM_ID
    """The term of the last entry in the local log, by the recording log."""
    candidate_term_id: TermId = NULL_TERM_ID
    """The highest term this member ever voted or stood in; durable once it is a voter."""
    is_voter: bool = True
    """Whether a candidate term is on disk, and with it the right to vote and to stand. See `election`.

    Without a candidate term it is none, and neither where it has lost the log that it voted with.
    """
    _voter_beyond_position: int | None = None
    """Follower without a vote: it gets that once more than this is committed here. See `await_vote_beyond`."""
    is_cluster_formed: bool = False
    """Whether this process has heard of another's log that is not empty: then an empty one here may be a lost one."""
    seeded_member_ids: set[MemberId] = field(default_factory=set)
    """The members that have said that their log begins with the state of a snapshot."""
    vote_given: tuple[TermId, MemberId] | None = None
    """The last vote of this process, and in which term: to be repeated, never changed. A restart forgets for whom."""
    leader_of_term: tuple[TermId, MemberId] | None = None
    """The newest term that this process was in, and its leader: no other member leads that one. A restart forgets."""
    term_code_digest: int = UNKNOWN_CODE
    """Of the code that the leader of the newest delivered term ran."""
    feature_levels: FeatureLevels = NO_FEATURES
    """What is in force behind the newest delivered entry."""
    commit_publish_pending_since_ns: int | None = None
    """Leader: since when the followers could have been told of a higher commit position; None while they know it."""
    slow_delivery_until_ns: int = 0
    """Leader: until when the service counts as slow, see `note_delivery`."""
    last_slow_delivery_ns: int | None = None
    """Leader: when the last slow delivery ended."""
    term_base_log_position: int = 0
    leader_member_id: MemberId | None = None
    log_source_id: MemberId | None = None
    """Whom this member takes the log of the leader from: mostly from the leader; None while it follows nobody."""
    log_source: SourceChoice = field(init=False)
    log_session_id: int = 0
    cluster_id: ClusterId = NULL_CLUSTER_ID
    """Which cluster this member belongs to, on disk here; once known it never changes. See `cluster_identity`."""
    whole_cluster_id: ClusterId = NULL_CLUSTER_ID
    """The cluster that this member's group is one of, as settings or a certificate name it; who means it means every
    group. `NULL_CLUSTER_ID` where nothing does, and without groups."""
    role: Role = Role.FOLLOWER
    cluster_clock: ClusterClock = field(default_factory=ClusterClock)
    """Cluster time, and the unit of every time in the log."""
    ask_condition: Callable[[MemberId], None] = lambda member_id: None
    """Asks a member how it is, now. See `conditions`."""
    vouched_term_id: int = field(init=False)
    """The highest term that this member stood in, or that a member vouches for. See `terms`."""
    delivered_time: Callable[[], int] = lambda: 0
    """The cluster time of the newest entry that the service was given; a follower counts on from it."""
    time_of_last_leader_ns: int = -(1 << 62)
    """When a leader was heard last; long ago, until one is."""
    is_spare: bool = False
    """Follower, in a term: whether a majority is had without it, as far as it can see; then its syncs may come late."""

    sync_ns: int | None = None
    """How long a sync of this member's disk takes now; None while next to nothing is synced."""
    reluctance: dict[Reluctance, str] = field(default_factory=dict)
    """Why this member would rather not lead, with the facts as one line; empty if it is willing."""
    held: HeldEntry | LogDifference | None = None
    """The entry, or the range in which members' logs differ, before which delivery stands still, or will: this member
    leads only while no other can."""
    is_comparing: bool = False
    """True where the log is compared with others' before anything more is delivered: the state may be wrong."""
    skipped_entries: dict[int, int] = field(default_factory=dict)
    """Entries that an operator has skipped and this member knows of, by where they end: where the entry ends that has
    them skipped."""

    now_ns: int = 0
    timestamp: int = 0
    """Monotonic time, and epoch time in milliseconds, of the turn that runs."""
    effects: list[Effect] = field(default_factory=list)
    link_listeners: list[Callable[[LinkChanged], None]] = field(default_factory=list)
    """Told of every link that comes up or goes down, in whatever phase."""

    def __post_init__(self) -> None:
        has_stood = self.candidate_term_id > NULL_TERM_ID
        self.is_voter = self.is_voter and has_stood
        self.is_cluster_formed = has_stood and not self.is_voter  # what it has lost was a log of it
        self.log_source = SourceChoice(self.config.log_source_id)
        self.vouched_term_id = first_vouched_term_id(self.log_leadership_term_id, self.candidate_term_id)

    @property
    def is_removed(self) -> bool:
        """Whether this member is none any more by its own log, and knows that to be committed."""
        current = self.roster.current
        return current.log_position <= self.commit_position and current.find(self.config.member_id) is None

    @property
    def is_log_empty(self) -> bool:
        """Whether this member holds nothing: no entry, and no mark of a term."""
        return is_empty_log(self.log_leadership_term_id, self.append_position)

    @property
    def is_barred(self) -> bool:
        """Whether this member neither votes nor stands: it may have forgotten what it acknowledged, and how it voted.

        That is so of a member without a candidate term on disk, once anything says that its cluster has formed: its own
        log, another's, or members that a log names which this one does not reach. What this log says of the members is
        nothing to go by then: a copy may end where this member was the only one.
        """
        if self.is_voter:
            return False
        return self.is_cluster_formed or not self.is_log_empty or self.roster.latest is not self.roster.current

    @property
    def lacks_seed(self) -> bool:
        """Whether the cluster's log begins with the state of a snapshot that this member, whose log is empty, has not.

        The log alone would give another state. Such a member follows nobody, nor votes, before it has that snapshot.
        """
        return bool(self.seeded_member_ids) and self.is_log_empty and not self.recording_log.is_seeded

    @property
    def newest_snapshot_position(self) -> int:
        """Where this member's newest complete snapshot was taken; -1 if it has none."""
        newest = self.recording_log.latest_snapshots(self.config.service_count)
        return newest[0].log_position if newest else NULL_POSITION

    @property
    def log_purge_limit(self) -> int | None:
        """A witness keeps the log from here on, whatever else it needs; None of any other member.

        From the newest snapshot on that every member that can lead has. A member that lacks the end of the log may get
        it from the witness alone, which has no snapshot of a service to give.
        """
        if not self.roster.is_witness:
            return None
        able = [one for one in self.voting_members if self.roster.can_lead(one.member_id)]
        return max(0, min((one.snapshot_position for one in able), default=0))

    @property
    def snapshot_needed_after(self) -> int:
        """A snapshot is of use if it is beyond this position; of any position to a member that lacks the seed."""
        return NULL_POSITION if self.lacks_seed else self.append_position

    @property
    def members(self) -> Mapping[MemberId, ClusterMember]:
        """Every member that is spoken to, and this one, whether they count or not."""
        return self.roster.members

    @property
    def me(self) -> ClusterMember:
        """This member's own record."""
        return self.roster.me

    @property
    def voting_members(self) -> Collection[ClusterMember]:
        """The members whose votes and positions make a majority."""
        return self.roster.voting_members

    @property
    def others(self) -> Collection[ClusterMember]:
        """Every other member, in order of id."""
        return self.roster.others

    def is_majority(self, count: int) -> bool:
        """Whether so many voting members are a majority."""
        return count >= quorum_threshold(len(self.voting_members))

    def count_active_members(self) -> int:
        """Count the voting members that have reported a position within the heartbeat timeout, and this member.

        Members without a vote count only beside enough voters to commit with them.
        """
        timeout_ns = self.config.leader_heartbeat_timeout_ns
        active = [one for one in self.voting_members if one is self.me or is_active(one, self.now_ns, timeout_ns)]
        voter_count = sum(one.is_voter for one in active)
        return len(active) if voter_count >= voter_threshold(len(self.voting_members)) else voter_count

    def takes_part(self, member: ClusterMember) -> bool:
        """Whether another member takes part in this leader's term. A closed link tells that sooner than silence."""
        return (
            member.is_reachable
            and member.append_leadership_term_id == self.leadership_term_id
            and is_active(member, self.now_ns, self.config.leader_heartbeat_timeout_ns)
        )

    @property
    def ingress_endpoints(self) -> str:
        """All members' ingress endpoints as `id=host:port,...`: what clients are told."""
        return self.roster.ingress_endpoints

    def emit(self, effect: Effect) -> None:
        """Ask for an effect, after all those asked for before."""
        self.effects.append(effect)

    def send(self, member_id: MemberId, message: Message) -> None:
        """Ask for a message to one member."""
        self.effects.append(SendToMember(member_id, message))

    def broadcast(self, message: Message) -> None:
        """Ask for a message to every other member."""
        for member in self.others:
            self.effects.append(SendToMember(member.member_id, message))

    def take_pending_commit_position(self) -> int | None:
        """Leader: take the commit position to tell the followers of, together with the log; None if they know it."""
        if self.commit_publish_pending_since_ns is None:
            return None
        self.commit_publish_pending_since_ns = None
        return self.commit_position

    def note_delivery(self, begin_ns: int, end_ns: int) -> None:
        """Leader: take in how long one go of delivery took; after two slow ones the service counts as slow for a while.

        It tells its followers of a commit before it delivers itself then. Otherwise they hear of it only after its
        callback, and theirs come one after the other: clients wait for two callbacks in turn.
        """
        if end_ns - begin_ns < SLOW_DELIVERY_NS:
            return
        if self.last_slow_delivery_ns is not None and end_ns - self.last_slow_delivery_ns < SLOW_SERVICE_NS:
            self.slow_delivery_until_ns = end_ns + SLOW_SERVICE_NS
        self.last_slow_delivery_ns = end_ns

    @property
    def time_unit(self) -> TimeUnit:
        """The unit of every time in the log: what the log itself says; one that Aeron began goes on in its own."""
        return self.cluster_clock.time_unit

    @property
    def term_time(self) -> int:
        """The cluster time with which a term that begins now would begin, in the unit of the log."""
        return self.cluster_clock.expect(self.now_ns, self.timestamp)

    def stamp(self) -> int:
        """Return the time for a new log entry of this turn."""
        return self.cluster_clock.stamp(self.now_ns)

    def is_before_skip(self, position: int) -> bool:
        """Whether a position lies after an entry that is skipped, up to the entry that has it skipped.

        There the members that know of the skip and those that do not yet have different states, as an operator wants.
        """
        return any(skipped <= position <= skip for skipped, skip in self.skipped_entries.items())

    def note_reluctance(self, kind: Reluctance, detail: str | None) -> bool:
        """Note that this member has a reason to be reluctant to lead, or None: no longer. Returns whether it is new."""
        is_new = kind not in self.reluctance
        if detail is None:
            if not is_new:
                del self.reluctance[kind]
                self.emit(ReluctanceNoted(kind, None))
            return False
        self.reluctance[kind] = detail
        if is_new:
            self.emit(ReluctanceNoted(kind, detail))
        return is_new

    # --- what is heard of members, and what this one has

    def on_link_changed(self, event: LinkChanged) -> None:
        """The link to a member came up or went down."""
        member = self.members.get(event.member_id)
        if member is None:
            return  # it is no member any more
        member.is_reachable = event.is_up
        if not event.is_up:
            member.known_level = None
        for listen in self.link_listeners:
            listen(event)
        if event.is_up:
            self.log_source.on_link_up(event.member_id)
            self.ask_condition(event.member_id)

    def on_feature_level_said(self, event: FeatureLevelSaid) -> None:
        """A member has said what the code of its services can."""
        member = self.members.get(event.member_id)
        if member is not None:
            member.known_level = event.known_level

    def find_known_levels(self) -> dict[MemberId, KnownLevel | None]:
        """Find what each member that runs the services can; None of one that has not said so on a link that is up."""
        return {
            member.member_id: self.config.known_level
            if member.member_id == self.config.member_id
            else self.members[member.member_id].known_level
            for member in self.roster.current.members
            if member.kind is not MemberKind.WITNESS
        }

    def enter_feature_levels(self, levels: FeatureLevels, *, log_position: int) -> None:
        """Go by other levels from a position of the log on.

        Raises:
            ConfigurationError: the code here does not know them.
        """
        levels.check(self.config.known_level.feature_level, log_position=log_position)
        invariant(
            levels.feature_level >= self.feature_levels.feature_level,
            "a feature level never falls",
            before=self.feature_levels,
            levels=levels,
        )
        self.feature_levels = levels

    def note_seed(self, event: SeedAnnounced) -> None:
        """Note that a member's log is seeded: the cluster has formed, though no log need hold anything yet."""
        self.seeded_member_ids.add(event.member_id)
        self.is_cluster_formed = self.is_cluster_formed or self.lacks_seed

    def note_canvass(self, message: CanvassPosition) -> ClusterMember:
        """Note where a member's log ends, and whether it may vote. Returns the member."""
        member = self.members[MemberId(message.follower_member_id)]
        member.on_canvass(message.log_leadership_term_id, message.log_position)
        member.time_of_last_canvass_ns = self.now_ns
        member.is_voter = message.leadership_term_id > NULL_TERM_ID
        self.note_log(message.log_leadership_term_id, message.log_position)
        return member

    def note_log(self, log_leadership_term_id: int, log_position: int) -> None:
        """Note that there is a log: one that is not empty says that the cluster has formed."""
        if not is_empty_log(log_leadership_term_id, log_position):
            self.is_cluster_formed = True

    def note_own_log(self) -> None:
        """Bring up to date what this member counts itself with in a canvass or a ballot."""
        me = self.me
        me.log_leadership_term_id = self.log_leadership_term_id
        me.log_position = self.append_position
        me.is_voter = True  # without it, it stands for an empty log only

    def note_own_append(self) -> None:
        """Leader: bring up to date what it counts itself with in the quorum."""
        me = self.roster.members[self.roster.member_id]
        me.append_leadership_term_id = self.leadership_term_id
        me.append_position = self.append_position
        me.time_of_last_append_ns = self.now_ns

    def compare_log_with(self, log_leadership_term_id: int, log_position: int) -> int:
        """Compare this member's log with another's: positive when this one is newer."""
        return compare_log(self.log_leadership_term_id, self.append_position, log_leadership_term_id, log_position)

    def enter_term(self, leadership_term_id: TermId, leader_member_id: MemberId, log_session_id: int) -> None:
        """Take a member, which may be this one, for the leader of a term, and of no other member ever in that term."""
        self.leadership_term_id = leadership_term_id
        self.leader_member_id = leader_member_id
        self.leader_of_term = leadership_term_id, leader_member_id
        self.log_session_id = log_session_id

    def forget_leader(self) -> None:
        """Take no member for the leader, and the log from none."""
        self.leader_member_id = None
        self.log_source_id = None

    def note_leader(self, commit_position: int | None) -> None:
        """Follower: the leader is alive, and may have said how far the log is committed."""
        self.time_of_last_leader_ns = self.now_ns
        if commit_position is not None and commit_position > self.notified_commit_position:
            self.notified_commit_position = commit_position

    def advance_commit(self) -> None:
        """Follower: let what is recorded here and known to be committed be delivered."""
        position = min(self.notified_commit_position, self.append_position)
        if position > self.commit_position:
            self.commit_position = position
            self.emit(CommitAdvanced(position))
            if not self.is_voter:
                self._regain_vote()

    # --- where the log comes from

    @property
    def is_relayed(self) -> bool:
        """Whether the leader's log comes to this member from another one."""
        return self.log_source_id not in (None, self.leader_member_id)

    def choose_log_source(self, leader_member_id: MemberId) -> MemberId:
        """Choose the member to take the log from, as things are."""
        wanted_id, is_standby = self.log_source.wanted_member_id, self.roster.is_standby(self.config.member_id)
        wanted = self.members.get(wanted_id) if is_standby and wanted_id is not None else None
        term_id = self.leadership_term_id
        return self.log_source.choose(leader_member_id, wanted, leadership_term_id=term_id, now_ns=self.now_ns)

    # --- terms

    def vouch_for_term(self, term_id: int) -> None:
        """Note that a term is honest: this member stands in it, or another one that surely is itself says so."""
        if self.vouched_term_id < term_id <= LAST_TERM_ID:
            self.vouched_term_id = term_id

    @property
    def may_stand(self) -> bool:
        """Whether the term that this member would stand in is near one that is vouched for."""
        return self.candidate_term_id <= self.vouched_term_id + TERM_LEAP_LIMIT

    @property
    def vote_state_reason(self) -> Reason:
        """Why a member that may not stand may not."""
        return Reason(
            K.VOTE_STATE_UNUSABLE, candidate_term_id=self.candidate_term_id, vouched_term_id=self.vouched_term_id
        )

    def stand_in_next_term(self) -> None:
        """Raise the durable candidate term by one, to stand in it."""
        term_id = TermId(self.candidate_term_id + 1)
        self.vouch_for_term(term_id)
        self.propose_candidate_term(term_id)

    def propose_candidate_term(self, candidate_term_id: TermId) -> None:
        """Raise the durable candidate term, to vote or to stand in it; it never falls."""
        if candidate_term_id > self.candidate_term_id:
            self.candidate_term_id = candidate_term_id
            self.is_voter = True
            self.emit(PersistCandidateTerm(candidate_term_id, self.append_position, self.timestamp))

    def observe_candidate_term(self, candidate_term_id: TermId) -> None:
        """Take part in no older term from now on; in memory only, while this member is no voter."""
        if self.is_voter:
            self.propose_candidate_term(candidate_term_id)
        else:
            self.candidate_term_id = max(self.candidate_term_id, candidate_term_id)

    def await_vote_beyond(self, log_position: int) -> None:
        """Begin to follow a leader whose log ended at a position after this process began.

        A member without a vote gets it with the first commit beyond that position. Its reports count for nothing until
        then, so the others have committed that without it, and what it has forgotten does no harm any more:
        docs/election.md, "Voters".
        """
        self._voter_beyond_position = log_position

    def _regain_vote(self) -> None:
        """Make the candidate term durable: from now on this member votes, and must never forget it."""
        begin_position = self._voter_beyond_position
        if begin_position is not None and self.commit_position > begin_position:
            self.is_voter = True
            self.emit(PersistCandidateTerm(self.candidate_term_id, self.append_position, self.timestamp))

    def begin_log_term(self, leadership_term_id: TermId, term_base_log_position: int) -> None:
        """Record, durably, that the log goes on in this term from this position, back-filling failed terms as empty."""
        self.recording_log.ensure_coherent(
            recording_id=self.log_recording_id,
            leadership_term_id=leadership_term_id,
            term_base_log_position=term_base_log_position,
            log_position=NULL_POSITION,
            timestamp=self.term_time,
        )
        self.log_leadership_term_id = leadership_term_id
        self.emit(PersistRecordingLog())

    def drop_log_term(self) -> None:
        """Take back, durably, the mark of the last term; what the log holds is the term's before."""
        entry = self.recording_log.last_term()
        assert entry is not None
        self.recording_log.remove_entry(entry)
        last = self.recording_log.last_term()
        if last is not None:
            self.recording_log.commit_log_position(last.leadership_term_id, NULL_POSITION)
        self.log_leadership_term_id = NULL_TERM_ID if last is None else TermId(last.leadership_term_id)
        self.emit(PersistRecordingLog())
