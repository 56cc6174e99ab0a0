"""Client sessions: opened and closed through the log, undone when it does not commit, held by one client at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import Solo, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.sessions.session_state import SessionState, enter
from trimaran.cluster.core.sessions.sessions import ClusterSession, SessionManager
from trimaran.service_api import CloseReason
from trimaran.service_api.types import ClusterSessionId, CorrelationId, TermId
from trimaran.service_api.wire.frame import HEADER_LENGTH
from trimaran.service_api.wire.log.messages import LOG_MESSAGES, SessionCloseEvent, SessionOpenEvent
from trimaran.service_api.wire.message import Message, decode_message, peek_header
from trimaran.service_api.wire.session import (
    EventCode,
    NewLeaderEvent,
    SessionConnectRequest,
    SessionEvent,
    SessionLimits,
)
from trimaran.service_api.wire.session_token import token_channel

SECRET = b"only its client knows it"
ENDPOINTS = "0=host0:9000,1=host1:9000,2=host2:9000"


def connect(connection_id: int = 7, *, correlation_id: int = 70, version: int = 256) -> ev.ClientConnect:
    request = SessionConnectRequest(
        correlation_id=CorrelationId(correlation_id),
        response_stream_id=102,
        version=version,
        response_channel=token_channel(SECRET),
    )
    return ev.ClientConnect(connection_id, request)


def session_id_of(value: int) -> ClusterSessionId:
    return ClusterSessionId(value)


def appended(solo: Solo) -> list[Message]:
    """Take the events that were appended to the log since the last look."""
    found = []
    for chunk in solo.ctx.log_buffer.take_pending():
        _, template_id, _, _ = peek_header(chunk, HEADER_LENGTH)
        if template_id in (SessionOpenEvent.TEMPLATE_ID, SessionCloseEvent.TEMPLATE_ID):
            found.append(decode_message(chunk[HEADER_LENGTH:], registry=LOG_MESSAGES))
    return found


def appended_close(solo: Solo) -> tuple[int, CloseReason | None]:
    """Take the only event that was appended, which closes a session: which one, and why."""
    (event,) = appended(solo)
    assert isinstance(event, SessionCloseEvent)
    return event.cluster_session_id, event.close_reason


def answers(effects: list[fx.Effect]) -> list[tuple[int, Message]]:
    return [(effect.connection_id, effect.message) for effect in of(effects, fx.SendToClient)]


def codes(effects: list[fx.Effect]) -> list[EventCode | None]:
    return [message.code for _, message in answers(effects) if isinstance(message, SessionEvent)]


def deliver(solo: Solo, *events: Message) -> list[fx.Effect]:
    """Let committed session events be delivered."""
    solo.ctx.commit_position = solo.ctx.log_buffer.append_position
    for event in events:
        if isinstance(event, SessionOpenEvent):
            solo.module.on_replay_session_open(event, solo.ctx.log_buffer.append_position)
        elif isinstance(event, SessionCloseEvent):
            solo.module.on_replay_session_close(event)
    return solo.take()


def opened(solo: Solo, connection_id: int = 7) -> ClusterSession:
    """Open a session all the way."""
    solo.feed(connect(connection_id))
    (event,) = appended(solo)
    deliver(solo, event)
    assert isinstance(event, SessionOpenEvent)
    return solo.module.sessions.sessions[event.cluster_session_id]


def keep_alive(session_id: int, *, connection_id: int = 7, term_id: int = 0) -> ev.ClientKeepAlive:
    return ev.ClientKeepAlive(connection_id, TermId(term_id), session_id_of(session_id))


def show(session_id: int, *, connection_id: int = 7, secret: bytes = SECRET) -> ev.ClientChallengeResponse:
    """A client shows the secret of its session on a connection."""
    return ev.ClientChallengeResponse(connection_id, CorrelationId(-1), session_id_of(session_id), secret)


def lose_leadership(solo: Solo) -> list[fx.Effect]:
    return solo.feed(solo.request_vote(1, solo.ctx.candidate_term_id + 1, 5, 1 << 20))


# --- opening


def test_leader_appends_the_open_first_and_answers_when_it_is_delivered() -> None:
    """An open that never commits gives its id back: nobody may have been told of it."""
    solo = Solo().lead()

    at_once = solo.feed(connect(7, correlation_id=70))
    (event,) = appended(solo)
    later = deliver(solo, event)

    assert isinstance(event, SessionOpenEvent)
    assert (event.cluster_session_id, event.correlation_id, event.leadership_term_id) == (1, 70, 0)
    assert (answers(at_once), of(at_once, fx.BindIngress)) == ([], [])
    limits, (connection_id, answer) = answers(later)
    config = solo.ctx.config
    timeout_ms = config.session_timeout_ns // MS
    assert limits == (
        7,
        SessionLimits(
            max_message_length=config.term_length_bytes // 8,
            group_index=0,
            group_count=1,
            session_timeout_ms=timeout_ms,
        ),
    )
    assert isinstance(answer, SessionEvent)
    assert (connection_id, answer.code, answer.cluster_session_id, answer.correlation_id) == (7, EventCode.OK, 1, 70)
    assert (answer.leader_member_id, answer.leadership_term_id, answer.detail) == (0, 0, ENDPOINTS)
    assert of(later, fx.BindIngress) == [fx.BindIngress(7, session_id_of(1), TermId(0))]


def test_client_that_waited_for_a_leader_that_lost_its_place_is_sent_to_ask_again() -> None:
    """The session may or may not come to be; the client must not believe in it."""
    solo = Solo().lead()
    solo.feed(connect(7, correlation_id=70))

    effects = lose_leadership(solo)

    ((connection_id, answer),) = answers(effects)
    assert isinstance(answer, SessionEvent)
    assert (connection_id, answer.code, answer.correlation_id) == (7, EventCode.REDIRECT, 70)
    assert answer.leader_member_id == -1
    assert solo.module.sessions.sessions == {}


def test_client_that_left_before_its_open_was_delivered_is_not_bound() -> None:
    """The session is there all the same, until it times out."""
    solo = Solo().lead()
    solo.feed(connect(7), ev.ClientDisconnected(7))

    effects = deliver(solo, *appended(solo))

    assert (answers(effects), of(effects, fx.BindIngress)) == ([], [])
    assert [*solo.module.sessions.sessions] == [1]


def test_client_that_asks_twice_on_one_connection_keeps_it_for_the_first_session() -> None:
    """It takes the first answer, and what it sends in that session must not be lost to the second.

    Seed 15000243 at d95223a: the leader stood still meanwhile, and was suspended between the two.
    """
    solo = Solo().lead()
    solo.feed(connect(7, correlation_id=70), connect(7, correlation_id=71))

    first, second = appended(solo)
    effects = deliver(solo, first) + deliver(solo, second)

    assert of(effects, fx.BindIngress) == [fx.BindIngress(7, session_id_of(1), TermId(0))]
    assert [answer.cluster_session_id for _, answer in answers(effects) if isinstance(answer, SessionEvent)] == [1, 2]
    assert solo.module.sessions.connection_of(session_id_of(1)) == 7
    assert solo.feed(ev.ClientClose(7, TermId(0), session_id_of(2))) == []
    solo.wait(100 * MS)
    assert appended_close(solo) == (2, CloseReason.CLIENT_ACTION)


def test_connection_whose_session_is_closing_takes_another() -> None:
    solo = Solo().lead()
    opened(solo, 7)
    solo.feed(ev.ClientClose(7, TermId(0), session_id_of(1)), connect(7, correlation_id=71))

    _, second = appended(solo)
    effects = deliver(solo, second)

    assert of(effects, fx.BindIngress) == [fx.BindIngress(7, session_id_of(2), TermId(0))]


def test_next_session_id_follows_the_log_and_not_what_a_deposed_leader_gave_out() -> None:
    """Hazards 11 and 13 of aeron.md §10: ids come from committed state, or two leaders reuse them differently."""
    solo = Solo().lead()
    opened(solo, 7)
    solo.feed(connect(8), connect(9))

    lose_leadership(solo)

    assert solo.module.sessions._next_session_id == 2
    assert [*solo.module.sessions.sessions] == [1]


def test_follower_redirects_to_its_leader() -> None:
    """Source: aeron.md §3.5: every member's endpoints, and who leads."""
    solo = Solo(terms=[(0, 0, 64)]).follow(leader_id=2)

    ((_, answer),) = answers(solo.feed(connect()))

    assert isinstance(answer, SessionEvent)
    assert (answer.code, answer.leader_member_id, answer.detail) == (EventCode.REDIRECT, 2, ENDPOINTS)


