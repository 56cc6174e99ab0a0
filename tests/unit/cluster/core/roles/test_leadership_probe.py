"""Reads without a log entry: whose word a leader needs, from when, and what a follower may take for how old."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import Solo, messages, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.messages.consensus import CommitPosition
from trimaran.cluster.messages.reads import (
    LeadershipProbe,
    LeadershipProbeAck,
    ReadPosition,
    ReadPositionRequest,
)
from trimaran.service_api import InvariantViolation
from trimaran.service_api.types import MemberId, TermId
from trimaran.service_api.wire.message import Message

OLD_TERM = [(3, 0, 640)]


def leader(member_count: int = 3) -> Solo:
    """Leads term 4 from 640 on; nothing of it is committed."""
    if member_count == 1:
        solo = Solo(member_count=1, terms=OLD_TERM)
        solo.feed(ev.ReplayDone(640, 0))
        assert solo.module.leader is not None
        return solo
    return Solo(member_count=member_count, terms=OLD_TERM).lead()


def ack(solo: Solo, member_id: int, probe_id: int, *, term_id: int | None = None) -> LeadershipProbeAck:
    return LeadershipProbeAck(
        leadership_term_id=TermId(solo.ctx.leadership_term_id if term_id is None else term_id),
        probe_id=probe_id,
        follower_member_id=MemberId(member_id),
    )


def probe(term_id: int, *, leader_id: int = 1, probe_id: int = 1) -> LeadershipProbe:
    return LeadershipProbe(leadership_term_id=TermId(term_id), probe_id=probe_id, leader_member_id=MemberId(leader_id))


def request(solo: Solo, member_id: int, asked_ns: int) -> ReadPositionRequest:
    return ReadPositionRequest(
        leadership_term_id=solo.ctx.leadership_term_id, asked_ns=asked_ns, follower_member_id=MemberId(member_id)
    )


def position(solo: Solo, asked_ns: int, log_position: int, *, leader_id: int = 1) -> ReadPosition:
    return ReadPosition(
        leadership_term_id=solo.ctx.leadership_term_id,
        asked_ns=asked_ns,
        log_position=log_position,
        leader_member_id=MemberId(leader_id),
    )


# --- the leader


def test_leader_asks_the_others_and_is_confirmed_by_a_majority() -> None:
    """Raft dissertation §6.4."""
    solo = leader()

    asked = solo.feed(ev.ReadsWanted(1))
    confirmed = solo.feed(ack(solo, 1, 1))

    assert [message.probe_id for message in messages(asked, LeadershipProbe)] == [1, 1]
    assert of(asked, fx.ReadConfirmed) == []
    assert confirmed == [fx.ReadConfirmed(1, 640, solo.now_ns)]


def test_leader_of_five_needs_two_others() -> None:
    solo = Solo(member_count=5, terms=OLD_TERM)
    for member_id in (1, 2, 3, 4):
        solo.feed(solo.canvass(member_id, 3, 640))
    solo.wait(solo.ctx.config.election_timeout_ns)
    solo.feed(*(solo.vote(member_id, vote=True) for member_id in (1, 2, 3, 4)))
    solo.feed(solo.append_position(1, 640), solo.append_position(2, 640), ev.ReplayDone(640, 0))
    solo.feed(ev.ReadsWanted(1))

    first = solo.feed(ack(solo, 1, 1))
    again = solo.feed(ack(solo, 1, 1))
    second = solo.feed(ack(solo, 4, 1))

    assert (of(first, fx.ReadConfirmed), of(again, fx.ReadConfirmed)) == ([], [])
    assert [effect.through for effect in of(second, fx.ReadConfirmed)] == [1]


def test_the_only_member_needs_no_round() -> None:
    solo = leader(member_count=1)

    effects = solo.feed(ev.ReadsWanted(7))

    assert effects == [fx.ReadConfirmed(7, 640, solo.now_ns)]


def test_what_is_asked_during_a_round_waits_for_the_next() -> None:
    """An acknowledgement may be older than a read that came while it was on its way."""
    solo = leader()
    solo.feed(ev.ReadsWanted(1))
    begun_ns = solo.now_ns
    solo.now_ns += MS

    meanwhile = solo.feed(ev.ReadsWanted(3))
    first = solo.feed(ack(solo, 1, 1))
    late = solo.feed(ack(solo, 2, 1))
    second = solo.feed(ack(solo, 2, 2))

    assert meanwhile == []
    assert of(first, fx.ReadConfirmed) == [fx.ReadConfirmed(1, 640, begun_ns)]
    assert [message.probe_id for message in messages(first, LeadershipProbe)] == [2, 2]
    assert late == []
    assert second == [fx.ReadConfirmed(3, 640, solo.now_ns)]


def test_acknowledgement_of_another_term_counts_for_nothing() -> None:
    solo = leader()
    solo.feed(ev.ReadsWanted(1))

    assert solo.feed(ack(solo, 1, 1, term_id=3)) == []


def test_read_position_is_what_was_committed_when_the_round_began() -> None:
    solo = leader()
    solo.record()
    solo.feed(solo.append_position(1, solo.ctx.append_position))
    committed = solo.ctx.commit_position

    solo.feed(ev.ReadsWanted(1))
    (effect,) = of(solo.feed(ack(solo, 2, 1)), fx.ReadConfirmed)

    assert committed > 640
    assert effect.log_position == committed


def test_leader_that_does_not_know_what_was_committed_before_it_stops() -> None:
    solo = leader()
    solo.ctx.commit_position = 320

    with pytest.raises(InvariantViolation, match="earlier terms"):
        solo.feed(ev.ReadsWanted(1))


def test_round_is_repeated_to_those_who_have_not_answered() -> None:
    solo = Solo(member_count=5, terms=OLD_TERM)
    for member_id in (1, 2, 3, 4):
        solo.feed(solo.canvass(member_id, 3, 640))
    solo.wait(solo.ctx.config.election_timeout_ns)
    solo.feed(*(solo.vote(member_id, vote=True) for member_id in (1, 2, 3, 4)))
    solo.feed(solo.append_position(1, 640), solo.append_position(2, 640), ev.ReplayDone(640, 0))
    solo.feed(ev.ReadsWanted(1))
    solo.feed(ack(solo, 1, 1))

    effects = solo.wait(solo.ctx.config.leader_heartbeat_interval_ns)

    assert [len(messages(effects, LeadershipProbe, to=member_id)) for member_id in (1, 2, 3, 4)] == [0, 1, 1, 1]


def test_nothing_is_repeated_once_a_round_is_over() -> None:
    solo = leader()
    solo.feed(ev.ReadsWanted(1))
    solo.feed(ack(solo, 1, 1))

    effects = solo.wait(solo.ctx.config.leader_heartbeat_interval_ns)

    assert messages(effects, LeadershipProbe) == []


def test_a_deposed_leader_confirms_nothing() -> None:
    solo = leader()
    solo.feed(ev.ReadsWanted(1))
    solo.feed(solo.request_vote(1, 9, 8, 1 << 20))

    effects = solo.feed(ack(solo, 1, 1, term_id=4), ack(solo, 2, 1, term_id=4), ev.ReadsWanted(2))

    assert of(effects, fx.ReadConfirmed) == []


# --- who acknowledges


def test_follower_acknowledges_its_leader() -> None:
    solo = Solo(terms=OLD_TERM).follow(1, 4)

    effects = solo.feed(probe(4, probe_id=5))

    assert effects == [fx.SendToMember(MemberId(1), ack(solo, 0, 5))]


@pytest.mark.parametrize(("term_id", "leader_id"), [(3, 1), (5, 1), (4, 2)])
def test_follower_acknowledges_no_other_term_or_leader(term_id: int, leader_id: int) -> None:
    solo = Solo(terms=OLD_TERM).follow(1, 4)

    assert messages(solo.feed(probe(term_id, leader_id=leader_id)), LeadershipProbeAck) == []


def test_member_in_an_election_acknowledges_nobody() -> None:
    """It may vote for somebody else in the same instant."""
    solo = Solo(terms=OLD_TERM).follow(1, 4)
    solo.feed(ev.LinkChanged(MemberId(1), is_up=False))

    assert messages(solo.feed(probe(4)), LeadershipProbeAck) == []


def test_member_that_takes_part_in_a_higher_term_acknowledges_nobody() -> None:
    solo = Solo(terms=OLD_TERM).follow(1, 4)
    solo.ctx.candidate_term_id = TermId(5)

    assert messages(solo.feed(probe(4)), LeadershipProbeAck) == []


def test_leader_acknowledges_nobody() -> None:
    solo = leader()

    assert messages(solo.feed(probe(4, leader_id=0)), LeadershipProbeAck) == []


# --- a follower that reads


def test_follower_asks_its_leader_and_counts_from_when_it_asked() -> None:
    solo = Solo(terms=OLD_TERM).follow(1, 4)
    asked_ns = solo.now_ns

    asked = solo.feed(ev.ReadsWanted(2))
    solo.now_ns += 5 * MS
    effects = solo.feed(position(solo, asked_ns, 960))

    assert asked == [fx.SendToMember(MemberId(1), request(solo, 0, asked_ns))]
    assert effects == [fx.ReadConfirmed(2, 960, asked_ns)]


def test_follower_asks_once_for_all_that_come_meanwhile() -> None:
    solo = Solo(terms=OLD_TERM).follow(1, 4)
    first_ns = solo.now_ns
    solo.feed(ev.ReadsWanted(1))
    solo.now_ns += MS

    meanwhile = solo.feed(ev.ReadsWanted(2), ev.ReadsWanted(5))
    solo.now_ns += MS
    effects = solo.feed(position(solo, first_ns, 960))

    assert meanwhile == []
    assert of(effects, fx.ReadConfirmed) == [fx.ReadConfirmed(1, 960, first_ns)]
    assert [message.asked_ns for message in messages(effects, ReadPositionRequest)] == [solo.now_ns]


def test_late_answer_to_an_earlier_question_makes_nothing_look_new() -> None:
    """It may come from before a restart: only the time that it says again tells which question it answers."""
    solo = Solo(terms=OLD_TERM).follow(1, 4)
    solo.feed(ev.ReadsWanted(1))

    assert solo.feed(position(solo, solo.now_ns - MS, 960)) == []
    (refused,) = solo.feed(position(solo, solo.now_ns, 960, leader_id=2))
    assert isinstance(refused, fx.MessageRefused)


def test_follower_asks_again_with_the_same_time() -> None:
    solo = Solo(terms=OLD_TERM).follow(1, 4)
    asked_ns = solo.now_ns
    solo.feed(ev.ReadsWanted(1))

    effects = solo.wait(solo.ctx.config.leader_heartbeat_interval_ns)

    assert [message.asked_ns for message in messages(effects, ReadPositionRequest)] == [asked_ns]


def test_leader_answers_a_follower_with_a_round_that_began_after_it_asked() -> None:
    solo = leader()
    solo.feed(ev.ReadsWanted(1))
    asked = solo.feed(request(solo, 2, 12345))

    first = solo.feed(ack(solo, 1, 1))
    second = solo.feed(ack(solo, 1, 2))

    assert asked == []
    assert messages(first, ReadPosition) == []
    (answer,) = messages(second, ReadPosition, to=2)
    assert (answer.asked_ns, answer.log_position, answer.leader_member_id) == (12345, 640, 0)


def test_follower_that_asks_where_to_read_is_told_first_that_it_is_committed() -> None:
    """It would wait for the next log otherwise, or for the next heartbeat."""
    solo = leader()
    solo.record()
    for member_id in (1, 2):
        solo.feed(ev.LinkChanged(MemberId(member_id), True), ev.LiveJoined(MemberId(member_id), 640))
    solo.feed(solo.append_position(1, 736))

    asked = solo.feed(request(solo, 2, 12345))

    assert [message.WIRE_NAME for message in messages(asked, Message, to=2)] == ["CommitPosition", "LeadershipProbe"]
    assert [message.log_position for message in messages(asked, CommitPosition, to=2)] == [736]


def test_leader_answers_no_question_of_another_term() -> None:
    solo = leader()
    question = request(solo, 2, 1).model_copy(update={"leadership_term_id": TermId(3)})

    assert solo.feed(question) == []
