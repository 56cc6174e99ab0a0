"""Planted bugs in what a backup holds, on its disk and in an object store, and in what is restored from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import trimaran.cluster.operating.backup.agent as agent
from trimaran.archive.disk.object_store import Objects
from trimaran.archive.net.frame_stream import open_replay
from trimaran.cluster.directories.survey import Survey
from trimaran.cluster.operating.backup import restoring, shipping
from trimaran.cluster.operating.backup.agent import BackupAgent
from trimaran.cluster.operating.backup.directory import BackupDirectory
from trimaran.cluster.operating.backup.manifest import MANIFEST_NAME, Manifest, StoredObject, object_digest
from trimaran.cluster.testing.simulation.run import Options

from .plant import ORDERS, Plant, Planting

BACKUP_HUNT_OPTIONS = Options(
    safety_timeouts=16,
    requester_count=0,
    without=frozenset({"query", "relay", "standby"}) | ORDERS,
)
"""Most of the faults, and snapshots; a part of the seeds has a backup."""


def _leave_the_newest_segment_out(planting: Planting) -> None:
    """The last segment of the log, which is still being filled, is left out of the store."""
    real = shipping._segments

    def segments(*arguments: Any) -> Iterator[Any]:  # Any: whatever it takes and gives
        for found in real(*arguments):
            if found.is_final:
                yield found
            else:
                planting.ran()

    planting.replace(shipping, "_segments", segments)


def _skip_the_last_message(planting: Planting) -> None:
    """The message that ends at the position is taken for one after it."""
    real = restoring._last_end

    def last_end(survey: Survey, wanted: int) -> int:
        planting.ran()
        return real(survey, wanted - 1)

    planting.replace(restoring, "_last_end", last_end)


def _name_objects_before_they_are_there(planting: Planting) -> None:
    """The manifest names all that is wanted, and what it names follows."""
    real = shipping._put_segments

    def put_segments(disk: Any, store: Objects, wanted: Manifest, known: Any, segments: Any) -> Any:  # Any: passed on
        found = [*segments]
        objects = [
            StoredObject(
                name=each.name,
                length=each.length,
                file_length=each.file_length,
                sha256=object_digest(shipping._read(disk, each.path, each.length)),
                is_final=each.is_final,
            )
            for each in found
        ]
        planting.ran()
        store.put(MANIFEST_NAME, wanted.model_copy(update={"objects": objects}).seal())
        return real(disk, store, wanted, known, iter(found))

    planting.replace(shipping, "_put_segments", put_segments)


def _remove_what_the_old_manifest_names(planting: Planting) -> None:
    """Snapshots that are not wanted any more go before the manifest that does without them is written."""
    real = shipping._put_segments

    def put_segments(disk: Any, store: Objects, wanted: Any, known: Any, segments: Any) -> Any:  # Any: passed on
        manifest, written = real(disk, store, wanted, known, segments)
        for name in sorted(known.keys() - manifest.by_name.keys()):
            planting.ran()
            store.remove(name)
        return manifest, written

    planting.replace(shipping, "_put_segments", put_segments)


def _remove_the_snapshot_that_the_log_begins_with(planting: Planting) -> None:
    """Retention takes every log for one that begins at 0."""
    real = BackupDirectory.note_snapshot

    async def note_snapshot(self: BackupDirectory, *arguments: Any, **rest: Any) -> None:  # Any: passed on
        if self.log_start_position:
            planting.ran()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BackupDirectory, "log_start_position", property(lambda self: 0))
            await real(self, *arguments, **rest)

    planting.replace(BackupDirectory, "note_snapshot", note_snapshot)


def _copy_what_is_not_committed(planting: Planting) -> None:
    """The member replays its log to its end, and not to its commit position."""

    async def open_all(*arguments: Any, **rest: Any) -> Any:  # Any: passed on
        if rest.pop("limit_counter_id", None) is not None:
            planting.ran()
        return await open_replay(*arguments, **rest)

    planting.replace(agent, "open_replay", open_all)


def _note_a_snapshot_that_is_not_reached(planting: Planting) -> None:
    """A snapshot is noted as soon as it is copied."""

    async def note(self: BackupAgent) -> None:
        if not self._snapshot:
            return
        if self._snapshot[0].log_position > self.directory.recorded_position:
            planting.ran()
        snapshot, self._snapshot = self._snapshot, ()
        await self.directory.note_snapshot(snapshot, keep_count=self._settings.keep_snapshots)

    planting.replace(BackupAgent, "_note_snapshot_if_reached", note)


def _plant(name: str, rule: str, break_it: Callable[[Planting], None]) -> Plant:
    return Plant(name, 36, rule, break_it, options=BACKUP_HUNT_OPTIONS)


PLANTS = (
    _plant("store-skips-tail", "a store has the log to the end that it names", _leave_the_newest_segment_out),
    _plant("restore-skips-tail", "a restore has everything up to its position", _skip_the_last_message),
    _plant("manifest-too-early", "a manifest is written after what it names", _name_objects_before_they_are_there),
    _plant(
        "object-gone-too-early",
        "an object goes after the last manifest that names it",
        _remove_what_the_old_manifest_names,
    ),
    Plant(
        "backup-purges-too-much",
        36,
        "a backup keeps the snapshot that its log begins with",
        _remove_the_snapshot_that_the_log_begins_with,
        scenario="backup-from-snapshot",
    ),
    _plant("backup-of-uncommitted", "a backup takes committed log only", _copy_what_is_not_committed),
    _plant(
        "backup-snapshot-ahead",
        "a backup notes a snapshot once its log has reached it",
        _note_a_snapshot_that_is_not_reached,
    ),
)
