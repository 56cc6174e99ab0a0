"""What a member says about itself when it is asked: one document, which `trimaran status` and Spark's streams read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final, Protocol, TypeVar

from pydantic import Field

from .document import (
    ClusterIdLine,
    Count,
    Document,
    DocumentPart,
    Id,
    Line,
    Position,
    Rate,
    RoleName,
    Seconds,
)

STATUS_LENGTH_LIMIT_BYTES: Final = 65536
"""The longest frame that is taken for a status; a real one has about 600 bytes."""


class ElectionStatus(DocumentPart):
    """The newest election of a member: the one that goes on, or the last one that was closed."""

    reason: Line
    """Why it began, as a sentence."""
    reason_kind: Line
    """The same to count and filter by, such as `leader_link_closed`."""
    age_s: Seconds
    """Seconds since it was closed; while it goes on, since it began."""
    duration_s: Seconds | None
    """How long it took; None while it goes on."""
    leadership_term_id: Id | None
    """The leadership term that came of it; None while it goes on."""
    refusal: Line | None = None
    """Why the member does not stand for leader in it, as it said last; None if it may, and once it is closed."""


class SnapshotFetchStatus(DocumentPart):
    """A snapshot on its way to a member from another one."""

    leader_member_id: Id
    """Whom it comes from."""
    log_position: Position
    """Where it was taken; 0 until that is known."""
    copied_bytes: Count
    length_bytes: Count
    """All there is to copy, the log around it included; 0 until that is known."""


class MemberClock(DocumentPart):
    """The clock of another member, compared with that of the one that answers."""

    member_id: Id
    difference_s: float
    """What it says more, in seconds."""
    error_s: Seconds
    """How far from that the true difference may be."""


class ClockStatus(DocumentPart):
    """Whether a member's clock agrees with the others'."""

    majority_difference_s: float | None
    """What the majority's clock says more than its own, in seconds; None where no majority is known to agree."""
    cluster_time_ahead_s: float
    """How far cluster time, as it knows it, is ahead of the time of day; 0 but on a leader."""
    problem: Line | None
    """What is wrong, as a sentence: it is far from the majority, or clocks differ and no majority says which is off."""
    members: list[MemberClock]


class ReluctanceStatus(DocumentPart):
    """One reason for which a member would rather not lead."""

    kind: Line
    """To count and filter by, such as `clock_off`."""
    detail: Line


class DifferingMember(DocumentPart):
    """Another member that is not heard, because its settings differ."""

    member_id: Id
    detail: Line
    """Which settings, with both values."""


class HeldStatus(DocumentPart):
    """The entry of the log before which a member stands still, because its service fails there."""

    log_position: Position
    """Where the entry ends."""
    callback: Line
    """The callback of the service that failed, such as `on_request`."""
    failure: Line
    """What it raised."""


class DamagedPlaceStatus(DocumentPart):
    """A place in a member's archive that could not be read."""

    recording_id: Id
    position: Position
    file: Line
    """The segment file in its directory `archive`."""
    reason: Line
    lost: Line | None = None
    """Why no member can give what belongs there; None while that is not known."""


class ScrubStatus(DocumentPart):
    """What a member does to find and mend damage; the counts are since its process began."""

    is_running: bool
    recording_id: Id | None
    """The recording that the scrub is reading; None between passes."""
    position: Position
    """Up to where it has read that one."""
    read_bytes: Count
    """What it has read in this pass, or in the last one."""
    pass_count: Count
    """How often it has read everything."""
    last_pass_s: Seconds | None
    """How long ago the last pass came to its end; None: there was none."""
    found_count: Count
    """Damaged places that it has found."""
    mended_count: Count
    """Damaged places that were mended, no matter which read found them."""
    mended_bytes: Count


class ColdStorageStatus(DocumentPart):
    """How well a member's log goes to cold storage."""

    pending_bytes: Count
    """What is to leave its disk, and is not in the store."""
    shipped_count: Count
    """Segments, since its process began."""
    failing_s: Seconds | None
    """For how long each attempt has failed; None if the last one went well."""
    failure: Line | None
    """Why the last attempt failed."""
    catchup_start_position: Position
    """From where on a member that comes back gets the log, and not a snapshot."""


class DivergenceStatus(DocumentPart):
    """Members whose services came to different things from one log."""

    kind: Line
    """What differs: `state`, `outputs` or `snapshot`."""
    service_id: int
    """-1 for all services together, and for the consensus module."""
    log_position: Position
    """The first position at which that was seen."""
    member_ids: list[Id]
    """The members that differ from a majority; without one, all that differ."""
    has_majority: bool
    """Whether a majority of the members agrees."""
    detail: Line
    """What each member found there."""


class StateDifferenceStatus(DocumentPart):
    """A field of a service's state in which this member differs from members whose code is another."""

    service_id: Id
    field: Line
    """The name of the field; `state_hash` for all that the method of that name returns, where it has no fields."""
    log_position: Position
    """The first position at which that was seen."""
    member_ids: list[Id]
    """The members that differ from the one that answers."""
    detail: Line
    """What each member has there."""


