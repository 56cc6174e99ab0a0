"""A token counts only together with the proof of the principal that opened the session, at every leader."""

from __future__ import annotations

from dataclasses import replace

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
    open_event,
    session_id_of,
    show,
)
from tests.unit.cluster.core.solo import Solo, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.service_api import CloseReason
from trimaran.service_api.authenticator import SessionProxy
from trimaran.service_api.types import CorrelationId
from trimaran.service_api.wire.log.messages import SessionOpenEvent
from trimaran.service_api.wire.message import Message
from trimaran.service_api.wire.session import Challenge, EventCode, NewLeaderEvent
from trimaran.service_api.wire.session_token import SHOW_CREDENTIALS, token_channel, with_proof

CHANNEL = token_channel(SECRET, proves_again=True)


class Porter(Doorman):
    """Challenges everybody; whoever answers `word of NAME` is NAME, and everybody else is rejected."""

    def __init__(self) -> None:
        super().__init__(lambda proxy: proxy.challenge(b"the word?"), self._look)

    def _look(self, proxy: SessionProxy) -> None:
        answers_of = [
            said for kind, session_id, said in self.told if (kind, session_id) == ("response", proxy.session_id)
        ]
        if not answers_of:
            return
        if answers_of[-1].startswith(b"word of "):
            proxy.authenticate(answers_of[-1].removeprefix(b"word of "))
        else:
            proxy.reject()


def cluster() -> Solo:
    solo = Solo(terms=[(0, 0, 64)], leader_heartbeat_timeout_ns=60_000 * MS, session_timeout_ns=5_000 * MS)
    solo.ctx.authenticator = Porter()
    return solo


def of_alice(session_id: int, principal: bytes = b"alice") -> SessionOpenEvent:
    update = {"encoded_principal": principal, "response_channel": with_proof(CHANNEL, "first-secret")}
    return open_event(session_id).model_copy(update=update)


def leader(*, connection_id: int = 7) -> Solo:
    """A leader with one session of alice, open on one connection."""
    solo = cluster().lead()
    request = connect().request.model_copy(update={"response_channel": CHANNEL})
    solo.feed(ev.ClientConnect(connection_id, request))
    solo.feed(respond(connection_id, -2, b"word of alice"))
    deliver(solo, *appended(solo))
    assert solo.module.sessions.connection_of(session_id_of(1)) == connection_id
    return solo


def respond(connection_id: int, session_id: int, said: bytes) -> ev.ClientChallengeResponse:
    return ev.ClientChallengeResponse(connection_id, CorrelationId(70), session_id_of(session_id), said)


def challenge_in(effects: list[fx.Effect]) -> Challenge:
    found = challenges(effects)
    assert len(found) == 1, found
    return found[0]


def challenges(effects: list[fx.Effect]) -> list[Challenge]:
    return [message for _, message in answers(effects) if isinstance(message, Challenge)]


def come_back(solo: Solo, connection_id: int, session_id: int = 1, *, term_id: int | None = None) -> list[fx.Effect]:
    """Show the session's secret on a connection, as every client does, and say that the session is there."""
    term = solo.ctx.leadership_term_id if term_id is None else term_id
    return solo.feed(
        show(session_id, connection_id=connection_id),
        keep_alive(session_id, connection_id=connection_id, term_id=term),
    )


def prove(solo: Solo, connection_id: int, effects: list[fx.Effect], said: bytes) -> list[fx.Effect]:
    """Answer the question for the credentials, and then the authenticator's challenge."""
    first = challenge_in(effects)
    assert first.encoded_challenge == SHOW_CREDENTIALS
    second = challenge_in(solo.feed(respond(connection_id, first.cluster_session_id, b"credentials")))
    assert second.encoded_challenge == b"the word?"
    return solo.feed(respond(connection_id, second.cluster_session_id, said))


def kinds(effects: list[fx.Effect]) -> list[type[Message]]:
    return [type(message) for _, message in answers(effects)]


# --- the leader


def test_leader_asks_a_client_that_comes_back_for_its_proof_and_gives_it_the_session() -> None:
    solo = leader()
    solo.feed(ev.ClientDisconnected(7))

    asked = come_back(solo, 8)
    assert of(asked, fx.BindIngress) == []
    proven = prove(solo, 8, asked, b"word of alice")

    assert kinds(proven) == [NewLeaderEvent]
    assert solo.module.sessions.connection_of(session_id_of(1)) == 8


