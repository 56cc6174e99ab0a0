"""The claims of clients to sessions: which connection has shown which secret.

A client proves its sessions on each of its connections, to followers as well, and perhaps before a session's opening
is delivered here. So a proof is kept as a claim, a digest, and is held against a session when somebody wants to know.
A claim never changes anything by itself. One secret may be that of many sessions: those of a shared connection.

A certificate that the connection shows is part of its claim: a session that was opened with a certificate is claimed
with one of the same principal, and no other. So is each principal that it has proven to the authenticator
(`session_proofs`), for sessions that need this beside their secret.

Bounds: one secret a connection, the newest, and its principals; they go with the connection.
"""

from __future__ import annotations

from ....service_api.wire.session_token import bound_digest, is_digest_of, proven_digest, token_digest


class SessionClaims:
    """The claims of every connection of this member."""

    def __init__(self) -> None:
        self._secrets: dict[int, bytes] = {}
        """Digest of the secret that was shown last, by connection."""
        self._digests: dict[int, dict[bytes, None]] = {}
        """By connection, what sessions may ask for: of the secret, or of it and a principal that was shown."""
        self._addresses: dict[int, str] = {}
        """Where each of these connections comes from."""
        self._connections: dict[bytes, dict[int, None]] = {}
        """By digest, the connections on which its secret was shown, the newest last."""
        self._refused: set[int] = set()
        """Connections on which something did not fit already: one log line a connection."""
        self.refused_count = 0
        """Connections that named a session and could not show its token."""

    def __repr__(self) -> str:
        return f"<SessionClaims claims={len(self._secrets)} refused={self.refused_count}>"

    def add(self, connection_id: int, secret: bytes, certified_principal: bytes = b"", address: str = "-") -> None:
        """Keep what a client has shown on a connection, in place of what it has shown before."""
        digest = token_digest(secret)
        if not self.shows(connection_id, digest):
            self._drop(connection_id)
        self._addresses[connection_id] = address
        self._secrets[connection_id] = digest
        self._add_digest(connection_id, bound_digest(digest, certified_principal))

    def add_principal(self, connection_id: int, encoded_principal: bytes) -> None:
        """Add to a connection's claim a principal that it has proven."""
        digest = self._secrets.get(connection_id)
        if digest is not None:
            self._add_digest(connection_id, proven_digest(digest, encoded_principal))

    def shows(self, connection_id: int, secret_digest: bytes | None) -> bool:
        """Return True if this connection has shown a session's secret; that alone may not be enough for the session."""
        digest = self._secrets.get(connection_id)
        return digest is not None and is_digest_of(secret_digest, digest)

    def fits(self, connection_id: int, expected: bytes | None) -> bool:
        """Return True if this connection has shown what a session's token expects."""
        return expected is not None and expected in self._digests.get(connection_id, ())

    def holder_of(self, expected: bytes | None) -> int | None:
        """Return the connection on which the secret of a session was shown last; None without one."""
        if expected is None:
            return None
        connections = self._connections.get(expected)
        return next(reversed(connections)) if connections else None

    def address_of(self, connection_id: int | None) -> str | None:
        """Return where a connection comes from on which a secret was shown; None of any other."""
        return None if connection_id is None else self._addresses.get(connection_id)

    def refuse(self, connection_id: int) -> bool:
        """Count a connection that names a session without its token; True for the first time."""
        is_first = connection_id not in self._refused
        self._refused.add(connection_id)
        self.refused_count += is_first
        return is_first

    def forget(self, connection_id: int) -> None:
        """A connection is gone."""
        self._drop(connection_id)
        self._refused.discard(connection_id)

    def _drop(self, connection_id: int) -> None:
        if self._secrets.pop(connection_id, None) is None:
            return
        del self._addresses[connection_id]
        for digest in self._digests.pop(connection_id):
            connections = self._connections[digest]
            del connections[connection_id]
            if not connections:
                del self._connections[digest]

    def _add_digest(self, connection_id: int, digest: bytes) -> None:
        self._digests.setdefault(connection_id, {})[digest] = None
        connections = self._connections.setdefault(digest, {})
        connections.pop(connection_id, None)
        connections[connection_id] = None
