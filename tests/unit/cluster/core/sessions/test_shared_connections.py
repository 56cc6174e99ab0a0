"""A connection with many sessions: those of one shown secret are one client's, and nobody else's."""

from __future__ import annotations

from tests.unit.cluster.core.sessions.test_sessions import (
    SECRET,
    answers,
    appended,
    codes,
    deliver,
    keep_alive,
    lose_leadership,
    session_id_of,
    show,
)
from tests.unit.cluster.core.solo import Solo, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.service_api.types import CorrelationId, TermId
from trimaran.service_api.wire.log.messages import SessionOpenEvent
from trimaran.service_api.wire.session import EventCode, NewLeaderEvent, SessionConnectRequest, SessionEvent
from trimaran.service_api.wire.session_token import token_channel


def request(number: int, *, secret: bytes = SECRET) -> SessionConnectRequest:
    return SessionConnectRequest(
        correlation_id=CorrelationId(100 + number),
        response_stream_id=102,
        version=256,
        response_channel=f"{token_channel(secret)}|alias={number}",
    )


def open_many(solo: Solo, count: int, *, connection_id: int = 7, secret: bytes = SECRET) -> list[fx.Effect]:
    """Open sessions on one connection, one after the other."""
    effects: list[fx.Effect] = []
    for number in range(count):
        effects += solo.feed(ev.ClientConnect(connection_id, request(number, secret=secret)))
        effects += deliver(solo, *appended(solo))
    return effects


def bindings(effects: list[fx.Effect]) -> list[tuple[int, int]]:
    return [(effect.connection_id, effect.cluster_session_id) for effect in of(effects, fx.BindIngress)]


def test_one_keep_alive_with_the_secret_takes_all_sessions_of_it_to_a_new_connection() -> None:
    solo = Solo().lead()
    open_many(solo, 3)

    effects = solo.feed(show(2, connection_id=8), keep_alive(2, connection_id=8))

    assert sorted(bindings(effects)) == [(8, 1), (8, 2), (8, 3)]
    assert sorted(effect.cluster_session_id for effect in of(effects, fx.UnbindIngress)) == [1, 2, 3]
    told = [message.cluster_session_id for _, message in answers(effects) if isinstance(message, NewLeaderEvent)]
    assert sorted(told) == [1, 2, 3]
    assert solo.feed(keep_alive(1, connection_id=8)) == []


def test_who_opens_a_session_of_anothers_digest_gets_that_one_alone() -> None:
    """The digest is in the log: without the secret it opens nothing, and moves nothing."""
    solo = Solo().lead()
    open_many(solo, 2)

    effects = solo.feed(ev.ClientConnect(9, request(50)))
    effects += deliver(solo, *appended(solo))
    effects += solo.feed(keep_alive(3, connection_id=9), keep_alive(1, connection_id=9))

    assert bindings(effects) == [(9, 3)]
    assert solo.module.sessions._connections == {1: 7, 2: 7, 3: 9}
    assert codes(effects) == [EventCode.OK, EventCode.AUTHENTICATION_REJECTED]


def test_sessions_of_another_secret_stay_where_they_are() -> None:
    solo = Solo().lead()
    open_many(solo, 2)
    open_many(solo, 1, connection_id=9, secret=b"of another")

    effects = solo.feed(show(3, connection_id=9, secret=b"of another"), keep_alive(3, connection_id=9))

    assert bindings(effects) == []
    assert solo.module.sessions._connections == {1: 7, 2: 7, 3: 9}


