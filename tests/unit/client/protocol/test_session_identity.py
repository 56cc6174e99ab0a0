"""What a client shows: its session's secret on every connection, once, and its credentials where it is asked."""

from __future__ import annotations

import pytest

from tests.facts import has_facts
from tests.unit.client.dialogue import ENDPOINTS, SECOND, Dialogue
from tests.unit.client.fake_member import session_event
from trimaran.client.config import ClientConfig
from trimaran.client.errors import ConnectRejectedError
from trimaran.client.protocol.client_state import ClientState
from trimaran.service_api.errors import ConfigurationError, SessionClosedError
from trimaran.service_api.types import ClusterSessionId, CorrelationId
from trimaran.service_api.wire.session import Challenge, ChallengeResponse, EventCode, SessionConnectRequest
from trimaran.service_api.wire.session_token import channel_digest, token_digest


class Shibboleth:
    """Credentials that answer with what they were asked, backwards; or fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self._fails = fails

    def encoded_credentials(self) -> bytes:
        return b"ephraim"

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        if self._fails:
            raise LookupError("it cannot be said")
        return encoded_challenge[::-1]


def dialogue_with(credentials: Shibboleth | bytes = b"") -> Dialogue:
    return Dialogue(
        config=ClientConfig(
            endpoints=tuple(ENDPOINTS.values()), credentials=credentials, make_secret=lambda: b"the secret"
        )
    )


def challenge(dialogue: Dialogue) -> Challenge:
    return Challenge(
        correlation_id=CorrelationId(dialogue.correlation_id(0)),
        cluster_session_id=ClusterSessionId(-2),
        encoded_challenge=b"abc",
    )


def test_connect_request_names_the_digest_and_not_the_secret() -> None:
    dialogue = dialogue_with()
    dialogue.up(0)

    (request,) = dialogue.sent(0)

    assert isinstance(request, SessionConnectRequest)
    assert channel_digest(request.response_channel) == token_digest(b"the secret")
    assert b"the secret" not in request.encode()


def test_two_clients_draw_two_secrets() -> None:
    channels = [Dialogue().protocol._identity.response_channel for _ in range(2)]

    assert channels[0] != channels[1]


def test_every_connection_shows_the_secret_once_and_before_its_keep_alive() -> None:
    """Members bind a connection to a session only for its secret; those that lead later, too."""
    dialogue = dialogue_with()

    dialogue.open()
    dialogue.wait(5 * SECOND)
    for member_id in ENDPOINTS:
        dialogue.sent(member_id)

    shown = [(member_id, proof.cluster_session_id, proof.encoded_credentials) for member_id, proof in dialogue.proofs]
    assert sorted(shown) == [(member_id, 7, b"the secret") for member_id in ENDPOINTS]


def test_a_new_connection_shows_it_again() -> None:
    dialogue = dialogue_with()
    dialogue.open()
    dialogue.proofs.clear()

    dialogue.down(1)
    dialogue.wait(SECOND)
    dialogue.up(1)
    dialogue.sent(1)

    assert [(member_id, proof.encoded_credentials) for member_id, proof in dialogue.proofs] == [(1, b"the secret")]


def test_credentials_that_answer_challenges_are_asked() -> None:
    dialogue = dialogue_with(Shibboleth())
    dialogue.up(0)
    (request,) = dialogue.sent(0)
    assert isinstance(request, SessionConnectRequest)

    dialogue.say(
        0,
        Challenge(
            correlation_id=request.correlation_id, cluster_session_id=ClusterSessionId(-2), encoded_challenge=b"abc"
        ),
    )

    assert request.encoded_credentials == b"ephraim"
    (answer,) = dialogue.sent(0)
    assert isinstance(answer, ChallengeResponse)
    assert (answer.cluster_session_id, answer.encoded_credentials) == (-2, b"cba")


def test_credentials_that_fail_end_the_connect_with_the_reason() -> None:
    dialogue = dialogue_with(Shibboleth(fails=True))
    dialogue.up(0)

    dialogue.say(0, challenge(dialogue))

    assert isinstance(dialogue.protocol.close_error, ConnectRejectedError)
    assert has_facts(str(dialogue.protocol.close_error), "on_challenge", "LookupError: it cannot")


def test_an_answer_to_a_challenge_gives_the_member_its_time_again() -> None:
    """Otherwise another member is asked while the first one checks."""
    dialogue = dialogue_with(Shibboleth())
    dialogue.up(0, 1)
    asked = challenge(dialogue)
    dialogue.wait(SECOND * 9 // 10)

    dialogue.say(0, asked)
    dialogue.wait(SECOND * 9 // 10)

    assert dialogue.sent(1) == []


@pytest.mark.parametrize("code", [EventCode.AUTHENTICATION_REJECTED, EventCode.ERROR])
def test_a_refused_connect_ends_and_is_not_tried_again(code: EventCode) -> None:
    dialogue = dialogue_with(b"wrong")
    dialogue.up(0, 1)

    dialogue.say(0, session_event(code, correlation_id=dialogue.correlation_id(0), detail="authentication rejected"))
    dialogue.wait(60 * SECOND)

    assert dialogue.protocol.state is ClientState.CLOSED
    assert isinstance(dialogue.protocol.close_error, ConnectRejectedError)
    assert f"code={code.name}" in str(dialogue.protocol.close_error)
    assert len(dialogue.dialled) == 3


def test_a_session_whose_token_the_leader_refuses_ends_with_the_reason() -> None:
    """The outcome of naming a session that is another's."""
    dialogue = dialogue_with()
    dialogue.open()

    dialogue.say(0, session_event(EventCode.AUTHENTICATION_REJECTED, correlation_id=-1, detail="token does not fit"))

    assert dialogue.protocol.state is ClientState.CLOSED
    assert isinstance(dialogue.protocol.close_error, SessionClosedError)
    assert "token does not" in str(dialogue.protocol.close_error)


def test_a_follower_that_refuses_the_token_does_not_end_the_session() -> None:
    """It may know another session by this id; only the leader's word counts."""
    dialogue = dialogue_with()
    dialogue.open()

    dialogue.say(1, session_event(EventCode.AUTHENTICATION_REJECTED, correlation_id=-1, detail="token does not fit"))

    assert dialogue.protocol.state is ClientState.OPEN


def test_two_ways_to_answer_challenges_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="challenges"):
        ClientConfig(endpoints=(ENDPOINTS[0],), credentials=Shibboleth(), on_challenge=lambda _: b"")
