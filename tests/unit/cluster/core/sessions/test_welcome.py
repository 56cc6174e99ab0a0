"""A new leader tells its clients, a slice in a turn: each once, first who asks, and none that is gone."""

from __future__ import annotations

from collections import Counter

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.sessions.test_sessions import (
    SECRET,
    answers,
    keep_alive,
    lose_leadership,
    session_id_of,
    show,
)
from tests.unit.cluster.core.solo import Solo, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.sessions.sessions import WELCOME_SLICE
from trimaran.service_api.types import CorrelationId, TermId
from trimaran.service_api.wire.log.messages import SessionOpenEvent
from trimaran.service_api.wire.session import NewLeaderEvent
from trimaran.service_api.wire.session_token import token_channel

MANY = 3 * WELCOME_SLICE


def secret_of(session_id: int) -> bytes:
    return b"of session %d" % session_id


def open_event(session_id: int, response_channel: str) -> SessionOpenEvent:
    return SessionOpenEvent(
        leadership_term_id=TermId(0),
        correlation_id=CorrelationId(session_id),
        cluster_session_id=session_id_of(session_id),
        timestamp=0,
        response_stream_id=102,
        response_channel=response_channel,
    )


def follower_with_many(count: int = MANY) -> Solo:
    """A follower that has sessions, each with its client on a connection of the same number plus 1000."""
    solo = Solo()
    for session_id in range(1, count + 1):
        solo.module.on_replay_session_open(open_event(session_id, token_channel(secret_of(session_id))), 0)
        connection_id = 1000 + session_id
        solo.feed(
            show(session_id, connection_id=connection_id, secret=secret_of(session_id)),
            keep_alive(session_id, connection_id=connection_id, term_id=-1),
        )
    solo.take()
    solo.effects.clear()
    return solo


def welcomed(effects: list[fx.Effect]) -> list[tuple[int, int]]:
    return [
        (connection_id, message.cluster_session_id)
        for connection_id, message in answers(effects)
        if isinstance(message, NewLeaderEvent)
    ]


def test_many_clients_are_told_a_slice_in_a_turn_and_each_once() -> None:
    solo = follower_with_many()

    solo.lead()
    at_once = welcomed(solo.effects)
    turns = [welcomed(solo.wait(0)) for _ in range(1)]
    later = welcomed(solo.wait(MS))

    assert 0 < len(at_once) <= 2 * WELCOME_SLICE < MANY
    assert all(len(turn) <= MANY - len(at_once) for turn in turns)
    told = [*at_once, *(one for turn in turns for one in turn), *later]
    assert told == [(1000 + session_id, session_id) for session_id in range(1, MANY + 1)]
    assert not solo.module.sessions.is_welcoming
    assert len(of(solo.effects, fx.BindIngress)) == MANY


def test_a_poll_tells_no_more_than_a_slice_and_the_next_one_is_due_at_once() -> None:
    solo = follower_with_many(5 * WELCOME_SLICE)
    solo.lead()
    counts = []

    while solo.module.sessions.is_welcoming:
        assert solo.module.next_deadline_ns() <= solo.now_ns
        solo.module.poll(now_ns=solo.now_ns, timestamp=solo.timestamp)
        counts.append(len(welcomed(solo.take())))

    assert counts
    assert max(counts) == WELCOME_SLICE


def test_who_asks_before_its_turn_is_told_at_once_and_not_again() -> None:
    solo = follower_with_many()
    solo.lead()
    last = MANY

    by_stray = solo.feed(ev.ClientStray(1000 + last, solo.ctx.leadership_term_id, session_id_of(last)))
    by_keep_alive = solo.feed(keep_alive(last - 1, connection_id=1000 + last - 1, term_id=-1))
    rest = solo.wait(MS)

    assert welcomed(by_stray) == [(1000 + last, last)]
    assert (1000 + last - 1, last - 1) in welcomed(by_keep_alive)
    assert not {last, last - 1} & {session_id for _, session_id in welcomed(rest)}
    counts = Counter(session_id for _, session_id in welcomed(solo.effects))
    assert set(counts.values()) == {1}


def test_keep_alive_of_a_client_that_waits_for_its_turn_is_news() -> None:
    solo = follower_with_many()
    solo.lead()

    assert solo.module.sessions.is_known(1001, session_id_of(1), solo.ctx.leadership_term_id)
    assert not solo.module.sessions.is_known(1000 + MANY, session_id_of(MANY), solo.ctx.leadership_term_id)


def test_who_has_gone_before_its_turn_is_not_told() -> None:
    solo = follower_with_many()
    solo.lead()

    solo.feed(ev.ClientDisconnected(1000 + MANY))
    rest = welcomed(solo.wait(MS))

    assert MANY not in {session_id for _, session_id in rest}
    assert MANY - 1 in {session_id for _, session_id in rest}


def test_leader_that_has_lost_its_place_tells_nobody_any_more() -> None:
    solo = follower_with_many()
    solo.lead()
    assert solo.module.sessions.is_welcoming

    effects = [*lose_leadership(solo), *solo.wait(MS)]

    assert welcomed(effects) == []
    assert not solo.module.sessions.is_welcoming


def test_new_connection_that_many_sessions_share_is_bound_a_slice_at_a_time() -> None:
    solo = Solo().lead()
    for session_id in range(1, MANY + 1):
        channel = f"{token_channel(SECRET)}|alias={session_id}"
        solo.module.on_replay_session_open(open_event(session_id, channel), 0)

    first = solo.feed(show(2, connection_id=8), keep_alive(2, connection_id=8))
    rest = solo.wait(MS)

    assert len(of(first, fx.BindIngress)) == 1 + WELCOME_SLICE
    told = [session_id for _, session_id in welcomed([*first, *rest])]
    assert sorted(told) == list(range(1, MANY + 1))
    assert {effect.connection_id for effect in of([*first, *rest], fx.BindIngress)} == {8}


def test_clients_are_told_where_the_members_are_a_slice_at_a_time() -> None:
    solo = follower_with_many()
    solo.lead()
    solo.wait(MS)

    solo.module.sessions.tell_members()
    first = solo.take()
    solo.module.poll(now_ns=solo.now_ns, timestamp=solo.timestamp)
    second = solo.take()
    rest = solo.wait(MS)

    assert (len(welcomed(first)), len(welcomed(second))) == (0, WELCOME_SLICE)
    assert len(welcomed([*second, *rest])) == MANY
    assert of([*second, *rest], fx.BindIngress) == []