def test_electing_member_redirects_to_nobody() -> None:
    """Nobody leads yet: -1, and the client asks again after a while."""
    solo = Solo()

    ((_, answer),) = answers(solo.feed(connect()))

    assert isinstance(answer, SessionEvent)
    assert (answer.code, answer.leader_member_id) == (EventCode.REDIRECT, -1)


# --- closing


def test_client_closes_its_session() -> None:
    """ConsensusModuleAgentTest.shouldCloseTerminatedSession: append, tell the client, forget when delivered."""
    solo = Solo().lead()
    session = opened(solo)

    effects = solo.feed(ev.ClientClose(7, TermId(0), session.cluster_session_id))

    (event,) = appended(solo)
    assert isinstance(event, SessionCloseEvent)
    assert event.close_reason is CloseReason.CLIENT_ACTION
    assert codes(effects) == [EventCode.CLOSED]
    assert of(effects, fx.UnbindIngress) == [fx.UnbindIngress(7, 1)]
    assert [*solo.module.sessions.sessions] == [1]

    deliver(solo, event)

    assert solo.module.sessions.sessions == {}


def test_session_is_closed_once() -> None:
    """A second request, or a timeout meanwhile, appends nothing more."""
    solo = Solo().lead()
    session = opened(solo)

    solo.feed(*[ev.ClientClose(7, TermId(0), session.cluster_session_id)] * 2)
    solo.module.sessions.on_service_close(session.cluster_session_id)
    solo.feed(solo.append_position(1, 0))
    solo.wait(150 * MS)

    assert len(appended(solo)) == 1