class LogDifferenceStatus(DocumentPart):
    """A range of the log in which the members' recordings differ, and nobody can say whose bytes are valid."""

    position: Position
    stop_position: Position
    file: Line
    """The segment file of the member that answers."""
    groups: list[list[Id]]
    """The members, those with the same bytes together."""


class ConfiguredMemberStatus(DocumentPart):
    """A member of the cluster, by the newest configuration that the member that answers goes by."""

    member_id: Id
    kind: Line
    """`voter`, `learner`, `witness` or `standby`."""
    consensus: Line
    """Where the member that answers dials its consensus endpoint."""


class StandbyStatus(DocumentPart):
    """A standby, as the member that answers knows it."""

    member_id: Id
    snapshot_position: Position | None
    """Where the newest snapshot was taken that it has offered; None before the first, since this member started."""
    snapshot_age_s: Seconds | None
    """How old that is, by the clock of the member that answers."""
    is_copying: bool
    """Whether the member that answers copies it now."""
    takes_part: bool = True
    """True if the member that answers has heard from it in its term, or does not lead."""


class ServiceErrorsStatus(DocumentPart):
    """The exceptions of a member's service callbacks: answers that are the same on every member."""

    count: Count
    """Since its process began, entries that it replayed included."""
    newest: Line
    """The service and the exception."""
    log_position: Position
    """Where the entry ends at which that was raised."""
    age_s: Seconds


class SyncStatus(DocumentPart):
    """How long the syncs of a member's archive take: the newest 1,000 of the last minute."""

    count: Count
    slow_count: Count
    """Those that took `sync_slow_ms` or longer, one that still runs included."""
    slow_s: Seconds
    """That setting of the member."""
    p99_s: Seconds
    max_s: Seconds


class CertificateStatus(DocumentPart):
    """The certificate of a member that expires first, of those that it works with."""

    file: Line
    subject: Line
    expires_at_ms: int
    """Milliseconds since the Unix epoch."""
    expires_in_s: float
    """By the clock of the member; negative once it has expired."""


