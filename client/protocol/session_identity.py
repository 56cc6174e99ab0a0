"""What one client shows the members: its credentials while it connects, its session's secret on each connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...service_api.access.credentials import CREDENTIALS_ADVICE, advise, describe_unanswered
from ...service_api.cluster_id import parse_cluster_id, with_cluster_id
from ...service_api.groups.demand import with_group
from ...service_api.types import ClusterSessionId, CorrelationId, TermId
from ...service_api.wire.message import message_header, message_struct
from ...service_api.wire.session import (
    AskingKeepAlive,
    Challenge,
    ChallengeResponse,
    EventCode,
    SessionCloseRequest,
)
from ...service_api.wire.session_token import SHOW_CREDENTIALS, token_channel
from ..config import ClientConfig
from ..errors import ConnectRejectedError
from .egress_adapter import ClientSessionState

_KEEP_ALIVE: Final = message_struct(AskingKeepAlive)
_KEEP_ALIVE_HEADER: Final = message_header(AskingKeepAlive)

_NO_CORRELATION: Final = CorrelationId(-1)


_NUMBER_BITS: Final = 22
_ATTEMPT_BITS: Final = 20
SHARED_NUMBER_LIMIT: Final = 1 << _NUMBER_BITS


@dataclass(slots=True, frozen=True)
class SessionShare:
    """What tells the sessions of a shared connection apart; what shows whose they are, the connection sends for all."""

    base: int
    """Of the connection: 0 to 2^20 - 1."""
    number: int
    """Of the session: 0 to `SHARED_NUMBER_LIMIT` - 1."""

    @property
    def first_correlation_id(self) -> int:
        """The number of the session's first connect request; a million more are its own."""
        return (self.base << _NUMBER_BITS | self.number) << _ATTEMPT_BITS

    @staticmethod
    def split(correlation_id: int) -> tuple[int, int]:
        """Return the base and the number that a correlation id is of."""
        return divmod(correlation_id >> _ATTEMPT_BITS, SHARED_NUMBER_LIMIT)


def proof_of(secret: bytes, cluster_session_id: int) -> bytes:
    """Encode what shows a member that a session is this client's."""
    proof = ChallengeResponse(
        correlation_id=_NO_CORRELATION,
        cluster_session_id=ClusterSessionId(cluster_session_id),
        encoded_credentials=secret,
    )
    return proof.encode()


def keep_alive_of(session: ClientSessionState, now_ns: int) -> bytes:
    """Encode the word that a session is alive; the answer repeats the time."""
    ids = session.leadership_term_id, session.cluster_session_id
    return _KEEP_ALIVE.pack(*_KEEP_ALIVE_HEADER, *ids, now_ns)


def close_request_of(cluster_session_id: int, leadership_term_id: int) -> bytes:
    """Encode the wish that a session be closed."""
    return SessionCloseRequest(
        leadership_term_id=TermId(leadership_term_id), cluster_session_id=ClusterSessionId(cluster_session_id)
    ).encode()


class SessionIdentity:
    """What one client shows: its credentials while it connects, the session's secret on every connection after."""

    def __init__(self, config: ClientConfig, share: SessionShare | None = None) -> None:
        self._config = config
        self._secret = config.make_secret()
        proves_again = bool(config.credentials) or config.on_challenge is not None
        channel = token_channel(self._secret, proves_again=proves_again)
        if share is not None:
            # Two requests of one channel are one session's: this one is not its neighbour's.
            channel += f"|alias={share.number}"
        channel = with_cluster_id(channel, parse_cluster_id(config.cluster_id))
        self.response_channel = with_group(channel, config.group)

    def __repr__(self) -> str:
        return f"<SessionIdentity {self.response_channel}>"

    def encoded_credentials(self) -> bytes:
        """What goes with a connect request."""
        credentials = self._config.credentials
        return credentials if isinstance(credentials, bytes) else credentials.encoded_credentials()

    def rejection(self, code: str, detail: str) -> ConnectRejectedError:
        """Make the error of a refused connect; a client that has passed no credentials learns which there are."""
        is_rejected = code == EventCode.AUTHENTICATION_REJECTED.name
        return ConnectRejectedError(code, detail, advise(self.encoded_credentials()) if is_rejected else "")

    def answer(self, challenge: Challenge) -> bytes:
        """Encode the response to a challenge; one that wants the credentials themselves is that of a member that asks
        whose the session is.

        Raises:
            ConnectRejectedError: nothing was given to answer it with, or that failed.
        """
        if challenge.encoded_challenge == SHOW_CREDENTIALS:
            return _response(challenge, self.encoded_credentials())
        credentials = self._config.credentials
        on_challenge = self._config.on_challenge if isinstance(credentials, bytes) else credentials.on_challenge
        if on_challenge is None:
            raise ConnectRejectedError("CHALLENGE", describe_unanswered(self.encoded_credentials()), CREDENTIALS_ADVICE)
        try:
            encoded_credentials = on_challenge(challenge.encoded_challenge)
        except Exception as error:
            raise ConnectRejectedError("CHALLENGE", f"on_challenge failed: {type(error).__name__}: {error}") from error
        return _response(challenge, encoded_credentials)

    def proof(self, cluster_session_id: int) -> bytes:
        """Encode what shows a member that the session is this client's."""
        return proof_of(self._secret, cluster_session_id)


def _response(challenge: Challenge, encoded_credentials: bytes) -> bytes:
    response = ChallengeResponse(
        correlation_id=challenge.correlation_id,
        cluster_session_id=challenge.cluster_session_id,
        encoded_credentials=encoded_credentials,
    )
    return response.encode()
