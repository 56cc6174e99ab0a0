"""The claims of clients to sessions: which connection has shown the token of which session.

A client proves its session on each of its connections, to followers as well, and perhaps before the session's opening
is delivered here. So a proof is kept as a claim, a digest beside a session id, and is held against the session when
somebody wants to know. A claim never changes anything by itself.

Bounds: one claim a connection, the newest; it goes with the connection.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimaran.service_api.types import ClusterSessionId
from trimaran.service_api.wire.session_token import is_digest_of, token_digest


@dataclass(slots=True)
class _Claim:
    session_id: ClusterSessionId
    digest: bytes
    is_refused: bool = False
    """Whether something shown on this connection did not fit already: one log line a connection."""


class SessionClaims:
    """The claims of every connection of this member."""

    def __init__(self) -> None:
        self._claims: dict[int, _Claim] = {}
        self._awaiting: dict[ClusterSessionId, dict[int, None]] = {}
        """Connections to be looked at when a session's opening is delivered: their keep-alives came before it."""
        self.refused_count = 0
        """Connections that named a session and could not show its token."""

    def __repr__(self) -> str:
        return f"<SessionClaims claims={len(self._claims)} refused={self.refused_count}>"

    def add(self, connection_id: int, session_id: ClusterSessionId, secret: bytes) -> None:
        """Keep what a client has shown on a connection, in place of what it has shown before."""
        before = self._claims.get(connection_id)
        self.forget(connection_id)
        is_refused = before is not None and before.is_refused
        self._claims[connection_id] = _Claim(session_id, token_digest(secret), is_refused)

    def fits(self, connection_id: int, session_id: ClusterSessionId, expected: bytes | None) -> bool:
        """Whether the secret shown on this connection is that of this session."""
        claim = self._claims.get(connection_id)
        return claim is not None and claim.session_id == session_id and is_digest_of(expected, claim.digest)

    def await_open(self, connection_id: int, session_id: ClusterSessionId) -> None:
        """Remember that a connection wants a session whose opening is not delivered here, if it claims it."""
        claim = self._claims.get(connection_id)
        if claim is not None and claim.session_id == session_id:
            self._awaiting.setdefault(session_id, {})[connection_id] = None

    def take_awaiting(self, session_id: ClusterSessionId) -> list[int]:
        """Return the connections that waited for the session to open, once."""
        return [*self._awaiting.pop(session_id, ())]

    def refuse(self, connection_id: int) -> bool:
        """Count a connection that names a session without its token; True for the first time."""
        claim = self._claims.get(connection_id)
        if claim is None:
            # It shows nothing at all: remembered as a claim that fits no session.
            claim = self._claims[connection_id] = _Claim(ClusterSessionId(-1), b"")
        is_first, claim.is_refused = not claim.is_refused, True
        self.refused_count += is_first
        return is_first

    def forget(self, connection_id: int) -> None:
        """A connection is gone, or shows something else."""
        claim = self._claims.pop(connection_id, None)
        waiting = None if claim is None else self._awaiting.get(claim.session_id)
        if claim is not None and waiting is not None:
            waiting.pop(connection_id, None)
            if not waiting:
                del self._awaiting[claim.session_id]
