"""Why a member would rather not lead, and how it holds back.

Some members could win an election and still lead badly: their clock is off, their service stands before an entry, their
disk is nearly full. Such a member is *reluctant*: it votes, follows and counts in every quorum as before, but when it
could stand in a canvass it first leaves the time of two ballots to a willing member that a majority would vote for. If
none of these is there, or none has won by then, it stands: a reluctant leader is better than no leader.

- *It is a preference, never a rule of safety.* Logs are compared as ever. A willing member with an equal log has the
  same canvass and stands at once. One with an older log can win only with the others' votes, and knows that only when
  its canvass is over; the reluctant member waits for that too, since what its log has more was never committed.
- *The wait is bounded once for each election*, not for each canvass, so ballots that fail cannot make it longer.
- *A leader that becomes reluctant goes on*, and says so: an election costs more than a clock that cluster time follows
  only slowly (`cluster_clock`), or than a disk that still has room. The exception is a reason for which it cannot do
  what a leader is there for (`ends_term`): it begins an election if another member could win it.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final

from ....service_api.types import NULL_POSITION
from .members import ClusterMember, compare_log, is_quorum_candidate, may_vote_for

HOLD_BACK_ELECTION_TIMEOUTS: Final = 2
"""How long a reluctant member holds back: a vetoed ballot of a willing one, and its next."""


class Reluctance(Enum):
    """What makes a member reluctant to lead. The value is its bit where members tell each other."""

    CLOCK_OFF = 1
    """Its clock is far from the clocks of the majority."""
    SERVICE_HELD = 2
    """Its service stands before an entry that it cannot take: clients would get no answer."""
    DISK_NEARLY_FULL = 4
    """Its disk would soon end its term."""
    LOG_DAMAGED = 8
    """A part of its log cannot be read: a member that needs it would not get it. It ends a term only when a member
    needs it, and then hands it over: see `transfer`."""
    LOG_DIFFERS = 16
    """Its service stands before a range of the log in which members differ; told together with `SERVICE_HELD`. The
    others then compare their logs: see `repair.comparing`."""
    SYNCS_SLOW = 32
    """Its disk is slow, and those of a majority are not: every commit of its term would wait for it. It ends a term
    only once it has held for a while, and then hands it over: see `transfer`."""

    @property
    def label(self) -> str:
        """The reason as logs and documents spell it."""
        return self.name.lower()

    @property
    def ends_term(self) -> bool:
        """Whether a leader gives up its term for it where another member can lead."""
        return self is Reluctance.SERVICE_HELD


def able_members(
    members: Collection[ClusterMember], me: ClusterMember, *, is_any_willing: bool = False
) -> list[ClusterMember]:
    """Find the other members that could win a ballot by what is known in this canvass, and are not reluctant.

    With `is_any_willing` those that are reluctant, too.
    """
    return [
        member
        for member in members
        if member is not me
        and member.is_reachable
        and (is_any_willing or not member.is_reluctant)
        and member.log_position != NULL_POSITION
        and may_vote_for(member, member)
        and is_quorum_candidate(members, member)
    ]


def has_equal_log(member: ClusterMember, me: ClusterMember) -> bool:
    """Return whether a member's log is no older than this member's: this one would vote for it."""
    return (
        compare_log(member.log_leadership_term_id, member.log_position, me.log_leadership_term_id, me.log_position) >= 0
    )
