"""Votes of one member: who gets one, who gets none and why; case names in the docstrings are Aeron's `ElectionTest`."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import S, Solo, before, messages, path
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.reason import Reason, ReasonKind
from trimaran.cluster.messages.consensus import CanvassPosition, Vote
from trimaran.service_api import Role
from trimaran.service_api.types import MemberId

ELECTION_TIMEOUT = 50 * MS
STATUS_INTERVAL = 10 * MS


def reach_ballot_state(name: str) -> Solo:
    solo = Solo(chance=0.99, terms=[(0, 0, 64)])
    match name:
        case "NOMINATE":
            solo.reach_nominate()
        case "CANDIDATE_BALLOT":
            solo.reach_candidate_ballot()
        case "FOLLOWER_BALLOT":
            solo.feed(solo.request_vote(2, 1, 0, 64))
    assert solo.state.name == name
    return solo


@pytest.mark.parametrize("state", ["CANVASS", "NOMINATE", "CANDIDATE_BALLOT", "FOLLOWER_BALLOT"])
def test_vote_is_given_in_every_ballot_state_and_durable_before_it_is_sent(state: str) -> None:
    """shouldBecomeFollowerIfEnteringNewElection; aeron.md §2.4 onRequestVote, §2.8."""
    solo = reach_ballot_state(state)

    effects = solo.feed(solo.request_vote(1, 7, 0, 64))

    assert [vote.vote for vote in messages(effects, Vote, to=1)] == [True]
    assert before(effects, fx.PersistCandidateTerm, Vote)
    assert (solo.state, solo.ctx.role, solo.ctx.candidate_term_id) == (S.FOLLOWER_BALLOT, Role.FOLLOWER, 7)


def test_voter_that_waits_no_more_repeats_its_yes_and_stays_where_it_is() -> None:
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.request_vote(1, 1, 0, 64), solo.canvass(1, 0, 64, term_id=1))
    state = solo.state
    assert state in (S.CANVASS, S.NOMINATE)

    again = solo.feed(solo.request_vote(1, 1, 0, 64))

    assert [vote.vote for vote in messages(again, Vote, to=1)] == [True]
    assert solo.state is state


@pytest.mark.parametrize("how", ["follows", "heeded a higher term"])
def test_voter_that_has_gone_on_says_nothing_to_a_request_repeated(how: str) -> None:
    """Neither a yes that cannot help any more nor a no that contradicts the yes it gave."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.request_vote(1, 1, 0, 64))
    solo.feed(solo.new_term(2, 1, 64) if how == "follows" else solo.request_vote(2, 2, 0, 32))

    again = solo.feed(solo.request_vote(1, 1, 0, 64))

    assert messages(again, Vote) == []


def test_vote_of_an_earlier_election_is_repeated_in_the_next() -> None:
    """What was given is the process', not one election's."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.request_vote(1, 1, 0, 64), solo.new_term(2, 1, 64), ev.ActivityFailed("disk is slow"))
    solo.feed(ev.LogStopped(64))
    solo.wait(50 * MS)
    assert solo.is_in(S.CANVASS)

    again = solo.feed(solo.request_vote(1, 1, 0, 64), solo.request_vote(2, 1, 0, 64))

    assert [(vote.candidate_member_id, vote.vote) for vote in messages(again, Vote)] == [(1, True), (2, False)]


def test_candidate_refuses_its_rival_of_the_same_term() -> None:
    """It has voted for itself."""
    solo = Solo(terms=[(0, 0, 64)]).reach_candidate_ballot()

    effects = solo.feed(solo.request_vote(1, 1, 0, 64))

    assert [vote.vote for vote in messages(effects, Vote, to=1)] == [False]
    assert solo.is_in(S.CANDIDATE_BALLOT)


@pytest.mark.parametrize("candidate_term_id", [5, 4, 0])
def test_restarted_voter_refuses_every_term_it_may_have_voted_in(candidate_term_id: int) -> None:
    """Aeron.md §2.8: who got the vote is not stored, the term is; a request of it or below is refused."""
    solo = Solo(terms=[(0, 0, 64)], candidate_term_id=5)

    effects = solo.feed(solo.request_vote(1, candidate_term_id, 0, 640))

    assert [vote.vote for vote in messages(effects, Vote, to=1)] == [False]


def test_term_of_the_log_counts_as_voted_in() -> None:
    """The candidate term is never below what the recording log knows, even if its own file was lost."""
    solo = Solo(terms=[(3, 0, 64)])

    effects = solo.feed(solo.request_vote(1, 3, 3, 640))

    assert [vote.vote for vote in messages(effects, Vote, to=1)] == [False]


@pytest.mark.parametrize(("log_term_id", "position"), [(1, 32), (0, 900)])
def test_candidate_with_an_older_log_gets_a_no_and_raises_the_term(log_term_id: int, position: int) -> None:
    """Aeron.md §2.4; Raft paper §5.4.1. The term is taken note of, durably, first."""
    solo = Solo(terms=[(0, 0, 0), (1, 0, 64)])

    effects = solo.feed(solo.request_vote(1, 7, log_term_id, position))

    assert [vote.vote for vote in messages(effects, Vote, to=1)] == [False]
    assert before(effects, fx.PersistCandidateTerm, Vote)
    assert (solo.state, solo.ctx.candidate_term_id) == (S.CANVASS, 7)


@pytest.mark.parametrize("reach", ["reach_candidate_ballot", "vote"])
def test_ballot_is_left_when_a_rival_has_raised_the_term(reach: str) -> None:
    """Its votes would come for a term that is not the candidate's any more, or its leader would not be followed."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.request_vote(1, 1, 0, 64)) if reach == "vote" else solo.reach_candidate_ballot()

    effects = solo.feed(solo.request_vote(2, 7, 0, 32))

    assert [vote.vote for vote in messages(effects, Vote, to=2)] == [False]
    assert path(effects) == ["CANVASS"]
    assert solo.ctx.role is Role.FOLLOWER