def test_question_names_the_session_by_the_number_of_its_connect_request() -> None:
    """So it reaches one session of a connection that many share."""
    solo = leader()

    assert challenge_in(come_back(solo, 8)).correlation_id == 70


def test_thief_with_the_token_alone_gets_nothing_and_the_owner_notices_nothing() -> None:
    solo = leader()

    stolen = come_back(solo, 8)
    refused = prove(solo, 8, stolen, b"guess")
    again = come_back(solo, 8)

    assert [codes(refused), codes(again)] == [[EventCode.AUTHENTICATION_REJECTED]] * 2
    assert challenges(again) == []
    for kind in (fx.BindIngress, fx.UnbindIngress):
        assert of(stolen + refused + again, kind) == []
    assert solo.module.sessions.connection_of(session_id_of(1)) == 7
    assert solo.module.sessions.claims.refused_count == 1


def test_proof_of_another_principal_takes_nothing_over() -> None:
    """Mallory is a principal, too, and has stolen a token."""
    solo = leader()

    effects = prove(solo, 8, come_back(solo, 8), b"word of mallory")

    assert codes(effects) == [EventCode.AUTHENTICATION_REJECTED]
    assert solo.module.sessions.connection_of(session_id_of(1)) == 7


def test_owner_comes_back_beside_a_thief_that_never_answers() -> None:
    solo = leader()
    solo.feed(ev.ClientDisconnected(7))
    come_back(solo, 8)

    prove(solo, 9, come_back(solo, 9), b"word of alice")
    come_back(solo, 8)

    assert solo.module.sessions.connection_of(session_id_of(1)) == 9


def test_proof_without_the_token_is_not_asked_for() -> None:
    """A principal has many clients: one does not take another's session."""
    solo = leader()

    shown = show(1, connection_id=8, secret=b"another's")
    effects = solo.feed(shown, keep_alive(1, connection_id=8))

    assert (challenges(effects), codes(effects)) == ([], [EventCode.AUTHENTICATION_REJECTED])


def test_thief_cannot_answer_on_its_connection_what_another_was_asked() -> None:
    solo = leader()
    asked = challenge_in(come_back(solo, 8))

    effects = solo.feed(respond(9, asked.cluster_session_id, b"credentials"))

    assert (challenges(effects), codes(effects)) == ([], [EventCode.REDIRECT])


def test_question_is_repeated_with_each_keep_alive_and_a_second_answer_to_it_does_no_harm() -> None:
    """An answer may be lost while a member begins to lead. The second one is no answer to the challenge."""
    solo = leader()
    first = challenge_in(come_back(solo, 8))
    term_id = solo.ctx.leadership_term_id

    repeated = challenge_in(solo.feed(keep_alive(1, connection_id=8, term_id=term_id)))
    second = challenge_in(solo.feed(respond(8, first.cluster_session_id, b"credentials")))
    late = solo.feed(respond(8, repeated.cluster_session_id, b"credentials"))
    effects = solo.feed(respond(8, second.cluster_session_id, b"word of alice"))

    assert (repeated, late) == (first, [])
    assert kinds(effects) == [NewLeaderEvent]


def test_messages_of_a_connection_that_is_asked_are_not_taken_nor_answered() -> None:
    solo = leader()
    come_back(solo, 8)

    effects = solo.feed(ev.ClientStray(8, solo.ctx.leadership_term_id, session_id_of(1)))

    assert answers(effects) == []
    assert solo.module.sessions.connection_of(session_id_of(1)) == 7


def test_silence_of_a_client_that_has_not_proven_who_it_is_ends_the_session() -> None:
    """A thief's keep-alives do not keep it."""
    solo = leader()
    solo.feed(ev.ClientDisconnected(7))
    for _ in range(7):
        come_back(solo, 8)
        solo.wait(1_000 * MS)

    assert appended_close(solo) == (1, CloseReason.TIMEOUT)


def test_connection_that_is_gone_leaves_nothing_behind() -> None:
    solo = leader()
    come_back(solo, 8)
    prove(solo, 9, come_back(solo, 9), b"guess")

    solo.feed(ev.ClientDisconnected(8), ev.ClientDisconnected(9))

    assert repr(solo.module.sessions.proofs) == "<SessionProofs attempts=0>"
    assert not solo.module.sessions.proofs._by_connection


def test_undecided_authenticator_is_asked_again_at_the_next_poll() -> None:
    solo = leader()
    porter = solo.ctx.authenticator
    assert isinstance(porter, Porter)
    porter.at_first = None
    first = challenge_in(come_back(solo, 8))
    solo.feed(respond(8, first.cluster_session_id, b"credentials"))

    porter.at_first = lambda proxy: proxy.authenticate(b"alice")
    effects = solo.wait(100 * MS)

    assert NewLeaderEvent in kinds(effects)


