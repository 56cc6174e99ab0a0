"""From a connect request to an open session, or to a no: the rows of aeron.md §3.5 and §3.6."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.sessions.test_sessions import answers, appended, codes, deliver, lose_leadership
from tests.unit.cluster.core.solo import Solo, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.sessions.pending_sessions import CHANNEL_LIMIT
from trimaran.cluster.core.sessions.session_state import LEGAL_TRANSITIONS, SessionState, enter
from trimaran.cluster.runtime.ground.authenticator import GuardedAuthenticator
from trimaran.service_api import InvariantViolation
from trimaran.service_api.authenticator import CREDENTIALS_LIMIT_BYTES, PRINCIPAL_LIMIT_BYTES, SessionProxy
from trimaran.service_api.types import ClusterSessionId, CorrelationId
from trimaran.service_api.wire.log.messages import SessionOpenEvent
from trimaran.service_api.wire.session import (
    Challenge,
    EventCode,
    SessionConnectRequest,
    SessionEvent,
    SessionLimits,
)

S = SessionState
Answer = Callable[[SessionProxy], object]


class Doorman:
    """An authenticator that does what the test says, and remembers what it was told."""

    def __init__(self, at_first: Answer | None = None, at_challenged: Answer | None = None) -> None:
        self.at_first, self.at_challenged = at_first, at_challenged
        self.told: list[tuple[str, int, bytes]] = []
        self.asked_count = 0

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        self.told.append(("connect", session_id, encoded_credentials))

    def on_connected_session(self, proxy: SessionProxy, now_ms: int) -> None:
        self.asked_count += 1
        if self.at_first is not None:
            self.at_first(proxy)

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        self.told.append(("response", session_id, encoded_credentials))

    def on_challenged_session(self, proxy: SessionProxy, now_ms: int) -> None:
        self.asked_count += 1
        if self.at_challenged is not None:
            self.at_challenged(proxy)


def admit(proxy: SessionProxy) -> None:
    proxy.authenticate(b"alice")


def refuse(proxy: SessionProxy) -> None:
    proxy.reject()


def ask(proxy: SessionProxy) -> None:
    proxy.challenge(b"who goes there?")


def fail(proxy: SessionProxy) -> None:
    raise ValueError("no idea")


def leader(doorman: Doorman, *, session_limit: int = 10) -> Solo:
    solo = Solo(leader_heartbeat_timeout_ns=60_000 * MS, session_limit=session_limit).lead()
    solo.ctx.authenticator = GuardedAuthenticator(doorman)
    return solo


def connect(
    connection_id: int = 7, *, correlation_id: int = 70, credentials: bytes = b"alice", version: int = 256
) -> ev.ClientConnect:
    request = SessionConnectRequest(
        correlation_id=CorrelationId(correlation_id),
        response_stream_id=102,
        version=version,
        encoded_credentials=credentials,
    )
    return ev.ClientConnect(connection_id, request)


def respond(session_id: int = -2, *, connection_id: int = 7, credentials: bytes = b"alice!") -> object:
    return ev.ClientChallengeResponse(connection_id, CorrelationId(70), ClusterSessionId(session_id), credentials)


def answer_of(effects: list[fx.Effect]) -> SessionEvent:
    ((_, answer),) = [said for said in answers(effects) if not isinstance(said[1], SessionLimits)]
    assert isinstance(answer, SessionEvent)
    return answer


def pending(solo: Solo) -> int:
    return len(solo.module.sessions.pending)


# --- deciding


def test_authenticated_session_is_opened_with_its_principal_in_the_log() -> None:
    """Row AUTHENTICATED: append SessionOpenEvent, then OPEN."""
    doorman = Doorman(admit)
    solo = leader(doorman)

    solo.feed(connect())
    (event,) = appended(solo)
    effects = deliver(solo, event)

    assert isinstance(event, SessionOpenEvent)
    assert (event.cluster_session_id, event.encoded_principal) == (1, b"alice")
    assert solo.module.sessions.sessions[ClusterSessionId(1)].encoded_principal == b"alice"
    assert doorman.told == [("connect", -2, b"alice")]
    assert (answer_of(effects).code, pending(solo)) == (EventCode.OK, 0)


def test_a_certificate_is_the_principal_and_nobody_else_is_asked() -> None:
    doorman = Doorman(refuse)
    solo = leader(doorman)

    solo.feed(replace(connect(), certified_principal=b"app"))
    (event,) = appended(solo)
    effects = deliver(solo, event)

    assert isinstance(event, SessionOpenEvent)
    assert event.encoded_principal == b"app"
    assert doorman.told == []
    assert (answer_of(effects).code, pending(solo)) == (EventCode.OK, 0)


def test_rejected_session_is_told_and_never_was_in_the_log() -> None:
    """Row REJECTED: AUTHENTICATION_REJECTED; and the connection is let go."""
    solo = leader(Doorman(refuse))

    effects = solo.feed(connect())

    assert answer_of(effects).code is EventCode.AUTHENTICATION_REJECTED
    assert [effect.close_after for effect in of(effects, fx.SendToClient)] == [True]
    assert [effect.event for effect in of(effects, fx.SessionChanged)] == ["session.rejected"]
    assert (appended(solo), pending(solo)) == ([], 0)


def test_challenge_goes_out_and_its_answer_opens_the_session() -> None:
    """Source: aeron.md §3.6, challenge-response."""
    doorman = Doorman(ask, admit)
    solo = leader(doorman)

    ((connection_id, challenge),) = answers(solo.feed(connect()))
    assert appended(solo) == []
    solo.feed(respond())

    assert isinstance(challenge, Challenge)
    assert (connection_id, challenge.correlation_id, challenge.cluster_session_id) == (7, 70, -2)
    assert challenge.encoded_challenge == b"who goes there?"
    assert doorman.told == [("connect", -2, b"alice"), ("response", -2, b"alice!")]
    assert [type(event) for event in appended(solo)] == [SessionOpenEvent]


def test_session_may_be_challenged_again_and_then_refused() -> None:
    doorman = Doorman(ask, ask)
    solo = leader(doorman)

    solo.feed(connect())
    again = solo.feed(respond())
    doorman.at_challenged = refuse
    effects = solo.feed(respond())

    assert [type(message) for _, message in answers(again)] == [Challenge]
    assert answer_of(effects).code is EventCode.AUTHENTICATION_REJECTED


@pytest.mark.parametrize("is_challenged", [False, True])
def test_undecided_authenticator_is_asked_again_until_it_decides(is_challenged: bool) -> None:
    """Row "pending + egress connected": each slow tick."""
    doorman = Doorman(ask if is_challenged else None)
    solo = leader(doorman)
    solo.feed(connect())
    doorman.asked_count = 0

    solo.wait(450 * MS)
    assert doorman.asked_count == 4
    doorman.at_first = doorman.at_challenged = admit
    solo.wait(150 * MS)

    assert [type(event) for event in appended(solo)] == [SessionOpenEvent]


def test_the_last_word_of_a_callback_counts() -> None:
    def waver(proxy: SessionProxy) -> None:
        proxy.authenticate(b"alice")
        proxy.reject()

    assert codes(leader(Doorman(waver)).feed(connect())) == [EventCode.AUTHENTICATION_REJECTED]


def test_authenticator_that_raises_has_rejected_and_the_leader_goes_on() -> None:
    doorman = Doorman(fail)
    solo = leader(doorman)

    assert codes(solo.feed(connect())) == [EventCode.AUTHENTICATION_REJECTED]
    doorman.at_first = admit
    solo.feed(connect(8))

    assert len(appended(solo)) == 1


@pytest.mark.parametrize("callback", ["on_connect_request", "on_challenge_response"])
def test_authenticator_that_raises_when_told_has_rejected_that_session_alone(
    callback: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    doorman = Doorman(ask, admit)
    solo = leader(doorman)
    with monkeypatch.context() as patch:
        patch.setattr(doorman, callback, lambda *_: 1 / 0)
        effects = [*solo.feed(connect()), *solo.feed(respond())]

    assert EventCode.AUTHENTICATION_REJECTED in codes(effects)
    solo.feed(connect(8), respond(-3, connection_id=8))
    assert len(appended(solo)) == 1


@pytest.mark.parametrize("what", ["principal", "challenge"])
def test_principal_and_challenge_are_bounded(what: str) -> None:
    """Source: aeron.md §3.5, limits: encoded principal at most 4 KiB."""
    method = {"principal": "authenticate"}.get(what, what)

    def of_length(length: int) -> Answer:
        return lambda proxy: getattr(proxy, method)(bytes(length))

    fits, is_longer = leader(Doorman(of_length(100))), leader(Doorman(of_length(PRINCIPAL_LIMIT_BYTES + 1)))

    assert EventCode.AUTHENTICATION_REJECTED not in codes(fits.feed(connect()))
    assert codes(is_longer.feed(connect())) == [EventCode.AUTHENTICATION_REJECTED]


# --- bounds


def test_pending_and_open_sessions_share_the_limit() -> None:
    """Row "pending + open >= max sessions": a flood of connects that never finish is refused."""
    doorman = Doorman(admit)
    solo = leader(doorman, session_limit=3)
    solo.feed(connect(7))
    doorman.at_first = ask
    solo.feed(connect(8), connect(9))

    effects = solo.feed(connect(10))

    assert answer_of(effects).code is EventCode.ERROR
    assert answer_of(effects).detail == "concurrent session limit: sessions=3 limit=3"
    assert pending(solo) == 2


def test_silence_of_a_pending_session_ends_at_the_session_timeout() -> None:
    """Row "pending idle > session timeout": closed, counted; and told, not as in Aeron."""
    solo = leader(Doorman(ask))
    solo.feed(connect())

    assert answers(solo.wait(1_000 * MS)) == []
    answer = answer_of(solo.wait(200 * MS))

    assert answer.code is EventCode.ERROR
    assert answer.detail == "session timeout: not authenticated in time: state=CHALLENGED"
    assert (pending(solo), solo.module.sessions.pending.timed_out_count) == (0, 1)


def test_pending_session_goes_with_its_connection() -> None:
    solo = leader(Doorman(ask))

    solo.feed(connect(), ev.ClientDisconnected(7))

    assert pending(solo) == 0


def test_impatient_client_that_asks_again_is_not_asked_anew() -> None:
    """It accepts the answer to either request; its authenticator may need longer than its patience."""
    doorman = Doorman(ask)
    solo = leader(doorman)
    solo.feed(connect(correlation_id=70))

    assert solo.feed(connect(correlation_id=71)) == []
    assert len(doorman.told) == 1


def test_other_credentials_on_the_same_connection_begin_anew() -> None:
    doorman = Doorman(ask)
    solo = leader(doorman)

    solo.feed(connect(), connect(credentials=b"bob"))

    assert doorman.told == [("connect", -2, b"alice"), ("connect", -3, b"bob")]
    assert pending(solo) == 1


@pytest.mark.parametrize(
    ("request_fields", "detail"),
    [
        ({"version": 1 << 16}, "invalid client version: major=1 expected=0"),
        (
            {"encoded_credentials": bytes(CREDENTIALS_LIMIT_BYTES + 1)},
            f"credentials too long: length={CREDENTIALS_LIMIT_BYTES + 1} limit={CREDENTIALS_LIMIT_BYTES}",
        ),
        (
            {"response_channel": "x" * (CHANNEL_LIMIT + 1)},
            f"response channel too long: length={CHANNEL_LIMIT + 1} limit={CHANNEL_LIMIT}",
        ),
    ],
)
def test_request_that_cannot_be_taken_is_told_why_before_the_authenticator_sees_it(
    request_fields: dict[str, object], detail: str
) -> None:
    """Row "client major version", and our bounds."""
    doorman = Doorman(admit)
    solo = leader(doorman)
    request = connect().request.model_copy(update=request_fields)

    answer = answer_of(solo.feed(ev.ClientConnect(7, request)))

    assert (answer.code, answer.detail, doorman.told) == (EventCode.ERROR, detail, [])


# --- what is not, or no longer, pending here


def test_what_was_pending_when_the_leader_lost_its_place_is_sent_to_ask_again() -> None:
    """The next leader's authenticator knows nothing of it."""
    solo = leader(Doorman(ask))
    solo.feed(connect())

    answer = answer_of(lose_leadership(solo))

    assert (answer.code, answer.correlation_id, pending(solo)) == (EventCode.REDIRECT, 70, 0)


