"""The states of a client's connection to ingress; `connection_life` has the door between them.

    ACCEPTED   it has sent no setup frame; if the gate ends it, it gets no message
    SET_UP     its setup frame has come: short frames, no fragments, and a deadline until a session is its own
    CLAIMED    its client has shown something for a session, which the core may not have looked at yet: long frames,
               and a fragment asks the core
    OPEN       a session was bound to it; this state outlasts the session
    ENDING     it is closed, refused, cut off or ended by the gate: egress that waits goes out, no more is added, and
               what is unfinished is not counted; what still comes is taken by the rights that it had
    CLOSED     it is lost

A connection to a follower stays SET_UP or CLAIMED: nothing is bound there, and the core knows whose it is.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class ConnectionState(Enum):
    """Where a connection stands."""

    ACCEPTED = auto()
    SET_UP = auto()
    CLAIMED = auto()
    OPEN = auto()
    ENDING = auto()
    CLOSED = auto()


_S = ConnectionState

LEGAL_TRANSITIONS: Final[dict[ConnectionState, frozenset[ConnectionState]]] = {
    _S.ACCEPTED: frozenset({_S.SET_UP, _S.ENDING, _S.CLOSED}),
    _S.SET_UP: frozenset({_S.CLAIMED, _S.OPEN, _S.ENDING, _S.CLOSED}),
    _S.CLAIMED: frozenset({_S.OPEN, _S.ENDING, _S.CLOSED}),
    _S.OPEN: frozenset({_S.ENDING, _S.CLOSED}),
    _S.ENDING: frozenset({_S.CLOSED}),
    _S.CLOSED: frozenset(),
}
"""Which state may follow which."""