# --- who is not asked


def test_session_without_a_principal_is_taken_over_with_its_token() -> None:
    """A cluster without authentication has nothing to ask for."""
    solo = Solo(terms=[(0, 0, 64)]).lead()
    request = connect().request.model_copy(update={"response_channel": CHANNEL})
    solo.feed(ev.ClientConnect(7, request))
    deliver(solo, *appended(solo))

    assert kinds(come_back(solo, 8)) == [NewLeaderEvent]


def test_client_of_an_earlier_version_which_cannot_prove_again_keeps_its_session() -> None:
    solo = cluster().follow()
    deliver(solo, of_alice(3).model_copy(update={"response_channel": with_proof(token_channel(SECRET), "first")}))

    come_back(solo, 8, 3)

    assert solo.module.sessions.connection_of(session_id_of(3)) == 8


def test_certificate_is_asked_for_no_proof_and_a_proof_is_no_certificate() -> None:
    solo = cluster().follow()
    deliver(solo, of_alice(3).model_copy(update={"response_channel": with_proof(CHANNEL, "certificate")}))

    assert challenges(come_back(solo, 8, 3)) == []
    assert solo.module.sessions.connection_of(session_id_of(3)) is None
    solo.feed(replace(show(3, connection_id=9), certified_principal=b"alice"), keep_alive(3, connection_id=9))
    assert solo.module.sessions.connection_of(session_id_of(3)) == 9


# --- a change of leaders


def test_follower_asks_so_that_a_new_leader_knows_its_clients_at_once() -> None:
    """A change of leaders costs no challenge."""
    solo = cluster().follow()
    deliver(solo, of_alice(3))
    assert prove(solo, 8, come_back(solo, 8, 3), b"word of alice") == []
    assert solo.module.sessions.connection_of(session_id_of(3)) == 8

    solo.feed(ev.LogImageClosed(77, "gone"), ev.LogStopped(64))
    effects = lead(solo)

    assert NewLeaderEvent in kinds(effects)
    assert challenges(effects) == []
    assert [bound.connection_id for bound in of(effects, fx.BindIngress)] == [8]


def lead(solo: Solo) -> list[fx.Effect]:
    before = len(solo.effects)
    solo.lead()
    return solo.effects[before:]


def test_new_leader_takes_no_token_whose_proof_it_has_not_seen() -> None:
    solo = cluster().follow()
    deliver(solo, of_alice(3))
    come_back(solo, 8, 3)
    refused = prove(solo, 9, come_back(solo, 9, 3), b"guess")
    assert answers(refused) == []

    solo.feed(ev.LogImageClosed(77, "gone"), ev.LogStopped(64))
    assert of(lead(solo), fx.BindIngress) == []
    for connection_id in (8, 9):
        assert of(come_back(solo, connection_id, 3), fx.BindIngress) == []
    effects = prove(solo, 10, come_back(solo, 10, 3), b"word of alice")

    assert kinds(effects) == [NewLeaderEvent]
    assert solo.module.sessions.connection_of(session_id_of(3)) == 10


def test_new_leader_asks_again_where_a_follower_has_refused() -> None:
    """Its secrets file may have been older then: the leader's word counts."""
    solo = cluster().follow()
    deliver(solo, of_alice(3))
    prove(solo, 8, come_back(solo, 8, 3), b"guess")

    solo.feed(ev.LogImageClosed(77, "gone"), ev.LogStopped(64))
    lead(solo)

    assert kinds(prove(solo, 8, come_back(solo, 8, 3), b"word of alice")) == [NewLeaderEvent]


def test_shared_connection_is_asked_for_the_principal_of_each_of_its_sessions() -> None:
    """One keep-alive speaks for all of them."""
    solo = cluster().follow()
    for number, principal in ((3, b"alice"), (4, b"alice"), (5, b"bob")):
        event = of_alice(number, principal)
        deliver(solo, event.model_copy(update={"response_channel": f"{event.response_channel}|alias={number}"}))

    effects = prove(solo, 8, come_back(solo, 8, 3), b"word of alice")
    connections = solo.module.sessions.connection_of
    assert [connections(session_id_of(each)) for each in (3, 4, 5)] == [8, 8, None]
    prove(solo, 8, effects, b"word of bob")

    assert [connections(session_id_of(each)) for each in (3, 4, 5)] == [8, 8, 8]