def test_silent_session_times_out() -> None:
    """ConsensusModuleAgentTest.shouldCloseInactiveSession."""
    solo = Solo(leader_heartbeat_timeout_ns=60_000 * MS).lead()
    opened(solo)

    solo.wait(1_000 * MS)
    assert appended(solo) == []
    effects = solo.wait(200 * MS)

    assert appended_close(solo) == (1, CloseReason.TIMEOUT)
    assert [answer.detail for _, answer in answers(effects) if isinstance(answer, SessionEvent)] == ["TIMEOUT"]


@pytest.mark.parametrize("by_message", [True, False])
def test_session_that_sends_or_keeps_alive_does_not_time_out(by_message: bool) -> None:
    """The hot path keeps the time of the last message per connection; keep-alives come through the core."""
    solo = Solo(leader_heartbeat_timeout_ns=60_000 * MS).lead()
    session = opened(solo)
    solo.wait(900 * MS)

    if by_message:
        solo.activity_ns[7] = solo.now_ns
    else:
        solo.feed(keep_alive(session.cluster_session_id))
    solo.wait(900 * MS)

    assert appended(solo) == []


def test_new_leader_gives_every_session_its_time_again() -> None:
    """Source: aeron.md §3.5, becoming leader: the election must not time the clients out."""
    solo = Solo(leader_heartbeat_timeout_ns=60_000 * MS)
    solo.module.on_replay_session_open(open_event(3), 0)
    solo.wait(5_000 * MS)

    solo.lead()
    solo.wait(900 * MS)

    assert appended(solo) == []
    solo.wait(300 * MS)
    assert [type(event) for event in appended(solo)] == [SessionCloseEvent]


def test_sessions_of_a_snapshot_have_their_time_again_when_its_member_leads() -> None:
    """Source: aeron.md §3.5, after a snapshot: nobody could speak while the member loaded it and elected."""
    solo = Solo(terms=[(0, 0, 1024)], is_started=False, leader_heartbeat_timeout_ns=60_000 * MS)
    solo.ctx.commit_position = 1024
    solo.module.sessions.restore([restored(3), restored(4)], next_session_id=5)
    solo.now_ns += 5_000 * MS
    solo.start()

    solo.lead()
    solo.wait(900 * MS)

    assert appended(solo) == []
    solo.wait(300 * MS)
    assert [type(event) for event in appended(solo)] == [SessionCloseEvent] * 2


def restored(session_id: int) -> ClusterSession:
    session = ClusterSession(
        cluster_session_id=session_id_of(session_id),
        correlation_id=CorrelationId(session_id * 10),
        opened_log_position=512,
        response_stream_id=102,
        response_channel=token_channel(SECRET),
        encoded_principal=b"",
        time_of_last_activity_ns=0,
    )
    enter(session, SessionState.OPEN)
    return session


def test_sessions_that_are_heard_of_are_looked_at_once_in_a_session_timeout() -> None:
    """What a leader spends on sessions at rest does not grow with how often it looks for silent ones."""
    solo = Solo(leader_heartbeat_timeout_ns=60_000 * MS).lead()
    for connection_id in range(3):
        opened(solo, connection_id)
    manager, looked = solo.module.sessions, list[int]()
    assert solo.module.leader is not None

    def last_activity_ns(connection_id: int) -> int:
        looked.append(connection_id)
        return solo.now_ns

    for _ in range(300):
        solo.now_ns += 100 * MS
        solo.ctx.now_ns = solo.now_ns
        manager.poll(solo.module.leader.publisher, last_activity_ns)

    assert not appended(solo)
    assert len(looked) <= 3 * 30


