"""Planted bugs in what a member does with the snapshot of a standby."""

from __future__ import annotations

from trimaran.cluster.core.snapshots.standby_snapshots import StandbySnapshots, _Offer
from trimaran.cluster.simulation.run import Options

from .plant import COPIES, Plant, Planting

STANDBY_HUNT_OPTIONS = Options(
    safety_timeouts=16,
    requester_count=0,
    without=frozenset({"query", "relay", "suspend", "shutdown", "abort", "leave_behind", "snapshot"}) | COPIES,
)
"""Long enough for a standby to join and to take a few snapshots."""


def _note_what_is_ahead_of_the_commit_position(planting: Planting) -> None:
    """A standby that is quicker than this member offers a place that this member has not come to."""
    real = StandbySnapshots._may_note

    def _may_note(self: StandbySnapshots, offer: _Offer) -> bool:
        may_note = real(self, offer)
        if not may_note and self._ctx.recording_log.term_entry(offer.place.leadership_term_id) is not None:
            planting.ran()
            return True
        return may_note

    planting.replace(StandbySnapshots, "_may_note", _may_note)


PLANTS = (
    Plant(
        "standby-ahead",
        7,
        "a standby's snapshot is noted where this member has delivered the log up to it",
        _note_what_is_ahead_of_the_commit_position,
        options=STANDBY_HUNT_OPTIONS,
    ),
)
