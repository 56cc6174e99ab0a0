"""A session is its client's alone: naming its id is not enough, on any member, at any time."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.sessions.test_sessions import (
    SECRET,
    answers,
    appended,
    codes,
    deliver,
    keep_alive,
    lose_leadership,
    open_event,
    opened,
    session_id_of,
    show,
)
from tests.unit.cluster.core.solo import Solo, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.sessions.session_claims import SessionClaims
from trimaran.cluster.core.sessions.session_state import SessionState
from trimaran.cluster.core.snapshots.snapshot import decode_module_snapshot
from trimaran.cluster.messages.snapshot import ClientSessionSnapshot
from trimaran.service_api.types import CorrelationId, TermId
from trimaran.service_api.wire.log.messages import ClusterAction, ClusterActionRequest, SessionOpenEvent
from trimaran.service_api.wire.session import EventCode, NewLeaderEvent, SessionConnectRequest, SessionEvent
from trimaran.service_api.wire.session_token import channel_digest, is_digest_of, token_channel, token_digest

WRONG = b"a guess"
REFUSED = "session.token_refused"


def bindings(effects: list[fx.Effect]) -> list[tuple[int, int]]:
    return [(effect.connection_id, effect.cluster_session_id) for effect in of(effects, fx.BindIngress)]


def refusals(effects: list[fx.Effect]) -> int:
    return sum(effect.event == REFUSED for effect in of(effects, fx.SessionChanged))


# --- the leader


@pytest.mark.parametrize("secret", [None, WRONG, b"", token_digest(SECRET)])
@pytest.mark.parametrize("kind", [ev.ClientKeepAlive, ev.ClientStray, ev.ClientClose])
def test_wrong_token_is_answered_counted_and_changes_nothing(kind: type[ev.ClientStray], secret: bytes | None) -> None:
    """No unbinding, no close, no welcome; the digest itself, which the log holds, is no secret."""
    solo = Solo().lead()
    session = opened(solo)
    if secret is not None:
        solo.feed(show(1, connection_id=8, secret=secret))

    effects = solo.feed(kind(8, TermId(0), session.cluster_session_id))

    ((connection_id, answer),) = answers(effects)
    assert isinstance(answer, SessionEvent)
    assert (connection_id, answer.code, answer.cluster_session_id) == (8, EventCode.AUTHENTICATION_REJECTED, 1)
    assert answer.detail == "wrong session token: cluster_session_id=1"
    assert [type(effect) for effect in effects] == [fx.SessionChanged, fx.SendToClient]
    assert (session.state, appended(solo)) == (SessionState.OPEN, [])
    assert solo.module.sessions._connections == {1: 7}
    assert solo.module.sessions.claims.refused_count == 1


def test_wrong_token_does_not_keep_a_session_alive() -> None:
    solo = Solo(leader_heartbeat_timeout_ns=60_000 * MS).lead()
    opened(solo)

    for _ in range(4):
        solo.feed(show(1, connection_id=8, secret=WRONG), keep_alive(1, connection_id=8))
        solo.wait(300 * MS)

    assert len(appended(solo)) == 1


def test_connection_that_guesses_on_and_on_is_answered_each_time_and_logged_once() -> None:
    solo = Solo().lead()
    opened(solo)
    effects: list[fx.Effect] = []

    for guess in range(50):
        effects += solo.feed(show(1, connection_id=8, secret=bytes([guess])), keep_alive(1, connection_id=8))

    assert codes(effects) == [EventCode.AUTHENTICATION_REJECTED] * 50
    assert refusals(effects) == 1


def test_token_of_one_session_opens_no_other() -> None:
    solo = Solo().lead()
    opened(solo, 7)
    solo.feed(
        ev.ClientConnect(
            9,
            solo_request(secret=b"of another"),
        )
    )
    deliver(solo, *appended(solo))

    effects = solo.feed(show(1, connection_id=9, secret=b"of another"), keep_alive(1, connection_id=9))

    assert codes(effects) == [EventCode.AUTHENTICATION_REJECTED]


def solo_request(*, secret: bytes | None) -> SessionConnectRequest:
    return SessionConnectRequest(
        correlation_id=CorrelationId(90),
        response_stream_id=102,
        version=256,
        response_channel="" if secret is None else token_channel(secret),
    )


@pytest.mark.parametrize("secret", [None, b"", SECRET])
def test_session_without_a_token_is_taken_over_by_nobody(secret: bytes | None) -> None:
    """As in logs of a real Aeron Cluster: it lives on the connection that opened it."""
    solo = Solo().lead()
    solo.feed(ev.ClientConnect(7, solo_request(secret=None)))
    effects = deliver(solo, *appended(solo))
    assert bindings(effects) == [(7, 1)]
    if secret is not None:
        solo.feed(show(1, connection_id=8, secret=secret))

    assert codes(solo.feed(keep_alive(1, connection_id=8))) == [EventCode.AUTHENTICATION_REJECTED]
    assert solo.feed(keep_alive(1, connection_id=7)) == []


def test_malformed_token_is_refused_at_the_connect() -> None:
    """Or its session could never be taken over, and nobody would know why."""
    solo = Solo().lead()
    request = solo_request(secret=b"").model_copy(update={"response_channel": "trimaran:tcp?token-sha256=12"})

    ((_, answer),) = answers(solo.feed(ev.ClientConnect(7, request)))

    assert isinstance(answer, SessionEvent)
    assert answer.detail == "response channel malformed: expected token-sha256=<64 hexadecimal digits>"


# --- a leader that comes later


@pytest.mark.parametrize("is_before_open", [True, False])
@pytest.mark.parametrize("secret", [SECRET, WRONG])
def test_new_leader_knows_whose_connection_it_is(secret: bytes, is_before_open: bool) -> None:
    """Proofs come to followers too, perhaps before the session's opening is delivered there."""
    solo = Solo()
    claim = (show(3, connection_id=9, secret=secret), keep_alive(3, connection_id=9, term_id=-1))
    if is_before_open:
        solo.feed(*claim)
    solo.module.on_replay_session_open(open_event(3), 0)
    if not is_before_open:
        solo.feed(*claim)

    solo.lead()

    assert bindings(solo.effects) == ([(9, 3)] if secret == SECRET else [])
    assert refusals(solo.effects) == (secret == WRONG and not is_before_open)


