"""The proof that a session's token needs beside it: a connection shows again the principal that opened the session.

A token that was stolen, from the memory of a client or from a link that can be read, is worth nothing without it. The
member that the client is connected to asks, follower or leader, and its own authenticator decides, as for an opening:

    client    ChallengeResponse(session, secret), a keep-alive    as on every new connection
    member    Challenge(id, SHOW_CREDENTIALS)                      if the secret fits, and its principal is not proven
    client    ChallengeResponse(id, credentials)                   as they are in a connect request
    member    Challenge(other id, the authenticator's challenge)   if the authenticator sends one
    client    ChallengeResponse(other id, answer)                  the claim of this connection holds the principal now

So a follower knows before it leads whose connections it has, and a change of leaders costs no challenge. A question is
sent again at each further keep-alive until it is answered: an answer may be lost while a member starts to lead. The two
ids keep a second answer to the first question from being taken for an answer to the second one.

Nothing changes for the one who holds the session until the proof is accepted, and a proof of another principal changes
nothing either. A certificate is a proof of its own (`session_claims`): its sessions are not asked for.

Bounds: one attempt of a connection for each principal that has sessions of its secret. One that has failed is not
repeated on this connection until the leader changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....service_api.types import ClusterSessionId, CorrelationId
from ....service_api.wire.session import Challenge
from ....service_api.wire.session_token import SHOW_CREDENTIALS
from .. import effects as fx
from ..context import ConsensusContext
from ..events import ClientKeepAlive
from .pending_sessions import ask_authenticator
from .session_state import SessionState, enter


@dataclass(slots=True)
class ProofAttempt:
    """One connection that is to prove one principal."""

    credentials_id: int
    """The id that the client answers to with its credentials."""
    session_id: int
    """The id by which the authenticator knows the attempt, and that the client answers its challenge to."""
    keep_alive: ClientKeepAlive
    """The claim to a session that is decided with the attempt."""
    correlation_id: CorrelationId
    encoded_principal: bytes
    address: str
    state: SessionState = SessionState.INIT
    encoded_challenge: bytes = b""


class SessionProofs:
    """Every proof of a principal that this member waits for."""

    def __init__(
        self,
        ctx: ConsensusContext,
        *,
        take_id: Callable[[], int],
        on_proven: Callable[[ClientKeepAlive, bytes], None],
        on_failed: Callable[[ClientKeepAlive], None],
    ) -> None:
        """`take_id` gives negative ids that no pending session has; `on_proven` gets the principal that was proven."""
        self._ctx = ctx
        self._take_id = take_id
        self._on_proven = on_proven
        self._on_failed = on_failed
        self._attempts: dict[int, ProofAttempt] = {}
        """By both of their ids."""
        self._by_connection: dict[int, dict[bytes, ProofAttempt | None]] = {}
        """By connection and principal; None: it has failed."""

    def __repr__(self) -> str:
        return f"<SessionProofs attempts={len(self._attempts) // 2}>"

    def ask(
        self,
        keep_alive: ClientKeepAlive,
        encoded_principal: bytes,
        correlation_id: CorrelationId,
        address: str,
        *,
        is_repeated: bool,
    ) -> bool:
        """Have a connection prove a principal, or say so again if `is_repeated`; False if it has failed to."""
        attempts = self._by_connection.setdefault(keep_alive.connection_id, {})
        is_new = encoded_principal not in attempts
        if is_new:
            attempt = ProofAttempt(
                self._take_id(), self._take_id(), keep_alive, correlation_id, encoded_principal, address
            )
            attempts[encoded_principal] = attempt
            self._attempts[attempt.credentials_id] = self._attempts[attempt.session_id] = attempt
        found = attempts[encoded_principal]
        if found is None:
            return False
        if found.state is not SessionState.INIT and self._decide(found):
            return True
        if found.state is not SessionState.CONNECTED and (is_new or is_repeated):
            self._send_challenge(found)
        return True

    def on_challenge_response(self, connection_id: int, session_id: int, encoded_credentials: bytes) -> bool:
        """A client answers. False if nothing was asked on this connection."""
        attempt = self._attempts.get(session_id)
        if attempt is None or attempt.keep_alive.connection_id != connection_id:
            return False
        ctx = self._ctx
        if session_id == attempt.credentials_id and attempt.state is SessionState.INIT:
            enter(attempt, SessionState.CONNECTED)
            ctx.authenticator.on_connect_request(attempt.session_id, encoded_credentials, ctx.timestamp)
            self._decide(attempt)
        elif session_id == attempt.session_id and attempt.state is SessionState.CHALLENGED:
            ctx.authenticator.on_challenge_response(attempt.session_id, encoded_credentials, ctx.timestamp)
            self._decide(attempt)
        return True

    def poll(self) -> None:
        """Ask the authenticator again about those that it has not decided about."""
        for session_id, attempt in [*self._attempts.items()]:
            if session_id == attempt.session_id and attempt.state is not SessionState.INIT:
                self._decide(attempt)

    def on_disconnected(self, connection_id: int) -> None:
        """A connection is gone, and with it what it was asked."""
        for attempt in self._by_connection.pop(connection_id, {}).values():
            if attempt is not None:
                self._forget(attempt)

    def forgive(self) -> None:
        """Let those that have failed try again: this member leads now, and its word counts."""
        for connection_id, attempts in [*self._by_connection.items()]:
            self._by_connection[connection_id] = {key: one for key, one in attempts.items() if one is not None}

    def _decide(self, attempt: ProofAttempt) -> bool:
        """Ask the authenticator, and do what it says. False if it is undecided: it is asked again at the next poll of a
        leader, and at the next keep-alive.
        """
        proxy = ask_authenticator(self._ctx, attempt.state, attempt.session_id, attempt.address)
        match proxy.decision:
            case SessionState.CHALLENGED:
                enter(attempt, SessionState.CHALLENGED)
                attempt.encoded_challenge = proxy.payload
                self._send_challenge(attempt)
            case SessionState.AUTHENTICATED if proxy.payload == attempt.encoded_principal:
                self._forget(attempt)
                del self._by_connection[attempt.keep_alive.connection_id][attempt.encoded_principal]
                self._on_proven(attempt.keep_alive, attempt.encoded_principal)
            case SessionState.AUTHENTICATED | SessionState.REJECTED:
                self._forget(attempt)
                self._by_connection[attempt.keep_alive.connection_id][attempt.encoded_principal] = None
                self._on_failed(attempt.keep_alive)
            case _:
                return False
        return True

    def _send_challenge(self, attempt: ProofAttempt) -> None:
        is_first = attempt.state is SessionState.INIT
        challenge = Challenge(
            correlation_id=attempt.correlation_id,
            cluster_session_id=ClusterSessionId(attempt.credentials_id if is_first else attempt.session_id),
            encoded_challenge=SHOW_CREDENTIALS if is_first else attempt.encoded_challenge,
        )
        self._ctx.emit(fx.SendToClient(attempt.keep_alive.connection_id, challenge))

    def _forget(self, attempt: ProofAttempt) -> None:
        del self._attempts[attempt.credentials_id], self._attempts[attempt.session_id]
