"""The states of a client session, and the one door between them.

    INIT         made, of a connect request or of a log entry; nothing is decided
    CONNECTED    leader only: its authenticator is asked
    CHALLENGED   leader only: its client is asked to prove who it is
    AUTHENTICATED leader only: it is let in; its opening is about to be appended
    REJECTED     leader only: refused for its version, its channel, the limit, or by the authenticator
    OPEN         its opening is appended (leader) or delivered (every member)
    CLOSING      the service, or the leader for its client's sake or for silence, wants it closed
    CLOSED       its close was delivered, its opening undone, or it never came so far; nobody holds it any more

Two states of Aeron's have no counterpart, because egress goes out on the connection that the client made: CONNECTING,
in which an egress publication is being added, and INVALID, in which it could not be. A client that is gone is
disconnected, not invalid. What Aeron tags as BACKUP, HEARTBEAT and STANDBY_SNAPSHOT are no sessions here.

Source: aeron.md §3.5; Aeron `ClusterSession.State`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

from ....service_api.errors import invariant


class SessionState(Enum):
    """Where a session stands."""

    INIT = "init"
    CONNECTED = "connected"
    CHALLENGED = "challenged"
    AUTHENTICATED = "authenticated"
    REJECTED = "rejected"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


_S = SessionState

LEGAL_TRANSITIONS: Final[dict[SessionState, frozenset[SessionState]]] = {
    _S.INIT: frozenset({_S.CONNECTED, _S.REJECTED, _S.OPEN}),
    _S.CONNECTED: frozenset({_S.CHALLENGED, _S.AUTHENTICATED, _S.REJECTED, _S.CLOSED}),
    _S.CHALLENGED: frozenset({_S.CHALLENGED, _S.AUTHENTICATED, _S.REJECTED, _S.CLOSED}),
    _S.AUTHENTICATED: frozenset({_S.OPEN, _S.CLOSED}),
    _S.REJECTED: frozenset({_S.CLOSED}),
    _S.OPEN: frozenset({_S.CLOSING, _S.CLOSED}),
    _S.CLOSING: frozenset({_S.OPEN, _S.CLOSING, _S.CLOSED}),
    _S.CLOSED: frozenset(),
}
"""INIT to OPEN: out of the log. CLOSING to OPEN: a close that never committed is taken back. CLOSING to CLOSING: for
another reason as well. What a snapshot holds begins OPEN or CLOSING."""


class HasSessionState(Protocol):
    """What goes through the door."""

    state: SessionState


def enter(session: HasSessionState, new: SessionState) -> None:
    """Change a session's state: the one door.

    Raises:
        InvariantViolation: the table has no such transition.
    """
    invariant(new in LEGAL_TRANSITIONS[session.state], "illegal session transition", session=session, new=new)
    session.state = new
