"""The table of the election's phases by state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..vocabulary.election_state import ElectionState
from .ballot import Ballot
from .canvass import Canvass
from .election import Election, ElectionPhase
from .leader_phase import LeaderPhase

PHASES: Final[dict[ElectionState, Callable[[Election], ElectionPhase]]] = {
    ElectionState.CANVASS: Canvass,
    ElectionState.NOMINATE: Canvass,
    ElectionState.CANDIDATE_BALLOT: Ballot,
    ElectionState.FOLLOWER_BALLOT: Ballot,
    ElectionState.LEADER_LOG_REPLICATION: LeaderPhase,
}
"""INIT begins with what it has to do (`Election.restart`), a follower's states with a leader (`Announcement`)."""
