"""A session lasts as long as the right to it: the leader ends it, through the log, and a token brings nobody back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.sessions.test_pending_sessions import Doorman
from tests.unit.cluster.core.sessions.test_sessions import (
    SECRET,
    answers,
    appended,
    appended_close,
    codes,
    connect,
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
from trimaran.cluster.core.sessions.session_state import SessionState
from trimaran.cluster.core.sessions.sessions import REVIEW_SLICE
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.core.vocabulary.session_selection import SessionSelection
from trimaran.cluster.runtime.ground.authenticator import GuardedAuthenticator
from trimaran.service_api import CloseReason
from trimaran.service_api.authenticator import SessionProxy
from trimaran.service_api.wire.log.messages import SessionCloseEvent, SessionOpenEvent
from trimaran.service_api.wire.session import EventCode, NewLeaderEvent, SessionEvent
from trimaran.service_api.wire.session_token import channel_proof, token_channel, with_proof

PROVEN = with_proof(token_channel(SECRET), "first-secret")


class Registry(Doorman):
    """Admits everybody as somebody; keeps whom the test has let in."""

    def __init__(self) -> None:
        super().__init__(self._admit)
        self.present = {(b"alice", "first-secret")}
        self.next = (b"alice", "first-secret")
        self.asked: list[tuple[bytes, str]] = []

    def _admit(self, proxy: SessionProxy) -> None:
        proxy.authenticate(*self.next)

    def still_admits(self, encoded_principal: bytes, proof_id: str) -> bool:
        self.asked.append((encoded_principal, proof_id))
        return (encoded_principal, proof_id) in self.present


def guarded(solo: Solo) -> Registry:
    registry = Registry()
    solo.ctx.authenticator = GuardedAuthenticator(registry)
    return registry


def leader() -> tuple[Solo, Registry]:
    solo = Solo(leader_heartbeat_timeout_ns=60_000 * MS, session_timeout_ns=60_000 * MS)
    registry = guarded(solo)
    return solo.lead(), registry


def of_alice(session_id: int) -> SessionOpenEvent:
    return open_event(session_id).model_copy(update={"encoded_principal": b"alice", "response_channel": PROVEN})


def certified(connection_id: int, principal: bytes = b"importer") -> ev.ClientConnect:
    return replace(connect(connection_id), certified_principal=principal)


# --- the leader asks again


def test_proof_of_a_principal_is_in_the_log_beside_the_token() -> None:
    """The next leader knows no more than the log."""
    solo, _ = leader()

    solo.feed(connect())

    (event,) = appended(solo)
    assert isinstance(event, SessionOpenEvent)
    assert event.response_channel == PROVEN
    assert channel_proof(event.response_channel) == "first-secret"


def test_sessions_of_a_principal_that_is_gone_end_in_the_log_and_its_client_is_told_why() -> None:
    solo, registry = leader()
    session = opened(solo)
    solo.wait(2_000 * MS)
    assert appended(solo) == []

    registry.present.clear()
    effects = solo.wait(1_200 * MS)

    assert appended_close(solo) == (1, CloseReason.TIMEOUT)
    (told,) = of(effects, fx.SendToClient)
    assert isinstance(told.message, SessionEvent)
    assert (told.message.code, told.close_after) == (EventCode.CLOSED, True)
    assert "principal='alice'" in told.message.detail
    assert of(effects, fx.UnbindIngress) == [fx.UnbindIngress(7, session.cluster_session_id)]
    (revoked,) = of(effects, fx.SessionsRevoked)
    assert (revoked.encoded_principal, revoked.cluster_session_ids) == (b"alice", (session_id_of(1),))


def test_replaced_secret_ends_what_the_old_one_opened_and_nothing_else() -> None:
    """Who had the old secret may be the reason why it was replaced."""
    solo, registry = leader()
    opened(solo, 7)
    registry.next = (b"alice", "second-secret")
    registry.present.add(registry.next)
    opened(solo, 8)

    registry.present.remove((b"alice", "first-secret"))
    solo.wait(1_200 * MS)

    assert appended_close(solo) == (1, CloseReason.TIMEOUT)


def test_one_principal_is_asked_about_once_however_many_sessions_it_has() -> None:
    solo, registry = leader()
    for connection_id in range(5):
        opened(solo, connection_id)
    registry.asked.clear()

    solo.wait(3_050 * MS)

    assert 2 <= len(registry.asked) <= 4


def test_many_principals_are_asked_about_in_slices() -> None:
    """Ten thousand at once would stop the loop for 20 ms in each second."""
    solo, registry = leader()
    for number in range(3 * REVIEW_SLICE):
        principal = f"p{number}".encode()
        event = of_alice(number + 1).model_copy(update={"encoded_principal": principal})
        registry.present.add((principal, "first-secret"))
        deliver(solo, event)
    counts = list[int]()

    for _ in range(30):
        registry.asked.clear()
        solo.wait(100 * MS)
        counts.append(len(registry.asked))

    assert max(counts) == REVIEW_SLICE
    assert sum(counts) >= 3 * REVIEW_SLICE
    assert appended(solo) == []


def test_only_the_sessions_of_the_gone_end_on_a_connection_of_many() -> None:
    """And the connection goes on for the others."""
    solo, registry = leader()
    opened(solo, 7)
    registry.next = (b"bob", "his")
    registry.present.add(registry.next)
    request = connect(7, correlation_id=71).request
    other = request.model_copy(update={"response_channel": f"{request.response_channel}|alias=2"})
    solo.feed(ev.ClientConnect(7, other))
    deliver(solo, *appended(solo))

    registry.present.remove((b"alice", "first-secret"))
    effects = solo.wait(1_200 * MS)

    assert appended_close(solo) == (1, CloseReason.TIMEOUT)
    assert [told.close_after for told in of(effects, fx.SendToClient)] == [False]
    assert solo.module.sessions.session_on(7, session_id_of(2)) is not None


def test_session_that_is_about_to_be_told_that_it_is_open_ends_after_that() -> None:
    """A close in the log before the client is bound would have messages of the session behind it."""
    solo, registry = leader()
    solo.feed(connect())
    (event,) = appended(solo)
    registry.present.clear()

    solo.wait(1_500 * MS)
    assert appended(solo) == []
    deliver(solo, event)
    solo.wait(1_200 * MS)

    assert appended_close(solo) == (1, CloseReason.TIMEOUT)


def test_authenticator_that_fails_ends_nobody() -> None:
    solo, registry = leader()
    opened(solo)

    def fail(encoded_principal: bytes, proof_id: str) -> bool:
        raise OSError("the directory of users is down")

    registry.still_admits = fail  # type: ignore[method-assign]
    solo.ctx.authenticator = GuardedAuthenticator(registry)
    solo.wait(3_000 * MS)

    assert appended(solo) == []


def test_authenticator_that_cannot_revoke_is_not_asked() -> None:
    solo = Solo(leader_heartbeat_timeout_ns=60_000 * MS, session_timeout_ns=60_000 * MS).lead()
    solo.ctx.authenticator = GuardedAuthenticator(Doorman(lambda proxy: proxy.authenticate(b"alice")))
    opened(solo)

    solo.wait(3_000 * MS)

    assert appended(solo) == []


# --- the next leader


def test_new_leader_ends_the_sessions_of_the_gone_before_anything_else() -> None:
    """As after a restart of all members: the client is there at once, with its token."""
    solo = Solo(terms=[(0, 0, 64)], leader_heartbeat_timeout_ns=60_000 * MS)
    registry = guarded(solo)
    solo.follow()
    deliver(solo, of_alice(3))
    solo.feed(show(3, connection_id=8), keep_alive(3, connection_id=8))
    assert solo.module.sessions.connection_of(session_id_of(3)) == 8
    registry.present.clear()

    solo.feed(ev.LogImageClosed(77, "gone"), ev.LogStopped(64))
    solo.lead()

    assert [type(event) for event in appended(solo)] == [SessionCloseEvent]
    term_id = solo.ctx.leadership_term_id
    for asked in (show(3, connection_id=9), show(3, connection_id=10, secret=b"a guess")):
        effects = solo.feed(asked, keep_alive(3, connection_id=asked.connection_id, term_id=term_id))
        assert of(effects, fx.BindIngress) == []
    deliver(
        solo,
        SessionCloseEvent(
            leadership_term_id=term_id,
            cluster_session_id=session_id_of(3),
            timestamp=0,
            close_reason=CloseReason.TIMEOUT,
        ),
    )
    late = [solo.feed(keep_alive(3, connection_id=connection_id, term_id=term_id)) for connection_id in (9, 10)]
    details = [told.detail for effects in late for _, told in answers(effects) if isinstance(told, SessionEvent)]
    assert ["alice" in detail for detail in details] == [True, False]


def test_end_that_never_committed_is_repeated_by_the_next_term() -> None:
    solo, registry = leader()
    session = opened(solo)
    registry.present.clear()
    solo.wait(1_200 * MS)
    assert appended_close(solo) == (1, CloseReason.TIMEOUT)

    lose_leadership(solo)
    assert session.state is SessionState.OPEN
    solo.feed(ev.LogStopped(solo.ctx.append_position))
    solo.ctx.log_buffer.take_pending()
    solo.lead()

    closes = [event for event in appended(solo) if isinstance(event, SessionCloseEvent)]
    assert [event.cluster_session_id for event in closes] == [1]


def test_follower_ends_nothing_by_itself() -> None:
    """Its file may be older or newer than the leader's: what is in the log is the same everywhere."""
    solo = Solo(terms=[(0, 0, 64)], leader_heartbeat_timeout_ns=60_000 * MS)
    registry = guarded(solo)
    solo.follow()
    deliver(solo, of_alice(3))
    registry.present.clear()

    solo.wait(3_000 * MS)

    assert [*solo.module.sessions.sessions] == [3]
    assert registry.asked == []


