"""Votes, candidates and the quorum's position; most case names are Aeron's `ClusterMemberTest`, in our words."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.cluster.core.vocabulary.members import (
    ClusterMember,
    compare_log,
    is_active,
    is_quorum_candidate,
    is_quorum_leader,
    is_spare,
    is_unanimous_candidate,
    is_unanimous_leader,
    quorum_position,
    quorum_threshold,
    would_vote_for,
)
from trimaran.service_api.types import MemberId, TermId

NOBODY: frozenset[MemberId] = frozenset()
TIMEOUT_NS = 10
NOW_NS = 1000


def member(member_id: int, term_id: int = -1, position: int = -1) -> ClusterMember:
    """A member whose log ended there when it last said so."""
    return ClusterMember(MemberId(member_id), log_leadership_term_id=TermId(term_id), log_position=position)


def voter(member_id: int, vote: bool | None, term_id: int = 5) -> ClusterMember:
    """A member that voted in a candidate term."""
    return ClusterMember(MemberId(member_id), candidate_term_id=TermId(term_id), vote=vote)


def recorder(
    member_id: int, position: int, *, term_id: int = 5, age_ns: int | None = 0, is_voter: bool = True
) -> ClusterMember:
    """A member that reported a recorded position in a leadership term, so long ago."""
    return ClusterMember(
        MemberId(member_id),
        is_voter=is_voter,
        append_leadership_term_id=TermId(term_id),
        append_position=position,
        time_of_last_append_ns=None if age_ns is None else NOW_NS - age_ns,
    )


def quorum_of(*members: ClusterMember, term_id: int = 5) -> int:
    return quorum_position(members, leadership_term_id=term_id, now_ns=NOW_NS, heartbeat_timeout_ns=TIMEOUT_NS)


@pytest.mark.parametrize(("member_count", "threshold"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_quorum_is_more_than_half(member_count: int, threshold: int) -> None:
    """ClusterMemberTest.shouldDetermineQuorumSize."""
    assert quorum_threshold(member_count) == threshold


@pytest.mark.parametrize(
    ("age_ns", "expected"), [(None, False), (0, True), (TIMEOUT_NS, True), (TIMEOUT_NS + 1, False)]
)
def test_member_is_active_until_it_is_silent_for_the_timeout(age_ns: int | None, expected: bool) -> None:
    """ClusterMemberTest.shouldCheckMemberIsActive."""
    assert is_active(recorder(0, 0, age_ns=age_ns), NOW_NS, TIMEOUT_NS) is expected


reports = st.lists(
    st.builds(
        recorder,
        st.just(0),
        st.integers(0, 8).map(lambda units: units * 32),
        term_id=st.sampled_from([4, 5]),
        age_ns=st.sampled_from([None, 0, TIMEOUT_NS, TIMEOUT_NS + 1]),
        is_voter=st.sampled_from([True, True, True, False]),
    ),
    min_size=1,
    max_size=7,
)


@given(reports)
def test_quorum_position_agrees_with_counting_heads(members: list[ClusterMember]) -> None:
    """A naive twin: the highest position that more than half of the members are known to hold.

    Every majority has a voter among these, so a ballot that others have forgotten was not won without one of them.
    """
    majorities = [*combinations(range(len(members)), quorum_threshold(len(members)))]

    def is_held(position: int) -> bool:
        holders = {
            at
            for at, m in enumerate(members)
            if m.append_leadership_term_id == 5
            and m.time_of_last_append_ns is not None
            and NOW_NS - m.time_of_last_append_ns <= TIMEOUT_NS
            and m.append_position >= position
        }
        voters = {at for at in holders if members[at].is_voter}
        return len(holders) * 2 > len(members) and all(voters & {*majority} for majority in majorities)

    naive = max((p for p in range(0, 32 * 9, 32) if is_held(p)), default=-1)

    assert quorum_of(*members) == naive


@pytest.mark.parametrize(
    ("member_count", "voter_count", "commits"),
    [(2, 1, True), (3, 1, False), (3, 2, True), (4, 1, False), (4, 2, True), (5, 2, False), (5, 3, True)],
)
def test_members_that_forgot_their_votes_count_beside_enough_that_did_not(
    member_count: int, voter_count: int, *, commits: bool
) -> None:
    members = [recorder(at, 64, is_voter=at < voter_count) for at in range(member_count)]

    assert quorum_of(*members) == (64 if commits else -1)


log_ends = st.tuples(st.integers(-1, 3), st.integers(0, 3))


@given(log_ends, log_ends, log_ends)
def test_log_comparison_is_a_total_order(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> None:
    assert (compare_log(*a, *b) > 0) == (a > b)
    if compare_log(*a, *b) >= 0 and compare_log(*b, *c) >= 0:
        assert compare_log(*a, *c) >= 0


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ((-1, -1), False),
        ((6, 0), False),
        ((5, 1001), False),
        ((6, 2000), False),
        ((5, 1000), True),
        ((5, 999), True),
        ((4, 9999), True),
        ((-1, 0), True),
    ],
)
def test_member_votes_for_as_much_log_as_it_has_or_more(end: tuple[int, int], expected: bool) -> None:
    """ClusterMemberTest.should{NotVoteIfHasNoPosition,NotVoteIfHasMoreLog,VoteIfHasLessOrTheSameAmountOfLog}."""
    assert would_vote_for(member(1, *end), member(0, 5, 1000)) is expected


@pytest.mark.parametrize(
    ("ends", "expected"),
    [(((2, 100), (-1, -1)), False), (((2, 101), (2, 100)), False), (((2, 100), (1, 900)), True)],
    ids=["one is unheard", "one has more log", "none has more"],
)
def test_candidate_with_the_newest_log_of_all_is_unanimous(ends: tuple[tuple[int, int], ...], expected: bool) -> None:
    """ClusterMemberTest.isUnanimousCandidateReturn…"""
    me = member(0, 2, 100)

    assert is_unanimous_candidate([me, *(member(at, *end) for at, end in enumerate(ends, 1))], me, NOBODY) is expected


def test_excused_members_are_not_waited_for_but_a_majority_is_still_needed() -> None:
    """ClusterMemberTest.isUnanimousCandidateReturnFalseIfLeaderClosesGracefully: the rest must make a majority."""
    me, second, third = member(0, 2, 100), member(1, 2, 50), member(2)

    assert is_unanimous_candidate([me, second, third], me, {MemberId(2)})
    assert not is_unanimous_candidate([me, second, third], me, {MemberId(1), MemberId(2)})
    assert not is_unanimous_candidate([me, third], me, {MemberId(2)})


def test_candidate_has_a_quorum_once_a_majority_would_vote_for_it() -> None:
    """ClusterMemberTest.isQuorumCandidateReturn{False,True}WhenQuorumIs{Not,}Reached."""
    me = member(0, 2, 100)

    assert not is_quorum_candidate([me, member(1), member(2)], me)
    assert not is_quorum_candidate([me, member(1, 2, 101), member(2)], me)
    assert is_quorum_candidate([me, member(1, 2, 100), member(2)], me)
    assert is_quorum_candidate([me, member(1, 2, 100), member(2, 3, 0)], me)


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ((True, True, True), True),
        ((True, True, None), False),
        ((True, True, False), False),
        ((True, None, None), False),
    ],
)
def test_leader_is_unanimous_when_every_member_voted_yes(votes: tuple[bool | None, ...], expected: bool) -> None:
    """ClusterMemberTest.isUnanimousLeader… with a negative vote, a missing one, and all of them."""
    assert is_unanimous_leader([voter(index, vote) for index, vote in enumerate(votes)], 5, NOBODY) is expected


def test_leader_is_not_unanimous_with_a_vote_of_another_term() -> None:
    """ClusterMemberTest.isUnanimousLeaderReturnsFalseIfNotAllNodesHadTheExpectedCandidateTermId."""
    assert not is_unanimous_leader([voter(0, True), voter(1, True), voter(2, True, term_id=4)], 5, NOBODY)


def test_leader_is_unanimous_without_the_excused_if_the_rest_is_a_majority() -> None:
    """ClusterMemberTest.isUnanimousLeaderReturnsFalseIfLeaderClosesGracefully: three of five, not two."""
    votes = [voter(0, True), voter(1, True), voter(2, True), voter(3, None), voter(4, None)]

    assert is_unanimous_leader(votes, 5, {MemberId(3), MemberId(4)})
    assert not is_unanimous_leader(votes, 5, {MemberId(4)})
    assert not is_unanimous_leader(votes[:2] + votes[3:], 5, {MemberId(3), MemberId(4)})


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ((True, True, None), True),
        ((True, True, True), True),
        ((True, True, False), False),
        ((True, None, None), False),
        ((True, True, None, None, None), False),
        ((True, True, True, None, None), True),
        ((True, True, True, True, False), False),
    ],
)
def test_quorum_leader_needs_a_majority_and_not_one_no(votes: tuple[bool | None, ...], expected: bool) -> None:
    """ClusterMemberTest.isQuorumLeader…: one NO is a veto, aeron.md §10 hazard 7."""
    assert is_quorum_leader([voter(index, vote) for index, vote in enumerate(votes)], 5, is_no_a_veto=True) is expected


def test_no_is_not_a_veto_for_ever() -> None:
    """It may come from a member that nobody else can hear. Raft knows no veto."""
    voters = [voter(index, vote) for index, vote in enumerate((True, True, False))]

    assert is_quorum_leader(voters, 5, is_no_a_veto=False)
    assert not is_quorum_leader(voters[:1] + voters[2:] + [voter(3, None)], 5, is_no_a_veto=False)


def test_votes_of_another_term_neither_help_nor_veto() -> None:
    """ClusterMemberTest.isQuorumLeaderReturnsFalseWhenQuorumIsNotReached."""
    assert not is_quorum_leader([voter(0, True), voter(1, True, term_id=4), voter(2, None)], 5, is_no_a_veto=True)
    assert is_quorum_leader([voter(0, True), voter(1, True), voter(2, False, term_id=4)], 5, is_no_a_veto=True)


def test_a_member_forgets_what_belongs_to_an_older_election_or_term() -> None:
    """Positions of a term outlive an election, and the other way round."""
    other = recorder(1, 640)
    other.log_position, other.vote, other.live_join_position = 640, True, 320

    other.forget_election()

    assert other == dataclasses.replace(recorder(1, 640), live_join_position=320)

    other.forget_term()

    assert other == ClusterMember(MemberId(1))


# --- who may be late


@pytest.mark.parametrize(
    ("member_count", "leader_id", "unreachable", "spare"),
    [
        (1, 0, (), ()),
        (2, 0, (), ()),
        (3, 0, (), (2,)),
        (3, 1, (), (2,)),
        (3, 2, (), (1,)),
        (3, 0, (1,), ()),
        (3, 0, (2,), (2,)),
        (4, 0, (), (3,)),
        (5, 0, (), (3, 4)),
        (5, 3, (), (2, 4)),
        (5, 0, (1,), (4,)),
        (5, 0, (1, 2), ()),
        (7, 6, (0, 1), (5,)),
    ],
)
def test_followers_beyond_a_majority_are_spare_by_order_of_their_ids(
    member_count: int, leader_id: int, unreachable: tuple[int, ...], spare: tuple[int, ...]
) -> None:
    """As each of them sees it that can reach all but these."""
    members = [ClusterMember(MemberId(each), is_reachable=each not in unreachable) for each in range(member_count)]

    found = [each for each in range(member_count) if each != leader_id]
    found = [each for each in found if is_spare(members, MemberId(each), MemberId(leader_id))]

    assert tuple(found) == spare


@given(st.integers(1, 9), st.data())
def test_spare_followers_leave_the_leader_a_majority(member_count: int, data: st.DataObject) -> None:
    leader_id = data.draw(st.integers(0, member_count - 1))
    down = data.draw(st.sets(st.integers(0, member_count - 1)))
    members = [ClusterMember(MemberId(each), is_reachable=each not in down) for each in range(member_count)]
    followers = [MemberId(each) for each in range(member_count) if each not in (leader_id, *down)]

    prompt = [each for each in followers if not is_spare(members, each, MemberId(leader_id))]

    assert 1 + len(prompt) >= min(quorum_threshold(member_count), 1 + len(followers))
