"""The members as one member sees them, with their votes and positions, and the quorums made of these.

Two views of a member are kept apart. Where its log ended when it last said so (canvass, vote) decides who may lead.
Where it has recorded the log *of this leadership term* decides what is committed: a position from an older term never
counts, since what it refers to may yet be truncated (aeron.md §10 hazard 1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ....service_api.types import NULL_POSITION, NULL_TERM_ID, MemberId, TermId
from ...messages.consensus import (
    APPEND_POSITION_FLAG_CATCHUP,
    APPEND_POSITION_FLAG_NO_VOTER,
    APPEND_POSITION_FLAG_NONE,
    APPEND_POSITION_FLAG_RELAYED,
    AppendPosition,
)


class KnownLevel(NamedTuple):
    """What the code of a member's services can."""

    feature_level: int
    """The highest level that every service knows."""
    limiting_service: str = ""
    """The services that know no higher one, with their ids; empty of a witness and of a member of an older version."""


NO_LEVEL: Final = KnownLevel(0)
"""What code can that declares no feature level."""


@dataclass(slots=True)
class ClusterMember:
    """One member as this one sees it. Positions in bytes, times in monotonic nanoseconds."""

    member_id: MemberId
    is_reachable: bool = False
    """Whether the consensus link to it is up; always True of this member itself."""

    log_leadership_term_id: TermId = NULL_TERM_ID
    log_position: int = NULL_POSITION
    """Where its log ended by its last canvass or vote; -1 until it spoke in this election."""

    time_of_last_canvass_ns: int = 0
    is_voter: bool = True
    """Its right to vote, by its last canvass or report: False if it never voted, or has lost its directory."""

    candidate_term_id: TermId = NULL_TERM_ID
    reluctance: int = 0
    """Why it would rather not lead, as it said last: values of `Reluctance`, added up; 0: it would."""
    leader_priority: int = 0
    """How much it is preferred as leader, as it said last. See `transfer`."""
    snapshot_position: int = NULL_POSITION
    """Where its newest snapshot was taken, as it said last; -1 until it says so."""
    sync_ns: int | None = None
    """How long a sync of its disk takes, as it said last; None while it syncs next to nothing."""
    known_level: KnownLevel | None = None
    """The highest feature level that its services know, as it said on the link that is up; None without one."""
    vote: bool | None = None
    """Its vote for this member in `candidate_term_id`; None until it answered."""

    append_leadership_term_id: TermId = NULL_TERM_ID
    append_position: int = NULL_POSITION
    """What it reported to have recorded, durably, and in which leadership term."""

    time_of_last_append_ns: int | None = None
    is_catching_up: bool = False
    """Leader: whether its last report was of a catch-up."""
    is_relayed: bool = False
    """Leader: whether it said with that that the log comes to it from another member."""
    live_join_position: int | None = None
    """Leader: where its live log link began to flow; None while there is none."""

    @property
    def is_reluctant(self) -> bool:
        """Whether it said that it would rather not lead. See `reluctance`."""
        return self.reluctance != 0

    def on_canvass(self, log_leadership_term_id: TermId, log_position: int) -> None:
        """A canvass names the end of the member's log. A higher position that it reported before counts no more."""
        self.log_leadership_term_id = log_leadership_term_id
        self.log_position = log_position
        self.append_position = min(self.append_position, log_position)

    def on_append(self, message: AppendPosition) -> None:
        """Note a report of what the member has recorded in a leadership term."""
        flags = message.flags or APPEND_POSITION_FLAG_NONE
        self.append_leadership_term_id = message.leadership_term_id
        self.append_position = message.log_position
        self.is_catching_up = bool(flags & APPEND_POSITION_FLAG_CATCHUP)
        self.is_relayed = bool(flags & APPEND_POSITION_FLAG_RELAYED)
        self.is_voter = not flags & APPEND_POSITION_FLAG_NO_VOTER

    def forget_election(self) -> None:
        """Drop what it said in an earlier election."""
        self.log_leadership_term_id = NULL_TERM_ID
        self.log_position = NULL_POSITION
        self.is_voter = True
        self.candidate_term_id = NULL_TERM_ID
        self.vote = None

    def forget_term(self) -> None:
        """Drop what it recorded in an earlier leadership term."""
        self.append_leadership_term_id = NULL_TERM_ID
        self.append_position = NULL_POSITION
        self.time_of_last_append_ns = None
        self.is_catching_up = False
        self.is_relayed = False
        self.live_join_position = None


def quorum_threshold(member_count: int) -> int:
    """Count the members that make a majority."""
    return member_count // 2 + 1


def voter_threshold(member_count: int) -> int:
    """Count the voters that must hold an entry so that every majority of the members has one of them.

    Members that have forgotten their votes are not among them: an earlier ballot may have been won with these.
    """
    return member_count - quorum_threshold(member_count) + 1


def compare_log(term_a: int, position_a: int, term_b: int, position_b: int) -> int:
    """Compare two log ends: positive when a is newer, negative when b is, 0 when equal. Source: Raft paper §5.4.1."""
    if term_a != term_b:
        return 1 if term_a > term_b else -1
    return (position_a > position_b) - (position_a < position_b)