@pytest.mark.parametrize(("secret", "term_id", "is_told"), [(SECRET, 0, True), (WRONG, 0, False), (SECRET, 1, False)])
def test_follower_tells_a_client_of_an_older_term_who_leads(secret: bytes, term_id: int, is_told: bool) -> None:
    """The leader that the client had follows now, on a connection that stands; where the new one is, it cannot know."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.module.on_replay_session_open(open_event(3), 0)
    solo.follow(leader_id=2, term_id=1)

    effects = solo.feed(show(3, connection_id=9, secret=secret), keep_alive(3, connection_id=9, term_id=term_id))

    assert codes(effects) == ([EventCode.REDIRECT] if is_told else [])
    for connection_id, event in answers(effects):
        assert isinstance(event, SessionEvent)
        assert (connection_id, event.cluster_session_id, event.leader_member_id) == (9, 3, 2)
        assert event.detail == solo.ctx.ingress_endpoints


def test_member_that_is_about_to_lead_does_not_say_so_before_it_takes_input() -> None:
    """What a client sent it then would be lost. When it does lead, it tells every client that has shown its session."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.module.on_replay_session_open(open_event(3), 0)
    solo.reach_leader_log_replication()
    solo.ctx.leadership_term_id = TermId(1)
    solo.ctx.leader_member_id = solo.ctx.config.member_id

    assert answers(solo.feed(show(3, connection_id=9), keep_alive(3, connection_id=9, term_id=0))) == []


def test_claim_of_a_session_is_not_weakened_by_somebody_elses() -> None:
    """The thief comes last, on another connection, before the opening is known here."""
    solo = Solo()
    solo.feed(show(3, connection_id=9), keep_alive(3, connection_id=9, term_id=-1))
    solo.feed(show(3, connection_id=10, secret=WRONG), keep_alive(3, connection_id=10, term_id=-1))
    solo.module.on_replay_session_open(open_event(3), 0)

    solo.lead()

    assert bindings(solo.effects) == [(9, 3)]