def test_follower_binds_what_is_opened_later_to_the_connection_that_has_shown_the_secret() -> None:
    """One proof for all, whether they are open by then or not; when it leads, it tells each of them."""
    leader = Solo().lead()
    open_events = []
    for number in range(3):
        leader.feed(ev.ClientConnect(7, request(number)))
        (event,) = appended(leader)
        deliver(leader, event)
        assert isinstance(event, SessionOpenEvent)
        open_events.append(event)
    solo = Solo()
    solo.module.on_replay_session_open(open_events[0], 0)
    solo.feed(show(1, connection_id=9), keep_alive(1, connection_id=9, term_id=-1))
    for event in open_events[1:]:
        solo.module.on_replay_session_open(event, 0)

    solo.lead()

    assert bindings(solo.effects) == [(9, 1), (9, 2), (9, 3)]


def test_closing_one_session_leaves_the_others_on_the_connection() -> None:
    solo = Solo().lead()
    open_many(solo, 3)

    effects = solo.feed(ev.ClientClose(7, TermId(0), session_id_of(2)))
    effects += deliver(solo, *appended(solo))

    assert {(effect.connection_id, effect.cluster_session_id) for effect in of(effects, fx.UnbindIngress)} == {(7, 2)}
    assert solo.module.sessions._connections == {1: 7, 3: 7}
    assert solo.module.sessions.is_any_on(7)


def test_who_asks_twice_for_one_session_gets_the_first_and_the_others_go_on() -> None:
    solo = Solo().lead()
    open_many(solo, 2)

    effects = solo.feed(ev.ClientConnect(7, request(1).model_copy(update={"correlation_id": CorrelationId(900)})))
    effects += deliver(solo, *appended(solo))

    assert bindings(effects) == []
    assert solo.module.sessions._connections == {1: 7, 2: 7}


def test_connection_is_refused_more_sessions_than_the_limit_and_keeps_those_it_has() -> None:
    solo = Solo(connection_session_limit=2).lead()
    open_many(solo, 2)

    effects = solo.feed(ev.ClientConnect(7, request(2)))

    ((connection_id, answer),) = answers(effects)
    assert isinstance(answer, SessionEvent)
    assert (connection_id, answer.code) == (7, EventCode.ERROR)
    assert answer.detail == "sessions of one connection: sessions=2 limit=2"
    assert [effect.close_after for effect in of(effects, fx.SendToClient)] == [False]


def test_requests_that_are_not_delivered_yet_count() -> None:
    """Or the limit could be passed by as many as come in one round trip."""
    solo = Solo(connection_session_limit=2).lead()

    effects = solo.feed(*(ev.ClientConnect(7, request(number)) for number in range(5)))

    assert len(appended(solo)) == 2
    assert codes(effects) == [EventCode.ERROR] * 3


def test_new_term_forgets_what_was_not_committed_of_a_connection() -> None:
    solo = Solo(connection_session_limit=2).lead()
    solo.feed(ev.ClientConnect(7, request(0)), ev.ClientConnect(7, request(1)))

    lose_leadership(solo)

    assert solo.module.sessions._held_count(7) == solo.module.sessions._opening_count(7) == 0
    assert not solo.module.sessions._sessions_by_secret


def test_session_that_its_client_did_not_take_is_not_kept_alive_by_the_one_that_it_took() -> None:
    """Asked for twice, opened twice under a leader that is gone: the second one belongs to nobody and times out."""
    first, second = (
        SessionOpenEvent(
            leadership_term_id=TermId(0),
            correlation_id=CorrelationId(70 + number),
            cluster_session_id=session_id_of(number),
            timestamp=0,
            response_stream_id=102,
            response_channel=token_channel(SECRET),
            encoded_principal=b"",
        )
        for number in (1, 2)
    )
    solo = Solo()
    solo.module.on_replay_session_open(first, 0)
    solo.feed(show(1, connection_id=9), keep_alive(1, connection_id=9, term_id=-1))
    solo.module.on_replay_session_open(second, 0)
    solo.feed(keep_alive(1, connection_id=9, term_id=-1))

    solo.lead()
    solo.feed(show(1, connection_id=10), keep_alive(1, connection_id=10))

    assert bindings(solo.effects) == [(9, 1), (10, 1)]