def quorum_position(
    members: Collection[ClusterMember], *, leadership_term_id: int, now_ns: int, heartbeat_timeout_ns: int
) -> int:
    """Compute the position that a majority has recorded in this leadership term, and as many voters as it takes.

    Members that are silent for longer than the heartbeat timeout, or have reported in another term only, hold nothing:
    not even position 0, or the leader of an empty log would go ahead with nobody in its term.
    """
    positions = [
        member.append_position
        if member.append_leadership_term_id == leadership_term_id
        and (last_ns := member.time_of_last_append_ns) is not None
        and now_ns - last_ns <= heartbeat_timeout_ns
        else NULL_POSITION
        for member in members
    ]
    ranked = sorted(positions)
    position = ranked[-quorum_threshold(len(ranked))]
    for member in members:
        if not member.is_voter:
            break
    else:  # the usual case, and this is called for each report
        return position
    of_voters = [at for at, member in zip(positions, members, strict=True) if member.is_voter]
    count = voter_threshold(len(positions))
    return min(position, sorted(of_voters)[-count]) if len(of_voters) >= count else NULL_POSITION


def is_active(member: ClusterMember, now_ns: int, heartbeat_timeout_ns: int) -> bool:
    """Return whether the member has reported a position within the heartbeat timeout."""
    last = member.time_of_last_append_ns
    return last is not None and now_ns - last <= heartbeat_timeout_ns


def is_spare(members: Collection[ClusterMember], member_id: MemberId, leader_member_id: MemberId) -> bool:
    """Return whether the leader has a majority without this follower: with those of lower ids that can be reached."""
    quicker_count = sum(
        member.is_reachable and member.member_id < member_id and member.member_id != leader_member_id
        for member in members
    )
    return 1 + quicker_count >= quorum_threshold(len(members))


def is_empty_log(log_leadership_term_id: int, log_position: int) -> bool:
    """Return whether a log holds nothing: no entry, and no mark of a term."""
    return log_leadership_term_id == NULL_TERM_ID and log_position == 0


def may_vote_for(member: ClusterMember, candidate: ClusterMember) -> bool:
    """Return whether the member is a voter, or need not be one because the cluster forms itself from nothing."""
    return member.is_voter or is_empty_log(candidate.log_leadership_term_id, candidate.log_position)


def would_vote_for(member: ClusterMember, candidate: ClusterMember) -> bool:
    """Return whether the member has spoken, may vote, and its log is no newer than the candidate's."""
    return (
        member.log_position != NULL_POSITION
        and may_vote_for(member, candidate)
        and compare_log(
            member.log_leadership_term_id,
            member.log_position,
            candidate.log_leadership_term_id,
            candidate.log_position,
        )
        <= 0
    )


def is_unanimous_candidate(
    members: Collection[ClusterMember], candidate: ClusterMember, excused: Collection[MemberId]
) -> bool:
    """Return whether every member but the excused has spoken and would vote for the candidate.

    And these make a majority.
    """
    asked = [member for member in members if member.member_id not in excused]
    return len(asked) >= quorum_threshold(len(members)) and all(would_vote_for(member, candidate) for member in asked)


def is_quorum_candidate(members: Collection[ClusterMember], candidate: ClusterMember) -> bool:
    """Return whether a majority has spoken and would vote for the candidate."""
    return sum(would_vote_for(member, candidate) for member in members) >= quorum_threshold(len(members))


def is_unanimous_leader(
    members: Collection[ClusterMember], candidate_term_id: int, excused: Collection[MemberId]
) -> bool:
    """Return whether every member but the excused voted yes in this term, and these make a majority."""
    asked = [member for member in members if member.member_id not in excused]
    return len(asked) >= quorum_threshold(len(members)) and all(_votes(asked, candidate_term_id))


def is_quorum_leader(members: Collection[ClusterMember], candidate_term_id: int, *, is_no_a_veto: bool) -> bool:
    """Return whether a majority voted yes in this term, and with a veto not one member no."""
    votes = [member.vote for member in members if member.candidate_term_id == candidate_term_id]
    return not (is_no_a_veto and False in votes) and votes.count(True) >= quorum_threshold(len(members))


def is_ballot_open(
    members: Collection[ClusterMember],
    candidate_term_id: int,
    excused: Collection[MemberId],
    *,
    is_no_a_veto: bool,
) -> bool:
    """Return whether an answer is outstanding, the excused apart, and may yet decide for the candidate."""
    answers = {member.member_id: member.vote for member in members if member.candidate_term_id == candidate_term_id}
    votes = list(answers.values())
    if is_no_a_veto and False in votes:
        return False
    outstanding = [member for member in members if answers.get(member.member_id) is None]
    outstanding_count = sum(member.member_id not in excused for member in outstanding)
    return outstanding_count > 0 and votes.count(True) + outstanding_count >= quorum_threshold(len(members))


def _votes(members: Iterable[ClusterMember], candidate_term_id: int) -> list[bool]:
    return [member.vote is True and member.candidate_term_id == candidate_term_id for member in members]
