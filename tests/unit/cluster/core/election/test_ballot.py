"""The ballot as its candidate sees it: whom it waits for, when it is won, and when it is left.

Case names in the docstrings are Aeron's `ElectionTest`.
"""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import S, Solo, messages, path
from trimaran.cluster.core import events as ev
from trimaran.cluster.messages.consensus import RequestVote
from trimaran.service_api.types import MemberId

ELECTION_TIMEOUT = 50 * MS
STATUS_INTERVAL = 10 * MS


def test_candidate_repeats_its_request_to_those_who_have_not_answered() -> None:
    """Aeron.md §2.12; and not to those who have."""
    solo = Solo().reach_candidate_ballot()
    solo.feed(solo.vote(1, vote=True))

    effects = solo.wait(2 * STATUS_INTERVAL)

    assert messages(effects, RequestVote, to=1) == []
    assert messages(effects, RequestVote, to=2) != []


def test_candidate_with_a_majority_wins_when_the_ballot_ends() -> None:
    """shouldWinCandidateBallotWithMajority."""
    solo = Solo().reach_candidate_ballot()

    effects = solo.feed(solo.vote(1, vote=True))
    assert path(effects) == []
    effects = solo.wait(ELECTION_TIMEOUT)

    assert path(effects)[:1] == ["LEADER_LOG_REPLICATION"]


def test_candidate_with_a_majority_need_not_wait_for_the_dead() -> None:
    """DESIGN §4: a member whose process is gone is not waited for."""
    solo = Solo().reach_candidate_ballot()

    solo.feed(solo.vote(1, vote=True))
    solo.feed(ev.LinkChanged(MemberId(2), is_up=False))

    assert solo.is_in(S.LEADER_LOG_REPLICATION)


def test_no_counts_as_one_vote_from_the_second_ballot_on() -> None:
    """It may come from a member with a newer log that a minority hears: then there would never be a leader."""
    solo = Solo().reach_candidate_ballot()
    solo.feed(solo.vote(1, vote=True), solo.vote(2, vote=False))
    solo.reach_candidate_ballot()

    effects = solo.feed(solo.vote(1, vote=True), solo.vote(2, vote=False))

    assert path(effects) == ["LEADER_LOG_REPLICATION"]