def test_member_that_follows_a_leader_says_nothing_to_a_candidate() -> None:
    """Hazard 8 of aeron.md §10: at most one election timeout is lost."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.new_term(1, 1, 64))
    assert solo.is_in(S.FOLLOWER_REPLAY)

    assert solo.feed(solo.request_vote(2, 7, 1, 64)) == []


def test_leading_candidate_steps_down_for_a_higher_term_even_with_a_worse_log() -> None:
    """Two leaders at once would do nothing but confuse; who asks has won a canvass."""
    solo = Solo(terms=[(0, 0, 64)]).reach_leader_log_replication()

    effects = solo.feed(solo.request_vote(2, 9, 0, 32))

    assert [vote.vote for vote in messages(effects, Vote, to=2)] == [False]
    assert path(effects) == ["INIT"]


def test_voter_waits_for_the_outcome_and_canvasses_when_none_comes() -> None:
    """shouldTimeoutFollowerBallotWithoutLeaderEmerging; seed 001, "Follower: FOLLOWER_BALLOT"."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.request_vote(1, 1, 0, 64))

    solo.wait(ELECTION_TIMEOUT + STATUS_INTERVAL - MS)
    assert solo.is_in(S.FOLLOWER_BALLOT)
    solo.wait(2 * MS)

    assert solo.is_in(S.CANVASS)


def test_voter_waits_longer_than_the_ballot_of_its_candidate() -> None:
    """Won at its very end, the ballot has a leader that marks its term before it announces itself."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.request_vote(1, 1, 0, 64))
    solo.wait(ELECTION_TIMEOUT)

    effects = solo.feed(solo.new_term(1, 1, 64))

    assert path(effects) == ["FOLLOWER_REPLAY"]
    assert solo.state is S.FOLLOWER_REPLAY


def test_voter_canvasses_as_soon_as_its_candidate_does() -> None:
    """The candidate gave its ballot up; without this voter the next canvass would not be one of all."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.request_vote(1, 1, 0, 64))

    assert path(solo.feed(solo.canvass(2, 0, 64))) == []
    effects = solo.feed(solo.canvass(1, 0, 64, term_id=1))

    assert path(effects)[:1] == ["CANVASS"]
    assert len(messages(effects, CanvassPosition, to=2)) == 1
    assert solo.ctx.members[MemberId(1)].log_position == 64


def test_voter_that_stood_still_past_the_end_of_the_ballot_still_has_a_deadline() -> None:
    """Else nobody polls it again: it waits for ever for a leader that may not come.

    1. The agent is stopped while the vote is written, for longer than the ballot.
    2. It asks when to poll next, after the time has passed.
    """
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.request_vote(1, 1, 0, 64))
    solo.now_ns += 10 * ELECTION_TIMEOUT
    solo.feed(solo.canvass(2, 0, 64))

    assert solo.module.next_deadline_ns() <= solo.now_ns
    effects = solo.wait(MS)

    assert path(effects) == ["CANVASS"]


def test_member_that_voted_in_a_higher_term_follows_no_older_leader() -> None:
    """Raft paper §5.1: or its acknowledgement could commit what the newer leader does not have."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.request_vote(1, 5, 0, 64))

    effects = solo.feed(solo.new_term(2, 4, 64, commit=64), solo.commit(2, 64, term_id=4))
    solo.wait(ELECTION_TIMEOUT)
    effects += solo.feed(solo.new_term(2, 4, 64, commit=64))

    reason = Reason(ReasonKind.VOTED_IN_HIGHER_TERM, candidate_term_id=5)
    assert effects == [fx.LeaderRefused(MemberId(2), 4, reason)]
    assert solo.ctx.commit_position == 0


def test_its_canvass_tells_the_older_leader_of_the_term_it_voted_in() -> None:
    """So that the older leader steps down and nobody is left out."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.request_vote(1, 5, 0, 64))

    effects = solo.wait(ELECTION_TIMEOUT + STATUS_INTERVAL + MS)

    assert messages(effects, CanvassPosition)[-1].leadership_term_id == 5
