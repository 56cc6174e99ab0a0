"""The reason of an election start, a refusal or a change of state: a kind to count by, the facts, and a sentence.

Every election start, refusal and change of state carries one. The kinds are what an operator can ask for; the sentence
is made of the facts only when somebody reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class ReasonKind(Enum):
    """What happened. The value is the sentence, with the names of the facts in braces."""

    # --- why an election begins, or begins again
    NODE_STARTED = "node started"
    LEADER_LINK_CLOSED = "link to leader {leader_member_id} closed"
    LOG_LINK_CLOSED = "log link closed: {detail}"
    LOG_SOURCE_LOST = "link to log source {member_id} closed"
    LOG_SOURCE_STALLED = "log source {member_id} sends nothing: append={append_position} committed={commit_position}"
    LOG_SOURCE_BACK = "log source {member_id} can be used"
    LEADER_HEARTBEAT_TIMEOUT = "leader heartbeat timeout: leader_member_id={leader_member_id}"
    INACTIVE_FOLLOWER_QUORUM = "inactive follower quorum: active={active_count} members={member_count}"
    HIGHER_TERM_CANDIDATE = "member {member_id} stands for term {term_id} with {comparison}"
    HIGHER_TERM_LEADER = "member {member_id} leads a higher term {term_id}"
    HIGHER_TERM_COMMIT = "member {member_id} commits in a higher term {term_id}"
    HIGHER_TERM_CANVASS = "canvass of member {member_id} names a higher term {term_id}"
    SURPLUS_LOG = (
        "log ends at {append_position} but term {next_term_id} begins at {next_term_base_log_position}: "
        "later entries never committed"
    )
    NEXT_TERM_UNKNOWN = "leader {leader_member_id} does not know which term follows {log_term_id}"
    NO_FOLLOWER_QUORUM = "no quorum of followers joined the term"
    LEADER_RELUCTANT = "leader gives up its term: {reluctance}: {detail}"
    LEADERSHIP_TRANSFERRED = "leader {leader_member_id} hands its term over to this member at {log_position}"
    CANVASS_OUTDATED = "no quorum would vote for this member any more"
    HELD_LEADER = (
        "this member holds before log_position={log_position}, which its service cannot take, and member {member_id} "
        "can lead"
    )
    NO_PROGRESS = "{state} made no progress"
    BELOW_OLDEST_SEGMENT = (
        "log ends at {position}, before the oldest position {oldest_position} of leader {leader_member_id}: "
        "this member copies its snapshot"
    )
    SEED_MISSING = (
        "the log of members {member_ids} begins with the state of a snapshot, which this member, whose log is empty, "
        "has not: it copies that snapshot"
    )
    ACTIVITY_FAILED = "{detail}"

    # --- why the election goes from one state to another
    LOG_STOPPED = "the log is stopped, and entries that never committed are rolled back"
    ONLY_MEMBER = "the only member"
    NEWEST_LOG_OF_ALL = "no reachable member has a newer log"
    NEWEST_LOG_OF_QUORUM = "no member of a quorum has a newer log"
    SUCCESSOR = "the leader asked this member to stand"
    NOMINATION = "nomination for term {term_id}"
    UNANIMOUS_VOTE = "every member that answered voted yes"
    QUORUM_VOTE = "a quorum voted yes and no member voted no"
    QUORUM_VOTE_FOR_SUCCESSOR = "a quorum voted yes for the member that the leader asked to stand"
    QUORUM_VOTE_AGAIN = "a quorum voted yes, and this is not the first ballot"
    BALLOT_NOT_WON = "ballot of term {term_id} was not won"
    VOTED = "voted for member {member_id}"
    NO_LEADER_OF_BALLOT = "the ballot ended without a leader"
    CANDIDATE_GAVE_UP = "candidate {member_id} canvasses again"
    LEADER_ANSWERED_FOR_OTHER_LOG = (
        "leader {leader_member_id} answered for log term {log_term_id}, which is not the own one"
    )
    QUORUM_HOLDS_LOG = "a quorum holds the log up to {position}"
    REPLAYED = "replayed to {position}"
    LOG_OPEN = "the log is open"
    QUORUM_IN_TERM = "a quorum is in the term"
    LEADER_ANNOUNCED = "member {leader_member_id} leads"
    TERM_MISSING = "term {term_id} is missing up to {position}"
    TERM_REPLICATED = "term replicated to {position}"
    TERM_EMPTY = "term {term_id} is empty"
    BEHIND_LEADER = "behind the leader's {position}"
    CATCHUP_REQUESTED = "asked for the log from {position}"
    CATCHUP_CONNECTED = "catch-up replay connected"
    CAUGHT_UP = "caught up with the live log"
    NO_LIVE_LOG_YET = "no live log yet"
    LIVE_LOG_JOINED = "joined the live log"
    LIVE_LOG_JOINED_ALREADY = "the live log is joined already"
    FOLLOWING = "following"

    # --- why something was refused
    OWN_LOG_NEWER = (
        "own log is newer: it ends in term {log_term_id} at {append_position}, "
        "the candidate's in term {candidate_log_term_id} at {candidate_log_position}"
    )
    VOTED_IN_TERM = "voted in term {candidate_term_id} already"
    NOT_A_VOTER = (
        "this member is not a voter: it never voted, or its directory was removed; it does not vote or stand until a "
        "leader has committed an entry with the other voters, unless every log is empty"
    )
    NOT_COUNTED = "this member does not stand: it is a learner, or no member, by its log: the members are {members}"
    MEMBERS_UNKNOWN = (
        "this member does not stand: a part of its log cannot be read, so it does not know who the members are; the "
        "last that it found are {members}"
    )
    NO_QUORUM_OF_VOTERS = (
        "members {member_ids} are not voters: they never voted, or their directories were removed; without them "
        "{voter_count} of {member_count} members can vote; start the others"
    )
    VOTE_STATE_UNUSABLE = (
        "this member's term {candidate_term_id} is far above {vouched_term_id}, the highest that any member vouches "
        "for: no leader can come of it; if all members say so, stop them and run `trimaran reset-candidate-term`"
    )
    RELUCTANT = (
        "this member is reluctant to lead ({kinds}) and leaves it to a willing member: {member_ids}; it stands if none "
        "of these has won soon"
    )
    VOTED_IN_HIGHER_TERM = "voted in a higher term {candidate_term_id}"

    def __repr__(self) -> str:
        return f"ReasonKind.{self.name}"

    @property
    def is_of_order(self) -> bool:
        """True if an election that begins for it follows from no fault, as far as this member sees.

        A start, a hand-over, and a term in which another member stands or leads: if that one had to, it says why.
        """
        return self in _OF_ORDER


_OF_ORDER: Final = frozenset(
    {
        ReasonKind.NODE_STARTED,
        ReasonKind.LEADERSHIP_TRANSFERRED,
        ReasonKind.HIGHER_TERM_CANDIDATE,
        ReasonKind.HIGHER_TERM_LEADER,
        ReasonKind.HIGHER_TERM_COMMIT,
    }
)


@dataclass(slots=True, init=False)
class Reason:
    """One reason: compared by kind and facts, read as a sentence."""

    kind: ReasonKind
    facts: dict[str, int | str]

    def __init__(self, kind: ReasonKind, **facts: int | str) -> None:
        self.kind = kind
        self.facts = facts

    def __str__(self) -> str:
        return self.kind.value.format_map(self.facts)

    def __repr__(self) -> str:
        return f"<Reason {self.kind.name}: {self}>"

    @property
    def name(self) -> str:
        """The kind as logs and metrics spell it."""
        return self.kind.name.lower()
