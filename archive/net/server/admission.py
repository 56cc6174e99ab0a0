"""Admission of a control session: one attempt, from the connect request to the authenticator's decision."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from ....service_api.authenticator import (
    CHALLENGE_LIMIT_BYTES,
    CREDENTIALS_LIMIT_BYTES,
    PRINCIPAL_LIMIT_BYTES,
    Authenticator,
)
from ....service_api.errors import LocalProtocolError
from ...format import messages
from ..control import EVENTS_STREAM_ID

ASK_INTERVAL_S: Final = 0.1
"""How often an authenticator that has not decided is asked again."""

_log = structlog.get_logger(__name__)


class Admission:
    """One peer that wants a session: the `SessionProxy` that its authenticator sees.

    One that raises has rejected it, and so have credentials that are too long.
    """

    def __init__(
        self, authenticator: Authenticator, request: messages.AuthConnectRequest, session_id: int, address: str
    ) -> None:
        self.session_id: Final = session_id
        self.address: Final = address
        self.correlation_id: Final = request.correlation_id
        self.wants_events: Final = request.response_stream_id == EVENTS_STREAM_ID
        self.principal: bytes | None = None
        """Who it is, once it is let in."""
        self.proof_id = ""
        """The authenticator's name for the proof of that."""
        self.challenge_bytes: bytes | None = None
        self._authenticator = authenticator
        self._is_challenged = False
        self._is_decided = False
        self._tell(request.encoded_credentials)

    def __repr__(self) -> str:
        return f"<Admission session_id={self.session_id} decided={self._is_decided}>"

    # --- what the authenticator sees

    def challenge(self, encoded_challenge: bytes) -> bool:
        """Ask the peer to prove who it is.

        Raises:
            LocalProtocolError: the challenge is too long.
        """
        if len(encoded_challenge) > CHALLENGE_LIMIT_BYTES:
            raise LocalProtocolError(f"challenge too long: length={len(encoded_challenge)}")
        self.challenge_bytes = encoded_challenge
        self._is_decided = True
        return True

    def authenticate(self, encoded_principal: bytes, proof_id: str = "") -> bool:
        """Let the peer in as this principal.

        Raises:
            LocalProtocolError: the principal is too long.
        """
        if len(encoded_principal) > PRINCIPAL_LIMIT_BYTES:
            raise LocalProtocolError(f"principal too long: length={len(encoded_principal)}")
        self.principal, self.challenge_bytes, self._is_decided = encoded_principal, None, True
        self.proof_id = proof_id
        return True

    def reject(self) -> None:
        """Refuse the peer."""
        self.principal, self.challenge_bytes, self._is_decided = None, None, True

    # --- what the session sees

    async def decide(self) -> None:
        """Ask the authenticator until it has let the peer in, turned it away, or asked it for more."""
        while not self._is_decided:
            self._ask()
            if not self._is_decided:
                await asyncio.sleep(ASK_INTERVAL_S)

    def answer(self, encoded_credentials: bytes) -> None:
        """Pass on what the peer says to a challenge; without one it is turned away."""
        if self.challenge_bytes is None:
            self.reject()
            return
        self._is_challenged, self._is_decided, self.challenge_bytes = True, False, None
        self._tell(encoded_credentials)

    def _tell(self, encoded_credentials: bytes) -> None:
        if len(encoded_credentials) > CREDENTIALS_LIMIT_BYTES:
            self.reject()
            return
        authenticator = self._authenticator
        tell = authenticator.on_challenge_response if self._is_challenged else authenticator.on_connect_request
        try:
            tell(self.session_id, encoded_credentials, _now_ms())
        except Exception:
            self._note()

    def _ask(self) -> None:
        authenticator = self._authenticator
        ask = authenticator.on_challenged_session if self._is_challenged else authenticator.on_connected_session
        try:
            ask(self, _now_ms())
        except Exception:
            self._note()

    def _note(self) -> None:
        _log.exception("authenticator.failed", session_id=self.session_id)
        self.reject()


def _now_ms() -> int:
    """Milliseconds of the loop's clock: authenticators measure with it, and show it nobody."""
    return int(asyncio.get_running_loop().time() * 1000)
