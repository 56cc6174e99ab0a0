"""Calls the user's authenticator, and treats an exception as a refusal."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from ....service_api.authenticator import Authenticator, SessionProxy
from ....service_api.users_code import calls_users_code

logger = structlog.get_logger()


class GuardedAuthenticator:
    """An authenticator that never raises: one that does has rejected the session it was asked about, and is logged.

    Whom it has admitted already it does not lose by that: a failure of its own ends no session.
    """

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._failed_session_id: int | None = None
        """The session that failed when it was told about: the core asks about the same one next."""
        self._review: Callable[[bytes, str], bool] | None = getattr(authenticator, "still_admits", None)
        self._is_review_failing = False

    def __repr__(self) -> str:
        return f"<GuardedAuthenticator {type(self._authenticator).__name__}>"

    @calls_users_code
    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """Pass on the connect request of a client."""
        try:
            self._authenticator.on_connect_request(session_id, encoded_credentials, now_ms)
        except Exception:
            self._note("on_connect_request", session_id)

    @calls_users_code
    def on_connected_session(self, proxy: SessionProxy, now_ms: int) -> None:
        """Ask about a client."""
        if self._has_failed(proxy):
            return
        try:
            self._authenticator.on_connected_session(proxy, now_ms)
        except Exception:
            self._note("on_connected_session", proxy.session_id)
            self._has_failed(proxy)

    @calls_users_code
    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """Pass on the answer to a challenge."""
        try:
            self._authenticator.on_challenge_response(session_id, encoded_credentials, now_ms)
        except Exception:
            self._note("on_challenge_response", session_id)

    @calls_users_code
    def on_challenged_session(self, proxy: SessionProxy, now_ms: int) -> None:
        """Ask about a client that was challenged."""
        if self._has_failed(proxy):
            return
        try:
            self._authenticator.on_challenged_session(proxy, now_ms)
        except Exception:
            self._note("on_challenged_session", proxy.session_id)
            self._has_failed(proxy)

    @calls_users_code
    def still_admits(self, encoded_principal: bytes, proof_id: str) -> bool:
        """Return whether who was let in with this proof would be now. The first failure in a row is logged."""
        if self._review is None:
            return True
        try:
            is_admitted = bool(self._review(encoded_principal, proof_id))
        except Exception:
            if not self._is_review_failing:
                logger.exception("authenticator.failed", callback="still_admits")
            self._is_review_failing = True
            return True
        self._is_review_failing = False
        return is_admitted

    def _note(self, callback: str, session_id: int) -> None:
        self._failed_session_id = session_id
        logger.exception("authenticator.failed", callback=callback, session_id=session_id)

    def _has_failed(self, proxy: SessionProxy) -> bool:
        """Reject a session about which the authenticator has raised."""
        if self._failed_session_id != proxy.session_id:
            return False
        self._failed_session_id = None
        proxy.reject()
        return True
