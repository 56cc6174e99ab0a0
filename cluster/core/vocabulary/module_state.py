"""The state of a member's consensus module, apart from leadership: one enum, one table of legal transitions, one door.

Source: aeron.md §3.1; Aeron `ConsensusModule.State`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

from ....service_api import invariant


class ModuleState(IntEnum):
    """The state of a consensus module. The values are Aeron's."""

    INIT = 0
    """Not started: loading what is on the disk."""
    ACTIVE = 1
    """Ordinary work, elections included."""
    SUSPENDED = 2
    """The leader takes no input and appends none; heartbeats and elections go on."""
    SNAPSHOT = 3
    """A snapshot action is in the leader's log, or was delivered here, and its snapshot is not recorded yet."""
    QUITTING = 4
    """This member alone stops, because it was told to."""
    TERMINATING = 5
    """The cluster stops: this member has done its part, or nothing is left of it but to wait for the others."""
    CLOSED = 6
    """Stopped."""


_S = ModuleState

TRANSITIONS: Final[dict[ModuleState, frozenset[ModuleState]]] = {
    _S.INIT: frozenset({_S.ACTIVE, _S.QUITTING}),
    _S.ACTIVE: frozenset({_S.SUSPENDED, _S.SNAPSHOT, _S.QUITTING, _S.TERMINATING}),
    _S.SUSPENDED: frozenset({_S.ACTIVE, _S.QUITTING, _S.TERMINATING}),
    # A member may hear of the next leader's SUSPEND while it still records.
    _S.SNAPSHOT: frozenset({_S.ACTIVE, _S.SUSPENDED, _S.QUITTING, _S.TERMINATING}),
    # Leadership lost: the termination is called off here.
    _S.TERMINATING: frozenset({_S.ACTIVE, _S.SUSPENDED, _S.QUITTING, _S.CLOSED}),
    _S.QUITTING: frozenset({_S.CLOSED}),
    _S.CLOSED: frozenset(),
}
"""Which state may follow which."""


class ModuleStateMachine:
    """The state, and its door. `on_changed` hears of every change but the first, which the start of the node tells."""

    def __init__(self, on_changed: Callable[[ModuleState, ModuleState, str], None]) -> None:
        self._on_changed = on_changed
        self.state = ModuleState.INIT

    def __repr__(self) -> str:
        return f"<ModuleStateMachine {self.state.name}>"

    def enter(self, new: ModuleState, reason: str) -> None:
        """Change the state; entering the state that is there already changes nothing."""
        old = self.state
        if new is old:
            return
        invariant(new in TRANSITIONS[old], "a legal transition", old=old.name, new=new.name, reason=reason)
        self.state = new
        if old is not ModuleState.INIT:
            self._on_changed(old, new, reason)
