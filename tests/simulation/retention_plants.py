"""Planted bugs in what is purged and when, and in what a member that gets a snapshot puts in the place of its own."""

from __future__ import annotations

from typing import Any

import trimaran.archive.net.replication
import trimaran.cluster.runtime.snapshots.recording_copies
from trimaran.archive import Archive, Recording
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.snapshots.snapshot import SnapshotControl
from trimaran.cluster.runtime.snapshots.retention import Retention
from trimaran.cluster.runtime.snapshots.snapshot_shipping import SnapshotFetcher
from trimaran.cluster.testing.simulation.run import Options

from .plant import COPIES, Plant, Planting

RETENTION_HUNT_OPTIONS = Options(safety_timeouts=14, requester_count=0, without=COPIES)
"""Long enough for a segment or two, and for a member to be away."""


def _purge_before_the_set_is_durable(planting: Planting) -> None:
    real = SnapshotControl.on_taken

    def on_taken(self: SnapshotControl, event: ev.SnapshotTaken) -> None:
        real(self, event)
        effects = self._ctx.effects
        for purge in [effect for effect in effects if isinstance(effect, fx.PurgeArchive)]:
            planting.ran()
            effects.remove(purge)
            effects.insert(0, purge)

    planting.replace(SnapshotControl, "on_taken", on_taken)


def _purge_above_the_oldest_snapshot(planting: Planting) -> None:
    real = Retention.purge

    def purge(self: Retention, effect: fx.PurgeArchive) -> None:
        if effect.needed_log_position:
            planting.ran()
            segment_length = self._archive.descriptor(self._log_recording_id).segment_file_length
            end = self._archive.recorded_position(self._log_recording_id)
            effect = fx.PurgeArchive(effect.recording_ids, min(end, effect.needed_log_position + segment_length))
        real(self, effect)

    planting.replace(Retention, "purge", purge)


def _unlink_before_the_catalog_knows(planting: Planting) -> None:
    real = Archive.purge_segments

    async def purge_segments(self: Archive, recording_id: int, position: int) -> int:
        descriptor = self.descriptor(recording_id)
        base = descriptor.segment_base_position(position)
        if base > descriptor.start_position:
            planting.ran()
            self._editing.files(descriptor).remove_below(base)
        return await real(self, recording_id, position)

    planting.replace(Archive, "purge_segments", purge_segments)


def _name_copies_that_are_not_durable(planting: Planting) -> None:
    async def replicate(*, recording: Recording, **rest: Any) -> int:  # Any: whatever else it takes
        planting.ran()
        recording._context.files.sync_level = 0
        return await trimaran.archive.net.replication.replicate(recording=recording, **rest)

    planting.replace(trimaran.cluster.runtime.snapshots.recording_copies, "replicate", replicate)


def _install_what_was_not_copied_to_its_end(planting: Planting) -> None:
    real = SnapshotFetcher._copy

    async def _copy(self: SnapshotFetcher, *arguments: Any, **rest: Any) -> int:  # Any: whatever it takes
        if "stop_position" in rest:
            planting.ran()
            rest["stop_position"] = rest["start_position"]
        return await real(self, *arguments, **rest)

    planting.replace(SnapshotFetcher, "_copy", _copy)


PLANTS = tuple(
    Plant(name, class_number, rule, break_it, options=RETENTION_HUNT_OPTIONS)
    for name, class_number, rule, break_it in (
        ("purge-too-early", 7, "a log is purged once its snapshot is durable", _purge_before_the_set_is_durable),
        ("purge-too-much", 12, "the log is kept from the oldest snapshot on", _purge_above_the_oldest_snapshot),
        (
            "unlink-too-early",
            7,
            "a start position is durable before a segment file is deleted",
            _unlink_before_the_catalog_knows,
        ),
        ("shipped-not-durable", 7, "a shipped snapshot counts once it is durable", _name_copies_that_are_not_durable),
        ("shipped-log-short", 12, "a shipped log reaches its snapshot", _install_what_was_not_copied_to_its_end),
    )
)
