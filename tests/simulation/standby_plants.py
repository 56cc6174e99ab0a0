"""Planted bugs in what a member does with the snapshot of a standby, and a standby with what its source sends."""

from __future__ import annotations

from trimaran.cluster.core.events import Recorded
from trimaran.cluster.core.roles.follower import FollowerTerm
from trimaran.cluster.core.snapshots.standby_snapshots import StandbySnapshots, _Offer
from trimaran.cluster.core.vocabulary.reason import Reason
from trimaran.cluster.testing.simulation.run import Options

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


def _take_what_the_source_recorded_for_committed(planting: Planting) -> None:
    """A standby delivers what its source has, before the leader says that it is committed."""
    real = FollowerTerm.on_recorded

    def on_recorded(self: FollowerTerm, event: Recorded) -> None:
        ctx = self._ctx
        if ctx.is_relayed and event.position > ctx.notified_commit_position:
            planting.ran()
            ctx.notified_commit_position = event.position
        real(self, event)

    planting.replace(FollowerTerm, "on_recorded", on_recorded)


def _stay_with_a_source_that_sends_nothing(planting: Planting) -> None:
    """A standby waits for its source for ever, although the leader has committed more."""
    real = FollowerTerm._look_at_source

    def _look_at_source(self: FollowerTerm) -> Reason | None:
        ctx = self._ctx
        is_behind = ctx.append_position < ctx.notified_commit_position
        if ctx.is_relayed and is_behind and ctx.now_ns - self._moved_ns >= ctx.config.leader_heartbeat_timeout_ns:
            planting.ran()
            self._moved_ns = ctx.now_ns
        return real(self)

    planting.replace(FollowerTerm, "_look_at_source", _look_at_source)


PLANTS = (
    Plant(
        "standby-ahead",
        7,
        "a standby's snapshot is noted where this member has delivered the log up to it",
        _note_what_is_ahead_of_the_commit_position,
        options=STANDBY_HUNT_OPTIONS,
    ),
    Plant(
        "source-says-committed",
        19,
        "a standby that follows another delivers what the leader says is committed",
        _take_what_the_source_recorded_for_committed,
        options=STANDBY_HUNT_OPTIONS,
    ),
    Plant(
        "source-never-left",
        28,
        "a standby leaves a source that sends nothing of what is committed",
        _stay_with_a_source_that_sends_nothing,
        "source-stands-still",
    ),
)