# --- certificates


def test_session_of_a_certificate_is_not_taken_over_without_it() -> None:
    """The port asks nobody for a certificate: who has lost its own could come back without one."""
    solo, _ = leader()
    solo.feed(certified(7))
    deliver(solo, *appended(solo))
    solo.feed(ev.ClientDisconnected(7))

    for connection_id, principal in ((8, b""), (9, b"another")):
        shown = replace(show(1, connection_id=connection_id), certified_principal=principal)
        effects = solo.feed(shown, keep_alive(1, connection_id=connection_id))
        assert codes(effects) == [EventCode.AUTHENTICATION_REJECTED]

    effects = solo.feed(
        replace(show(1, connection_id=10), certified_principal=b"importer"), keep_alive(1, connection_id=10)
    )
    assert [type(message) for _, message in answers(effects)] == [NewLeaderEvent]


def test_follower_takes_a_session_of_a_certificate_only_with_it() -> None:
    solo = Solo(terms=[(0, 0, 64)]).follow()
    channel = with_proof(token_channel(SECRET), "certificate")
    update = {"encoded_principal": b"importer", "response_channel": channel}
    deliver(solo, open_event(3).model_copy(update=update))

    solo.feed(show(3, connection_id=8), keep_alive(3, connection_id=8))
    assert solo.module.sessions.connection_of(session_id_of(3)) is None
    solo.feed(replace(show(3, connection_id=9), certified_principal=b"importer"), keep_alive(3, connection_id=9))

    assert solo.module.sessions.connection_of(session_id_of(3)) == 9