def test_time_in_which_nobody_could_be_heard_is_no_silence() -> None:
    """A member that stood still, for a snapshot or because it was stopped, looks at its clock before its sockets."""
    solo = Solo(leader_heartbeat_timeout_ns=60_000 * MS).lead()
    opened(solo)
    solo.wait(500 * MS)

    solo.now_ns += 5_000 * MS
    solo.module.poll(now_ns=solo.now_ns, timestamp=solo.timestamp)
    solo.wait(400 * MS)

    assert appended(solo) == []
    solo.wait(300 * MS)
    assert [type(event) for event in appended(solo)] == [SessionCloseEvent]


def open_event(session_id: int) -> SessionOpenEvent:
    return SessionOpenEvent(
        leadership_term_id=TermId(0),
        correlation_id=CorrelationId(session_id * 10),
        cluster_session_id=session_id_of(session_id),
        timestamp=0,
        response_stream_id=102,
        response_channel=token_channel(SECRET),
    )


def test_whoever_leads_appends_the_close_that_the_service_asked_for() -> None:
    """Source: aeron.md §3.5: every member marks it at the same position, the leader appends."""
    solo = Solo(terms=[(0, 0, 64)]).follow()
    deliver(solo, open_event(3))
    solo.module.sessions.on_service_close(session_id_of(3))
    assert solo.module.sessions.sessions[session_id_of(3)].state is SessionState.CLOSING

    solo.feed(ev.LogImageClosed(77, "gone"), ev.LogStopped(64))
    solo.lead()
    solo.wait(150 * MS)

    assert appended_close(solo) == (3, CloseReason.SERVICE_ACTION)


# --- rolling back


def test_uncommitted_close_is_taken_back() -> None:
    """Source: aeron.md §3.12: a close that may never commit leaves the session open."""
    solo = Solo().lead()
    session = opened(solo)
    solo.feed(ev.ClientClose(7, TermId(0), session.cluster_session_id))

    lose_leadership(solo)

    assert (session.state, session.is_closed_by_service, session.is_close_appended) == (SessionState.OPEN, False, False)


@pytest.mark.parametrize("who", [("service",), ("service", "client"), ("client", "service")], ids=" then ".join)
def test_close_by_the_service_is_not_taken_back(who: tuple[str, ...]) -> None:
    """It was asked for at a committed position, on every member; the client's own close, which goes, never committed.

    Source: aeron.md §3.12.
    """
    solo = Solo().lead()
    session = opened(solo)
    for each in who:
        if each == "service":
            solo.module.sessions.on_service_close(session.cluster_session_id)
        else:
            solo.feed(ev.ClientClose(7, TermId(0), session.cluster_session_id))
    solo.wait(150 * MS)

    lose_leadership(solo)

    assert (session.state, session.is_closed_by_service) == (SessionState.CLOSING, True)
    assert not session.is_close_appended


# --- who holds a session


def test_new_leader_welcomes_the_clients_that_hold_a_connection() -> None:
    """Source: seed 004: a client keeps a connection to every member and says on each which session is its."""
    solo = Solo()
    solo.module.on_replay_session_open(open_event(3), 0)
    solo.feed(show(3, connection_id=9), keep_alive(3, connection_id=9, term_id=-1))

    solo.lead()

    welcomes = [(where, message) for where, message in answers(solo.effects) if isinstance(message, NewLeaderEvent)]
    ((connection_id, message),) = welcomes
    assert (connection_id, message.cluster_session_id, message.leadership_term_id) == (9, 3, 0)
    assert (message.leader_member_id, message.ingress_endpoints) == (0, ENDPOINTS)
    assert of(solo.effects, fx.BindIngress) == [fx.BindIngress(9, session_id_of(3), TermId(0))]


def test_keep_alive_of_an_older_term_is_answered_with_the_new_one() -> None:
    """The client has missed the news."""
    solo = Solo(terms=[(3, 0, 64)]).lead()
    session = opened(solo)

    effects = solo.feed(keep_alive(session.cluster_session_id, term_id=3))

    assert [type(message) for _, message in answers(effects)] == [NewLeaderEvent]


