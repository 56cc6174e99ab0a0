"""What one client shows the members: its credentials while it connects, its session's secret on each connection."""

from __future__ import annotations

from typing import Final

from trimaran.service_api.cluster_id import parse_cluster_id, with_cluster_id
from trimaran.service_api.types import ClusterSessionId, CorrelationId
from trimaran.service_api.wire.session import Challenge, ChallengeResponse
from trimaran.service_api.wire.session_token import token_channel

from .config import ClientConfig
from .errors import ConnectRejectedError

_NO_CORRELATION: Final = CorrelationId(-1)


class SessionIdentity:
    """What one client shows: its credentials while it connects, the session's secret on every connection after."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._secret = config.make_secret()
        self.response_channel = with_cluster_id(token_channel(self._secret), parse_cluster_id(config.cluster_id))

    def __repr__(self) -> str:
        return f"<SessionIdentity {self.response_channel}>"

    def encoded_credentials(self) -> bytes:
        """What goes with a connect request."""
        credentials = self._config.credentials
        return credentials if isinstance(credentials, bytes) else credentials.encoded_credentials()

    def answer(self, challenge: Challenge) -> bytes:
        """Encode the response to a challenge.

        Raises:
            ConnectRejectedError: nothing was given to answer it with, or that failed.
        """
        credentials = self._config.credentials
        on_challenge = self._config.on_challenge if isinstance(credentials, bytes) else credentials.on_challenge
        if on_challenge is None:
            raise ConnectRejectedError("CHALLENGE", "no on_challenge was given to answer it")
        try:
            encoded_credentials = on_challenge(challenge.encoded_challenge)
        except Exception as error:
            raise ConnectRejectedError("CHALLENGE", f"on_challenge failed: {type(error).__name__}: {error}") from error
        response = ChallengeResponse(
            correlation_id=challenge.correlation_id,
            cluster_session_id=challenge.cluster_session_id,
            encoded_credentials=encoded_credentials,
        )
        return response.encode()

    def proof(self, cluster_session_id: int) -> bytes:
        """Encode what shows a member that the session is this client's."""
        proof = ChallengeResponse(
            correlation_id=_NO_CORRELATION,
            cluster_session_id=ClusterSessionId(cluster_session_id),
            encoded_credentials=self._secret,
        )
        return proof.encode()
