"""The 18 states of an election, and every transition that is legal.

Everything that decides which state may follow which is in this file. `Election.enter` asserts the table, the diagram
in ARCHITECTURE.md is drawn from it and a test compares them, so code and picture cannot drift apart.

Source: seed 001, "State Machine"; Aeron `ElectionState`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ElectionState(IntEnum):
    """Where a member stands in an election. The numbers are Aeron's, as its election-state counter shows them."""

    INIT = 0
    """Clear the decks: stop the log, undo what never committed."""
    CANVASS = 1
    """Exchange append positions; decide whether to be a candidate."""
    NOMINATE = 2
    """Wait a random while, so that two equal candidates rarely collide."""
    CANDIDATE_BALLOT = 3
    """Ask for votes and count them."""
    FOLLOWER_BALLOT = 4
    """Voted; wait for the outcome."""
    LEADER_LOG_REPLICATION = 5
    """Won; wait until a quorum holds this member's whole log and knows the term."""
    LEADER_REPLAY = 6
    """Process the log up to the append position."""
    LEADER_INIT = 7
    """Passed through at once: the log has been open to followers since the ballot was won, and is recorded always."""
    LEADER_READY = 8
    """Passed through at once: the marks of the term are a majority of reports in it.

    As the election closes, the leader appends the first entry of the term, and its service is told that it leads.
    """
    FOLLOWER_LOG_REPLICATION = 9
    """Copy the rest of one missed leadership term from the leader's archive."""
    FOLLOWER_REPLAY = 10
    """Process the log up to the append position, but never past the known commit position."""
    FOLLOWER_CATCHUP_INIT = 11
    """Ask the leader to replay the current term's entries that are missing."""
    FOLLOWER_CATCHUP_AWAIT = 12
    """Wait for that replay to connect."""
    FOLLOWER_CATCHUP = 13
    """Record the replay; join the live log when near its end."""
    FOLLOWER_LOG_INIT = 14
    """Make sure that there is a live log to join."""
    FOLLOWER_LOG_AWAIT = 15
    """Wait for the leader's log link, then join it at the append position."""
    FOLLOWER_READY = 16
    """Tell the leader where this member's log ends."""
    CLOSED = 17
    """The election is over."""


_S = ElectionState

_FORWARD: Final[dict[ElectionState, tuple[ElectionState, ...]]] = {
    _S.INIT: (_S.CANVASS, _S.NOMINATE, _S.LEADER_LOG_REPLICATION),
    _S.CANVASS: (_S.NOMINATE, _S.FOLLOWER_BALLOT, _S.FOLLOWER_LOG_REPLICATION, _S.FOLLOWER_REPLAY),
    _S.NOMINATE: (_S.CANDIDATE_BALLOT, _S.FOLLOWER_BALLOT, _S.FOLLOWER_LOG_REPLICATION, _S.FOLLOWER_REPLAY),
    _S.CANDIDATE_BALLOT: (
        _S.LEADER_LOG_REPLICATION,
        _S.CANVASS,
        _S.FOLLOWER_BALLOT,
        _S.FOLLOWER_LOG_REPLICATION,
        _S.FOLLOWER_REPLAY,
    ),
    _S.FOLLOWER_BALLOT: (_S.CANVASS, _S.FOLLOWER_BALLOT, _S.FOLLOWER_LOG_REPLICATION, _S.FOLLOWER_REPLAY),
    _S.LEADER_LOG_REPLICATION: (_S.LEADER_REPLAY,),
    _S.LEADER_REPLAY: (_S.LEADER_INIT,),
    _S.LEADER_INIT: (_S.LEADER_READY,),
    _S.LEADER_READY: (_S.CLOSED,),
    _S.FOLLOWER_LOG_REPLICATION: (_S.CANVASS,),
    _S.FOLLOWER_REPLAY: (_S.FOLLOWER_CATCHUP_INIT, _S.FOLLOWER_LOG_INIT),
    _S.FOLLOWER_CATCHUP_INIT: (_S.FOLLOWER_CATCHUP_AWAIT,),
    _S.FOLLOWER_CATCHUP_AWAIT: (_S.FOLLOWER_CATCHUP,),
    _S.FOLLOWER_CATCHUP: (_S.FOLLOWER_LOG_INIT,),
    _S.FOLLOWER_LOG_INIT: (_S.FOLLOWER_READY, _S.FOLLOWER_LOG_AWAIT),
    _S.FOLLOWER_LOG_AWAIT: (_S.FOLLOWER_READY,),
    _S.FOLLOWER_READY: (_S.CLOSED,),
    _S.CLOSED: (),
}

LEGAL_TRANSITIONS: Final[dict[ElectionState, frozenset[ElectionState]]] = {
    state: frozenset(targets) | (frozenset() if state in (_S.INIT, _S.CLOSED) else frozenset({_S.INIT}))
    for state, targets in _FORWARD.items()
}
"""Which state may follow which. Anything that goes wrong leads back to INIT; CLOSED ends the election object."""

LEADER_STATES: Final = frozenset({_S.LEADER_LOG_REPLICATION, _S.LEADER_REPLAY, _S.LEADER_INIT, _S.LEADER_READY})
"""The states in which this member has won the ballot."""

FOLLOWER_STATES: Final = frozenset(state for state in _S if _S.FOLLOWER_LOG_REPLICATION <= state <= _S.FOLLOWER_READY)
"""The states in which this member follows a known leader."""

BALLOT_STATES: Final = frozenset({_S.CANVASS, _S.NOMINATE, _S.CANDIDATE_BALLOT, _S.FOLLOWER_BALLOT})
"""The states in which this member may give its vote."""


def mermaid() -> str:
    """Draw the table as a Mermaid state diagram; the arrows back to INIT are told in one note instead of drawn."""
    lines = ["stateDiagram-v2", "    [*] --> INIT"]
    for state, targets in _FORWARD.items():
        lines += [f"    {state.name} --> {target.name}" for target in targets]
    lines += [
        "    CLOSED --> [*]",
        "    note right of INIT: every state but CLOSED returns here when something goes wrong",
    ]
    return "\n".join(lines)