def test_authenticator_is_not_asked_about_certificates() -> None:
    solo, registry = leader()
    solo.feed(certified(7))
    deliver(solo, *appended(solo))

    solo.wait(3_000 * MS)

    assert (appended(solo), registry.asked) == ([], [])


def test_client_cannot_say_itself_how_it_has_proven_who_it_is() -> None:
    solo, _ = leader()
    request = connect().request.model_copy(
        update={"response_channel": with_proof(token_channel(SECRET), "certificate")}
    )

    effects = solo.feed(ev.ClientConnect(7, request))

    assert codes(effects) == [EventCode.ERROR]
    assert appended(solo) == []


def test_authenticator_cannot_name_a_proof_that_is_reserved_or_breaks_the_channel() -> None:
    """One that does has raised, and so rejected the client."""
    for proof_id in ("certificate", "a|token-sha256=" + "0" * 64, "x" * 65):
        solo, registry = leader()
        registry.next = (b"alice", proof_id)

        assert codes(solo.feed(connect())) == [EventCode.AUTHENTICATION_REJECTED]
        assert appended(solo) == []


# --- an operator closes sessions


def select(asker: int = 1, **selection: Any) -> ev.ActionRequested:
    return ev.ActionRequested(
        asker,
        ControlToggle.CLOSE_SESSIONS,
        sessions=SessionSelection(**selection),
    )