@pytest.mark.parametrize("session_id", [-2, -9])
def test_answer_to_a_challenge_that_nobody_here_has_asked_is_sent_to_the_leader(session_id: int) -> None:
    follower = Solo(terms=[(0, 0, 64)]).follow(leader_id=2)
    deaf = leader(Doorman(None))
    deaf.feed(connect())

    for solo in (follower, deaf):
        assert codes(solo.feed(respond(session_id))) == [EventCode.REDIRECT]


def test_answer_on_another_connection_is_nobodys() -> None:
    """Who overhears a challenge cannot answer it elsewhere."""
    solo = leader(Doorman(ask, admit))
    solo.feed(connect(7))

    assert codes(solo.feed(respond(connection_id=8))) == [EventCode.REDIRECT]
    assert (appended(solo), pending(solo)) == ([], 1)


def test_ids_of_sessions_that_never_open_leave_no_gap() -> None:
    doorman = Doorman(refuse)
    solo = leader(doorman)
    solo.feed(connect(7), connect(8))
    doorman.at_first = admit

    solo.feed(connect(9))

    (event,) = appended(solo)
    assert isinstance(event, SessionOpenEvent)
    assert event.cluster_session_id == 1
    assert [session_id for _, session_id, _ in doorman.told] == [-2, -3, -4]


# --- the states


class _Somebody:
    def __init__(self, state: SessionState) -> None:
        self.state = state


@pytest.mark.parametrize("old", S)
@pytest.mark.parametrize("new", S)
def test_the_door_lets_through_what_the_table_has_and_nothing_else(old: SessionState, new: SessionState) -> None:
    session = _Somebody(old)

    if new in LEGAL_TRANSITIONS[old]:
        enter(session, new)
        assert session.state is new
        return
    with pytest.raises(InvariantViolation, match="illegal session transition"):
        enter(session, new)


def test_every_state_can_be_reached_and_ends_in_closed() -> None:
    assert set(S) == set(LEGAL_TRANSITIONS)
    assert {state for targets in LEGAL_TRANSITIONS.values() for state in targets} == set(S) - {S.INIT}
    assert LEGAL_TRANSITIONS[S.CLOSED] == frozenset()
