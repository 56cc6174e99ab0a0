"""What a stranger may say in a member's name: no numbers end a member, and none that is absurd reaches a file."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.forged import PHASES
from tests.unit.cluster.core.harness import Cluster
from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import S, Solo, messages, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core.peers.message_rules import SENDER_FIELDS
from trimaran.cluster.core.vocabulary.reason import ReasonKind
from trimaran.cluster.core.vocabulary.terms import FAILED_TERM_LIMIT, TERM_LEAP_LIMIT
from trimaran.cluster.messages.condition import ConditionQuery, MemberCondition
from trimaran.cluster.messages.consensus import CanvassPosition, RequestVote
from trimaran.service_api.types import MemberId, TermId

LAST = (1 << 63) - 1
ALMOST_LAST = LAST - 1
"""The term of the issue: 2^63 - 2."""


def condition_of(solo: Solo, member_id: int, term_id: int) -> MemberCondition:
    """Another member's answer to the newest question that it was asked."""
    question = messages(solo.effects, ConditionQuery, to=member_id)[-1]
    return MemberCondition(
        nonce=question.nonce,
        epoch_ms=solo.timestamp,
        leadership_term_id=TermId(term_id),
        reluctance=0,
        member_id=MemberId(member_id),
    )


# --- terms that leap


@pytest.mark.parametrize("phase", PHASES)
def test_request_for_a_vote_in_term_2_to_the_63_minus_2_changes_nothing(phase: str) -> None:
    """The issue: one such message ended every node with a traceback, for good."""
    solo = PHASES[phase]()
    before = (solo.ctx.candidate_term_id, solo.ctx.leadership_term_id, solo.state)

    effects = solo.feed(solo.request_vote(2, ALMOST_LAST, 0, 640))

    assert of(effects, fx.PersistCandidateTerm) == []
    assert [refused.message for refused in of(effects, fx.MessageRefused)] == ["RequestVote"]
    assert (solo.ctx.candidate_term_id, solo.ctx.leadership_term_id, solo.state) == before


def test_term_that_leaps_has_its_sender_asked_and_is_believed_once_that_one_vouches_for_it() -> None:
    """No honest member is shut out, however long this one was away."""
    solo = Solo(terms=[(0, 0, 640)])
    solo.now_ns += 100 * MS
    request = solo.request_vote(1, 1_000_000, 999_999, 1 << 30)

    effects = solo.feed(request)
    assert [refused.message for refused in of(effects, fx.MessageRefused)] == ["RequestVote"]
    assert len(messages(effects, ConditionQuery, to=1)) == 1
    solo.feed(condition_of(solo, 1, 1_000_000))
    effects = solo.feed(request)

    assert of(effects, fx.PersistCandidateTerm) == [fx.PersistCandidateTerm(1_000_000, 640, solo.timestamp)]
    assert solo.is_in(S.FOLLOWER_BALLOT)


def test_answer_to_no_question_vouches_for_nothing() -> None:
    solo = Solo(terms=[(0, 0, 640)])
    forged = condition_of(solo, 1, 1_000_000).model_copy(update={"nonce": 7})

    solo.feed(forged, solo.request_vote(1, 1_000_000, 0, 640))

    assert solo.ctx.candidate_term_id == 0


def test_answer_vouches_once() -> None:
    solo = Solo(terms=[(0, 0, 640)])
    answer = condition_of(solo, 1, 5)
    solo.feed(answer)

    solo.feed(answer.model_copy(update={"leadership_term_id": 1_000_000}))

    assert solo.ctx.vouched_term_id == 5


@pytest.mark.parametrize("term_id", [ALMOST_LAST, LAST, 1 << 62])
def test_no_member_vouches_for_a_term_that_cannot_be_counted_on(term_id: int) -> None:
    solo = Solo(terms=[(0, 0, 640)])

    solo.feed(condition_of(solo, 1, term_id), solo.request_vote(1, term_id, 0, 640))

    assert solo.ctx.candidate_term_id == 0