def commit(solo: Solo) -> list[fx.Effect]:
    position = solo.ctx.log_buffer.append_position
    return solo.record() + solo.feed(solo.append_position(1, position))


def steps(effects: list[fx.Effect]) -> list[tuple[str, str]]:
    return [(str(step.step), step.detail) for step in of(effects, fx.ActionProgressed)]


def three_clients() -> Solo:
    """Two sessions of alice, from two machines, and one of bob; everything is committed."""
    solo, registry = leader()
    for connection_id, address, principal in ((7, "10.0.0.7", b"alice"), (8, "10.0.0.8", b"alice"), (9, "-", b"bob")):
        registry.next = (principal, "first-secret")
        registry.present.add(registry.next)
        solo.feed(replace(connect(connection_id), address=address))
        deliver(solo, *appended(solo))
    commit(solo)
    return solo


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"cluster_session_id": 2}, [2]),
        ({"encoded_principal": b"alice"}, [1, 2]),
        ({"address": "10.0.0.7"}, [1]),
        ({"encoded_principal": b"carol"}, []),
        ({"address": "10.0.0.1"}, []),
    ],
)
def test_operator_closes_a_session_or_all_of_a_principal_or_an_address(
    selection: dict[str, Any], expected: list[int]
) -> None:
    solo = three_clients()

    effects = solo.feed(select(**selection))
    closes = appended(solo)
    effects += commit(solo)

    assert [(each.cluster_session_id, each.close_reason) for each in closes if isinstance(each, SessionCloseEvent)] == [
        (session_id, CloseReason.TIMEOUT) for session_id in expected
    ]
    said = f"sessions closed: {len(expected)}{': ' * bool(expected)}{', '.join(map(str, expected))}"
    assert steps(effects) == [("appended", said), ("committed", "by a majority of members"), ("done", said)]
    assert codes(effects) == [EventCode.CLOSED] * len(expected)
    assert solo.module.actions.toggle is ControlToggle.NEUTRAL


def test_operator_is_told_that_there_is_no_such_session() -> None:
    solo = three_clients()

    ((step, detail),) = steps(solo.feed(select(cluster_session_id=17)))

    assert (step, appended(solo)) == ("refused", [])
    assert "cluster_session_id=17" in detail


def test_address_of_a_session_is_where_its_client_is_now() -> None:
    """The leader that opened it may be gone, and with it the address of that time."""
    solo = three_clients()
    session = solo.module.sessions.sessions[session_id_of(1)]
    assert solo.module.sessions.address_of(session) == "10.0.0.7"

    solo.feed(ev.ClientDisconnected(7), replace(show(1, connection_id=5), address="10.0.0.5"))
    solo.feed(keep_alive(1, connection_id=5))

    assert solo.module.sessions.address_of(session) == "10.0.0.5"
    solo.feed(select(address="10.0.0.5"))
    assert appended_close(solo)[0] == 1