def test_after_a_restart_from_a_snapshot_only_the_token_takes_a_session_over() -> None:
    """The digest is in both parts of a snapshot; the secret in none."""
    first = Solo().lead()
    opened(first)
    first.ctx.commit_position = first.ctx.log_buffer.append_position
    first.module.on_replay_cluster_action(snapshot_action(first), first.ctx.commit_position)
    (taken,) = of(first.take(), fx.TakeSnapshot)
    assert all(SECRET not in message.encode() for message in (*taken.service_messages, *taken.module_messages))

    solo = Solo(terms=[(0, 0, taken.log_position)], is_started=False)
    clients = [message for message in taken.service_messages if isinstance(message, ClientSessionSnapshot)]
    solo.module.snapshots.restore(decode_module_snapshot(taken.module_messages), clients, 0)
    solo.start()
    solo.lead()
    thief = solo.feed(show(1, connection_id=8, secret=WRONG), keep_alive(1, connection_id=8, term_id=0))
    holder = solo.feed(show(1, connection_id=9), keep_alive(1, connection_id=9, term_id=0))

    assert (codes(thief), bindings(thief)) == ([EventCode.AUTHENTICATION_REJECTED], [])
    assert bindings(holder) == [(9, 1)]
    assert [type(message) for _, message in answers(holder)] == [NewLeaderEvent]


def snapshot_action(solo: Solo) -> ClusterActionRequest:
    return ClusterActionRequest(
        leadership_term_id=TermId(0),
        log_position=solo.ctx.log_buffer.append_position,
        timestamp=0,
        action=ClusterAction.SNAPSHOT,
        flags=0,
    )


def test_deposed_leader_says_nothing_of_tokens_to_a_client_of_a_newer_term() -> None:
    """Its session of this id is another one, and may never have been."""
    solo = Solo().lead()
    opened(solo)

    assert (
        solo.feed(show(1, connection_id=8, secret=b"of a newer term"), keep_alive(1, connection_id=8, term_id=4)) == []
    )


def test_id_that_is_given_again_has_the_new_clients_token() -> None:
    """The first opening never committed: its client's secret must not fit what got the id next."""
    solo = Solo().lead()
    solo.feed(ev.ClientConnect(8, solo_request(secret=b"first")))
    appended(solo)
    lose_leadership(solo)

    solo.module.on_replay_session_open(open_event(1), 0)

    assert solo.module.sessions.sessions[session_id_of(1)].token_digest == token_digest(SECRET)


# --- memory


def test_claims_are_one_a_connection_and_go_with_it() -> None:
    claims = SessionClaims()

    for secret in range(100):
        claims.add(7, bytes([secret]))
        assert claims.holder_of(token_digest(bytes([secret]))) == 7

    assert (len(claims._digests), len(claims._connections)) == (1, 1)
    claims.forget(7)
    assert (claims._digests, claims._connections) == ({}, {})


def test_of_connections_that_have_shown_one_secret_the_newest_counts() -> None:
    claims = SessionClaims()

    for connection_id in (7, 8, 9):
        claims.add(connection_id, SECRET)
    claims.forget(9)

    assert claims.holder_of(token_digest(SECRET)) == 8
    assert claims.holder_of(None) is None


def test_disconnect_forgets_what_was_shown() -> None:
    solo = Solo()
    solo.feed(show(3, connection_id=9), keep_alive(3, connection_id=9, term_id=-1), ev.ClientDisconnected(9))
    solo.module.on_replay_session_open(open_event(3), 0)

    solo.lead()

    assert bindings(solo.effects) == []
    assert repr(solo.module.sessions.claims) == "<SessionClaims claims=0 refused=0>"


# --- the channel


@pytest.mark.parametrize(
    ("channel", "is_read"),
    [
        (token_channel(SECRET), True),
        (f"trimaran:tcp?alias=x|token-sha256={token_digest(SECRET).hex()}|mtu=8k", True),
        ("aeron:udp?endpoint=localhost:20000", False),
        ("", False),
        (f"trimaran:tcp?token-sha256={token_digest(SECRET).hex()}00", False),
        (f"trimaran:tcp?not-token-sha256={token_digest(SECRET).hex()}", False),
        (token_channel(SECRET).upper(), False),
    ],
)
def test_digest_is_read_from_the_channel_or_there_is_none(channel: str, is_read: bool) -> None:
    assert channel_digest(channel) == (token_digest(SECRET) if is_read else None)


def test_nothing_fits_no_digest() -> None:
    assert not is_digest_of(None, b"")
    assert not is_digest_of(None, token_digest(b""))


def test_log_holds_the_digest_and_not_the_secret() -> None:
    solo = Solo().lead()
    solo.feed(ev.ClientConnect(7, solo_request(secret=SECRET)))

    (event,) = appended(solo)

    assert isinstance(event, SessionOpenEvent)
    assert event.response_channel == f"trimaran:tcp?token-sha256={token_digest(SECRET).hex()}"
    assert SECRET not in event.encode()