def test_nominations_come_later_and_later_while_ballots_fail() -> None:
    """Else a candidate that nobody hears raises its term twice a second."""
    solo = Solo(chance=0.5)
    waits = []
    for _ in range(9):
        solo.reach_nominate()
        began_ns = solo.now_ns
        while not solo.is_in(S.CANDIDATE_BALLOT):
            solo.wait(MS)
        waits.append((solo.now_ns - began_ns) // MS)
        solo.wait(ELECTION_TIMEOUT)

    assert waits == [13, 13, 13, 25, 50, 100, 200, 400, 400]


def test_ballot_without_a_majority_ends_in_a_canvass() -> None:
    """shouldTimeoutCandidateBallotWithoutMajority."""
    solo = Solo().reach_candidate_ballot()

    solo.wait(ELECTION_TIMEOUT)

    assert solo.is_in(S.CANVASS)
    assert solo.ctx.candidate_term_id == 0


@pytest.mark.parametrize(("term_id", "candidate_id"), [(0, 0), (2, 0), (1, 2)])
def test_votes_of_other_ballots_do_not_count(term_id: int, candidate_id: int) -> None:
    """Aeron.md §2.4 onVote: only with the matching term and candidate."""
    solo = Solo(terms=[(0, 0, 64)]).reach_candidate_ballot()
    stray = solo.vote(1, vote=True, term_id=term_id).model_copy(update={"candidate_member_id": candidate_id})

    solo.feed(stray, solo.vote(2, vote=True))

    assert solo.is_in(S.CANDIDATE_BALLOT)


@pytest.mark.parametrize("reach", ["reach_nominate", "reach_leader_log_replication"])
def test_votes_outside_the_ballot_change_nothing(reach: str) -> None:
    solo = Solo()
    getattr(solo, reach)()
    state = solo.state

    assert solo.feed(solo.vote(1, vote=False)) == []
    assert solo.state is state


# --- who is not waited for


def stand_after_silence_of(leader_id: int, *, member_count: int = 3, heard: tuple[int, ...] = (1,)) -> Solo:
    """A follower whose leader, still connected, says no more; the ones heard canvass with it."""
    solo = Solo(terms=[(0, 0, 64)], member_count=member_count).follow(leader_id=leader_id)
    while solo.module.election is None:
        solo.wait(solo.ctx.config.leader_heartbeat_interval_ns)
    solo.feed(ev.LogStopped(64), *(solo.canvass(member_id, 1, 64) for member_id in heard))
    while not solo.is_in(S.CANDIDATE_BALLOT):
        solo.wait(MS)
    return solo


def test_candidate_does_not_wait_for_the_leader_whose_silence_began_the_election() -> None:
    """A leader that is stopped or cut off keeps its connections for long."""
    solo = stand_after_silence_of(2)

    effects = solo.feed(solo.vote(1, vote=True))

    assert path(effects) == ["LEADER_LOG_REPLICATION"]


def test_silent_leader_is_asked_for_its_vote_all_the_same() -> None:
    """When it comes back, the request makes it step down."""
    solo = stand_after_silence_of(2)

    assert len(messages(solo.effects, RequestVote, to=2)) == 1


def test_silent_leader_that_comes_back_with_a_no_has_its_veto() -> None:
    solo = stand_after_silence_of(2)

    effects = solo.feed(solo.vote(2, vote=False), solo.vote(1, vote=True))

    assert path(effects)[:1] == ["CANVASS"]


def test_candidate_waits_for_every_member_that_canvassed() -> None:
    """Four of five are heard: three yes are a majority, the fourth may yet say no."""
    solo = stand_after_silence_of(4, member_count=5, heard=(1, 2, 3))

    assert path(solo.feed(solo.vote(1, vote=True), solo.vote(2, vote=True))) == []
    assert path(solo.feed(solo.vote(3, vote=True))) == ["LEADER_LOG_REPLICATION"]


def test_yes_of_a_member_that_is_gone_since_counts() -> None:
    """It is on that member's disk."""
    solo = stand_after_silence_of(4, member_count=5, heard=(1, 2))
    solo.feed(solo.vote(1, vote=True), ev.LinkChanged(MemberId(1), is_up=False))

    effects = solo.feed(solo.vote(2, vote=True))

    assert path(effects) == ["LEADER_LOG_REPLICATION"]


def test_no_does_not_take_a_yes_back() -> None:
    """The voter was started again in between: it knows that it voted in this term, and not for whom."""
    solo = stand_after_silence_of(4, member_count=5, heard=(1, 2))
    solo.feed(solo.vote(1, vote=True), solo.vote(1, vote=False))

    effects = solo.feed(solo.vote(2, vote=True))

    assert path(effects) == ["LEADER_LOG_REPLICATION"]


# --- a ballot that cannot be won


def test_ballot_that_cannot_be_won_any_more_is_left_at_once() -> None:
    """Two candidates of one term, and the third member is dead: each has the other's no; waiting helps neither."""
    solo = Solo(terms=[(0, 0, 64)]).reach_candidate_ballot()
    solo.feed(ev.LinkChanged(MemberId(2), is_up=False))

    effects = solo.feed(solo.vote(1, vote=False))

    assert path(effects) == ["CANVASS"]


def test_second_ballot_goes_on_after_a_no_while_a_majority_is_possible() -> None:
    solo = stand_after_silence_of(4, member_count=5, heard=(1, 2, 3))
    solo.feed(solo.vote(1, vote=False))
    solo.feed(*(solo.canvass(member_id, 1, 64) for member_id in (1, 2, 3)))
    solo.wait(ELECTION_TIMEOUT // 2)
    assert solo.is_in(S.CANDIDATE_BALLOT)

    assert path(solo.feed(solo.vote(1, vote=False))) == []
    assert path(solo.feed(solo.vote(2, vote=False))) == ["CANVASS"]


@pytest.mark.parametrize("chance", [0.1, 0.9])
def test_delay_before_the_next_nomination_is_drawn_anew(chance: float) -> None:
    """So that two candidates of one term do not stand for the next one together as well."""
    chances = iter((0.5, chance))
    solo = Solo(terms=[(0, 0, 64)])
    solo.ctx.random = lambda: next(chances)
    solo.reach_candidate_ballot()
    solo.feed(solo.vote(1, vote=False))
    solo.reach_nominate()
    began_ns = solo.now_ns

    while not solo.is_in(S.CANDIDATE_BALLOT):
        solo.wait(MS // 10)

    assert abs(solo.now_ns - began_ns - chance * ELECTION_TIMEOUT / 2) <= MS // 10