def test_stranger_cannot_go_on_from_a_term_that_it_raised() -> None:
    solo = Solo(terms=[(0, 0, 640)])

    for _ in range(1000):
        solo.feed(solo.request_vote(1, solo.ctx.candidate_term_id + TERM_LEAP_LIMIT, 0, 640))

    assert solo.ctx.candidate_term_id <= TERM_LEAP_LIMIT


@pytest.mark.parametrize("seed", range(3))
def test_member_that_was_away_for_a_thousand_terms_comes_back(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.start()
    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=5_000 * MS)
    cluster.run(300 * MS)
    away = MemberId(seed)
    for node in cluster.nodes.values():
        cluster.crash(node.member_id)
        if node.member_id != away:
            node.disk.candidate_term_id = TermId(1_000)
    cluster.start(*(member_id for member_id in cluster.nodes if member_id != away))
    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=20_000 * MS)

    cluster.start(away)

    assert cluster.run_until(lambda: cluster.nodes[away].module.follower is not None, limit_ns=20_000 * MS)
    assert cluster.nodes[away].ctx.leadership_term_id > 1_000
    cluster.settle()


# --- a term on disk that an older version believed


def test_member_with_an_absurd_term_on_disk_does_not_stand_and_says_which_command_mends_it() -> None:
    solo = Solo(terms=[(0, 0, 640)], candidate_term_id=ALMOST_LAST)

    solo.feed(solo.canvass(1, 0, 640, term_id=ALMOST_LAST), solo.canvass(2, 0, 640, term_id=ALMOST_LAST))
    solo.wait(2_000 * MS)

    assert solo.is_in(S.CANVASS)
    refused = of(solo.effects, fx.NominationRefused)
    assert {one.reason.kind for one in refused} == {ReasonKind.VOTE_STATE_UNUSABLE}
    assert "trimaran reset-candidate-term" in str(refused[0].reason)
    assert of(solo.effects, fx.PersistCandidateTerm) == []


def test_only_member_with_an_absurd_term_on_disk_does_not_lead_and_says_why() -> None:
    solo = Solo(member_count=1, terms=[(0, 0, 640)], candidate_term_id=ALMOST_LAST)

    solo.wait(1_000 * MS)

    (refused,) = of(solo.effects, fx.NominationRefused)
    assert refused.reason.kind is ReasonKind.VOTE_STATE_UNUSABLE


def test_one_member_with_an_absurd_term_on_disk_does_not_stop_the_others() -> None:
    cluster = Cluster(4)
    cluster.start()
    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=5_000 * MS)
    cluster.run(300 * MS)
    for node in cluster.nodes.values():
        cluster.crash(node.member_id)
    cluster.nodes[MemberId(0)].disk.candidate_term_id = TermId(ALMOST_LAST)

    cluster.start()

    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=20_000 * MS)
    assert max(node.disk.candidate_term_id for node in cluster.nodes.values() if node.member_id) < FAILED_TERM_LIMIT
    assert cluster.failures == []


# --- any numbers


@pytest.mark.parametrize("member_id", [0, 3, -1, (1 << 31) - 1])
def test_message_in_the_name_of_no_other_member_is_refused(member_id: int) -> None:
    solo = Solo(terms=[(0, 0, 640)])

    (refused,) = solo.feed(solo.canvass(member_id, 0, 640))

    assert isinstance(refused, fx.MessageRefused)
    assert (refused.member_id, refused.message) == (None, CanvassPosition.__name__)


def test_follower_cannot_have_recorded_what_the_leader_has_not_appended() -> None:
    solo = Solo(terms=[(0, 0, 640)]).lead()
    solo.record()

    effects = solo.feed(solo.append_position(1, 1 << 40))

    assert [refused.message for refused in of(effects, fx.MessageRefused)] == ["AppendPosition"]
    assert solo.ctx.commit_position == 640


def test_candidate_is_answered_as_ever() -> None:
    """A request that names an old term is no fault: it is refused by the protocol's own rules."""
    solo = Solo(terms=[(0, 0, 640)])

    effects = solo.feed(solo.request_vote(1, 0, 0, 640))

    assert of(effects, fx.MessageRefused) == []
    assert of(effects, fx.VoteRefused) != []
    assert RequestVote in SENDER_FIELDS