class MemberStatus(Document):
    """One member's state at the moment it was asked. Positions are bytes in the log."""

    KIND: ClassVar[str] = "status"

    member_id: Id
    cluster_id: ClusterIdLine | None = None
    """The cluster that it belongs to; None while it does not know."""
    group: Line = ""
    """Which of the cluster's groups it is in, as `index/count`; empty: the cluster has no groups."""
    version: Line
    """The version of Trimaran it runs."""
    commit: Line | None = None
    """The commit of that version; a `+` behind it: with changes. None if it is not known."""
    code: Line | None = None
    """Digest of its services' source; None without source."""
    pid: Id
    uptime_s: Seconds
    role: RoleName
    state: Line
    """`LEADER` or `FOLLOWER` in a leadership term, the election state (`CANVASS`, ...) in an election.

    `STARTING` before the first election. Whether a member leads is read from this and not from `role`: see `leads`.
    """
    module_state: Line = "ACTIVE"
    """What its consensus module does: `ACTIVE`, `SUSPENDED`, `SNAPSHOT`, `TERMINATING`, ..."""
    control_toggle: Line = "INACTIVE"
    """The action that is under way, `NEUTRAL` if none is; `INACTIVE` but on the leader."""
    leader_member_id: Id | None
    """The leader it leads as or follows; None while it knows of none."""
    leadership_term_id: Id | None
    """The newest leadership term it takes part in; None before the first."""
    configuration_position: Position = 0
    """Where the log entry ends that says who the members are; 0 while settings say so."""
    members: list[ConfiguredMemberStatus] = Field(default_factory=list)
    """Who the members are by that entry, in order of their ids; empty of an older member, which does not say."""
    append_position: Position
    """How far its own recording of the log is durable."""
    commit_position: Position
    """How far it knows the log to be committed, and has recorded it."""
    delivered_position: Position
    """How far its service has been given the log."""
    has_vote: bool = True
    """The right to vote and to be counted. False of a member that came with an empty directory, for a moment: until
    the others have committed an entry without it."""
    barred: Line | None = None
    """Why it neither votes nor stands, while its cluster has a log that it may have forgotten; None if it may."""
    snapshot_position: Position | None = None
    """Where its newest complete snapshot was taken; None if it has none."""
    snapshot_length_bytes: Count | None = None
    """How long its services' recordings of that are; None if it has none."""
    snapshotless_services: list[str] = Field(default_factory=list)
    """Its services that have no `on_take_snapshot`: no snapshot is ever taken."""
    log_after_snapshot_bytes: Count = 0
    """How much committed log there is after its newest snapshot; without one, in all."""
    log_after_snapshot_s: Seconds | None = None
    """How long ago its newest snapshot was taken; without one, since the first term of the log; None before that."""
    stalled_s: Seconds | None = None
    """How long it has got no further: with the delivery of what is committed, or in an election with a replay or copy.

    None while it has nothing to do. It looks at its positions once a second, and whenever it is asked.
    """
    log_recording_id: Id | None = None
    """The recording of its archive that is its log."""
    log_copies: str = Field(default="", max_length=4_000)
    """Which ranges of its log are copies, and of whose disks: `begin-end:members`, several with spaces."""
    damaged_places: list[DamagedPlaceStatus] = Field(default_factory=list)
    """Where its archive could not be read since its process began: the first few."""
    damaged_place_count: Count = 0
    """How many there are in all, as far as they are told apart."""
    scrub: ScrubStatus | None = None
    """The search for damage; None from an older member."""
    differing_members: list[DifferingMember] = Field(default_factory=list)
    """Members that it does not hear, because their settings differ from its own."""
    divergences: list[DivergenceStatus] = Field(default_factory=list)
    """In what services of members differ, as far as this member has compared their digests with its own."""
    state_differences: list[StateDifferenceStatus] = Field(default_factory=list)
    """The fields in which it differs from members with other code, as far as their digests were compared."""
    message_divergence_count: Count = 0
    """How often the log held another message of a service than this member's service had offered."""
    query_change: Line | None = None
    """The last query that changed the state of its service; None without one, and where queries are not checked."""
    snapshot_fetch: SnapshotFetchStatus | None = None
    """None unless it gets a snapshot from another member, because its own log begins too early."""
    standbys: list[StandbyStatus] = Field(default_factory=list)
    """The standbys of the cluster, and what they have offered this member."""
    log_source_id: Id | None = None
    """Which member its log comes from, the leader or another one; None of a leader, and of one that follows nobody."""
    held: HeldStatus | None = None
    """None unless it stands still before an entry that its service cannot take; then it delivers nothing."""
    log_difference: LogDifferenceStatus | None = None
    """None unless it stands still before a range of the log that differs from another member's; as with `held`."""
    clock: ClockStatus | None = None
    """What it knows of the members' clocks; None of a member that does not compare them."""
    reluctance: list[ReluctanceStatus] = Field(default_factory=list)
    """Why it leaves an election to a willing member where one can win; empty if it is willing itself."""
    session_count: Count
    """Client sessions of the cluster that are open at its delivered position."""
    messages_per_s: Rate | None = None
    """Messages of all clients in a second, over the last 5 seconds; None of a member that does not lead."""
    connection_count: Count
    """Client connections to this member; a client keeps one to every member."""
    service_errors: ServiceErrorsStatus | None = None
    """None while no callback has raised at an entry that is newer than the process."""
    certificate: CertificateStatus | None = None
    """None of a member without TLS."""
    connection_limit: Count | None = None
    """How many of these there may be."""
    descriptor_count: Count | None = None
    """Files and connections that its process has open; None if that is not known."""
    descriptor_limit: Count | None = None
    """How many it may have open."""
    last_election: ElectionStatus | None
    """None before the first one."""
    stall_count: Count = 0
    """How often its loop stood still for longer than `stall_threshold_ms`, since its process began."""
    stall_max_s: Seconds = 0
    """The longest that its loop was busy with one thing, stall or not."""
    cold_storage: ColdStorageStatus | None = None
    """None without the setting `cold_storage_url`."""
    syncs: SyncStatus | None = None
    """None of a member that has synced nothing for a minute."""
    disk_free_bytes: Count | None = None
    """What may still be written to the file system of its directory; None if that is not known."""
    disk_size_bytes: Count | None = None
    """How large that file system is."""
    disk_full_in_s: Seconds | None = None
    """In how long it is full, if it fills on as in the last ten minutes; None if it does not fill, or at first."""
    error_count: Count = 0
    """Warnings and errors that it logged since its process began; `trimaran errors` shows them."""

    @property
    def stands_still(self) -> bool:
        """Return whether its service is given nothing, for a reason that the status tells."""
        return self.held is not None or self.log_difference is not None


class TermClaim(Protocol):
    """What a member's answer says about its part in a leadership term."""

    @property
    def state(self) -> str:
        """As `MemberStatus.state`."""

    @property
    def leadership_term_id(self) -> int | None:
        """As `MemberStatus.leadership_term_id`."""


TermClaimT = TypeVar("TermClaimT", bound=TermClaim)


def leads(claim: TermClaim) -> bool:
    """Whether the member leads: its election is over, and it is the leader of its term.

    The winner of an election has the role LEADER from the vote on, while it still replays its log. It does not lead
    yet: it takes no input and refuses operations.
    """
    return claim.state == "LEADER"


def is_in_term(claim: TermClaim) -> bool:
    """Whether the member leads or follows: its election is over."""
    return claim.state in ("LEADER", "FOLLOWER")


def is_in_term_of(status: MemberStatus, leader: MemberStatus) -> bool:
    """Whether a member knows another one as its leader, in the term that this one has."""
    return (status.leader_member_id, status.leadership_term_id) == (leader.member_id, leader.leadership_term_id)


def find_leader(claims: Iterable[TermClaimT]) -> TermClaimT | None:
    """Find the leader of a cluster among its members' answers; None without one.

    A leader that was cut off may still claim its old term: the highest leadership term counts.
    """
    return max((claim for claim in claims if leads(claim)), key=term_order, default=None)


def term_order(claim: TermClaim) -> int:
    """Return the leadership term to compare by; an answer without one comes first."""
    return -1 if claim.leadership_term_id is None else claim.leadership_term_id