def test_keep_alive_is_known_of_the_connection_that_holds_an_open_session_in_this_term() -> None:
    solo = Solo().lead()
    session_id = opened(solo).cluster_session_id
    manager, term_id = solo.module.sessions, solo.ctx.leadership_term_id

    assert manager.is_known(7, session_id, term_id)
    assert not manager.is_known(8, session_id, term_id)
    assert not manager.is_known(7, session_id_of(99), term_id)
    assert not manager.is_known(7, session_id, term_id - 1)
    manager.on_service_close(session_id)
    assert not manager.is_known(7, session_id, term_id)


def test_client_that_comes_back_on_another_connection_takes_its_session_along() -> None:
    """The old connection is let go: one connection a session."""
    solo = Solo().lead()
    session = opened(solo)

    solo.feed(show(session.cluster_session_id, connection_id=8))
    effects = solo.feed(keep_alive(session.cluster_session_id, connection_id=8))

    assert of(effects, fx.UnbindIngress) == [fx.UnbindIngress(7, 1)]
    assert of(effects, fx.BindIngress) == [fx.BindIngress(8, session.cluster_session_id, TermId(0))]


@pytest.mark.parametrize("kind", [ev.ClientKeepAlive, ev.ClientStray, ev.ClientClose])
def test_unknown_session_is_told_that_it_is_closed(kind: type[ev.ClientStray]) -> None:
    """Not silence, as in Aeron: the client learns at once."""
    solo = Solo().lead()

    effects = solo.feed(kind(7, TermId(0), session_id_of(99)))

    assert codes(effects) == [EventCode.CLOSED]
    assert of(effects, fx.BindIngress) == []


@pytest.mark.parametrize("kind", [ev.ClientKeepAlive, ev.ClientStray, ev.ClientClose])
def test_leader_leaves_clients_alone_that_know_a_newer_term(kind: type[ev.ClientStray]) -> None:
    """A leader that was replaced and does not know it knows another session by this id, or none.

    It must neither say that the session is closed nor hand out its own.
    """
    solo = Solo().lead()
    opened(solo)

    for session_id in (1, 99):
        assert solo.feed(kind(12, TermId(4), session_id_of(session_id))) == []


def test_stray_message_of_an_open_session_is_answered_with_the_term() -> None:
    """The connection was not bound here, or it speaks of an older term: welcome it, the client sends again."""
    solo = Solo(terms=[(3, 0, 64)]).lead()
    session = opened(solo)

    older = solo.feed(ev.ClientStray(7, TermId(3), session.cluster_session_id))
    solo.feed(show(session.cluster_session_id, connection_id=8))
    elsewhere = solo.feed(ev.ClientStray(8, TermId(4), session.cluster_session_id))

    assert [type(message) for _, message in answers(older)] == [NewLeaderEvent]
    assert [type(message) for _, message in answers(elsewhere)] == [NewLeaderEvent]


def test_stray_message_of_a_closing_session_is_told_so() -> None:
    solo = Solo().lead()
    session = opened(solo)
    solo.feed(ev.ClientClose(7, TermId(0), session.cluster_session_id))

    ((_, answer),) = answers(solo.feed(ev.ClientStray(7, TermId(0), session.cluster_session_id)))

    assert isinstance(answer, SessionEvent)
    assert (answer.code, answer.detail) == (EventCode.CLOSED, "session is closing")


steps = st.lists(
    st.one_of(
        st.tuples(st.just("bind"), st.integers(1, 3), st.integers(1, 4)),
        st.tuples(st.just("disconnect"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("close"), st.just(0), st.integers(1, 4)),
    ),
    max_size=20,
)


@given(steps)
def test_a_session_is_on_one_connection_and_a_connection_knows_its_sessions(steps: list[tuple[str, int, int]]) -> None:
    """Invariant: two maps, one the inverse of the other."""
    manager = SessionManager(Solo().ctx)
    for what, connection_id, session_id in steps:
        match what:
            case "bind":
                manager.bind(connection_id, session_id_of(session_id))
            case "disconnect":
                manager.on_disconnected(ev.ClientDisconnected(connection_id))
            case _:
                manager.on_replay_session_close(
                    SessionCloseEvent(
                        leadership_term_id=TermId(0),
                        cluster_session_id=session_id_of(session_id),
                        timestamp=0,
                        close_reason=CloseReason.TIMEOUT,
                    )
                )

        held = manager._sessions_by_connection.items()
        assert {session: where for where, sessions in held for session in sessions} == manager._connections
        assert all(sessions for _, sessions in held)
