"""Planted bugs in what a backup holds, on its disk and in an object store, and in what is restored from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import trimaran.cluster.operating.backup.agent as agent
from trimaran.archive.format.stored_names import StoredName
from trimaran.archive.net.frame_stream import open_replay
from trimaran.archive.stored import pruning
from trimaran.archive.stored.cluster_store import ClusterStore
from trimaran.archive.stored.index import WriterIndex
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.cluster.directories.survey import Survey
from trimaran.cluster.operating.backup import directory, restoring, retention, shipping, shortening
from trimaran.cluster.operating.backup.agent import BackupAgent
from trimaran.cluster.operating.backup.retention import BackupRetention, KeptPast
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
            if found.kind == "tail":
                planting.ran()
            else:
                yield found

    planting.replace(shipping, "_segments", segments)


def _skip_the_last_message(planting: Planting) -> None:
    """The message that ends at the position is taken for one after it."""
    real = restoring._last_end

    def last_end(survey: Survey, wanted: int) -> int:
        planting.ran()
        return real(survey, wanted - 1)

    planting.replace(restoring, "_last_end", last_end)


def _name_objects_before_they_are_there(planting: Planting) -> None:
    """The index names an object of the backup's own, and the object follows."""
    real_put, real_write = ClusterStore.put, ClusterStore.write_index
    waiting: list[tuple[StoredName, bytes]] = []

    def put(self: ClusterStore, name: StoredName, data: bytes) -> None:
        if name.startswith("backup-"):
            waiting.append((name, data))
        else:
            real_put(self, name, data)

    def write_index(self: ClusterStore, index: WriterIndex) -> None:
        real_write(self, index)
        while waiting:
            planting.ran()
            real_put(self, *waiting.pop())

    planting.replace(ClusterStore, "put", put)
    planting.replace(ClusterStore, "write_index", write_index)


def _object_names(index: WriterIndex) -> set[StoredName]:
    return {each.name for file in index.files for each in file.objects}


def _remove_what_the_old_index_names(planting: Planting) -> None:
    """Snapshots that are not wanted any more go before the index that does without them is written."""
    real_write = ClusterStore.write_index

    def write_index(self: ClusterStore, index: WriterIndex) -> None:
        before = self.read_index(index.writer)
        stored = _object_names(index)
        for name in sorted(set() if before is None else _object_names(before)):
            if name not in stored:
                planting.ran()
                self.remove(name)
        real_write(self, index)

    planting.replace(ClusterStore, "write_index", write_index)


def _remove_the_snapshot_that_the_log_begins_with(planting: Planting) -> None:
    """Retention takes every log for one that begins at 0."""

    def choose_kept(*arguments: Any, log_start_position: int, **rest: Any) -> KeptPast:  # Any: passed on
        if log_start_position:
            planting.ran()
        return retention.choose_kept(*arguments, log_start_position=0, **rest)

    planting.replace(directory, "choose_kept", choose_kept)


def _begin_with_the_next_snapshot(planting: Planting) -> None:
    """The log begins with the oldest snapshot in the time that is kept, and not with the one before it."""

    def choose_kept(log: RecordingLog, wanted: BackupRetention, **rest: Any) -> KeptPast:  # Any: passed on
        kept, first = retention.choose_kept(log, wanted, **rest), rest["log_start_position"]
        later = [entry.log_position for entry in log.entries if entry.log_position > kept.log_start_position > first]
        if not later:
            return kept
        planting.ran()
        return replace(kept, log_start_position=min(later))

    planting.replace(directory, "choose_kept", choose_kept)
    planting.replace(shortening, "choose_kept", choose_kept)


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
        await self.directory.note_snapshot(snapshot, self._settings.retention)

    planting.replace(BackupAgent, "_note_snapshot_if_reached", note)


def _forget_the_members(planting: Planting) -> None:
    """A prune looks at the backups alone before it removes a segment."""
    real = pruning._needed_segments

    def needed_segments(indexes: list[WriterIndex]) -> set[StoredName]:
        needed = real([index for index in indexes if not index.is_of_member])
        if needed != real(indexes):
            planting.ran()
        return needed

    planting.replace(pruning, "_needed_segments", needed_segments)


def _plant(name: str, rule: str, break_it: Callable[[Planting], None]) -> Plant:
    return Plant(name, 36, rule, break_it, options=BACKUP_HUNT_OPTIONS)


PLANTS = (
    _plant("store-skips-tail", "a store has the log to the end that it names", _leave_the_newest_segment_out),
    _plant("restore-skips-tail", "a restore has everything up to its position", _skip_the_last_message),
    _plant("index-too-early", "an index is written after what it names", _name_objects_before_they_are_there),
    _plant(
        "object-gone-too-early",
        "an object goes after the last index that names it",
        _remove_what_the_old_index_names,
    ),
    Plant(
        "backup-purges-too-much",
        36,
        "a backup keeps the snapshot that its log begins with",
        _remove_the_snapshot_that_the_log_begins_with,
        scenario="backup-from-snapshot",
    ),
    Plant(
        "backup-keeps-too-little",
        36,
        "a backup keeps every point in time that it is to keep",
        _begin_with_the_next_snapshot,
        scenario="backup-keeps-time",
    ),
    Plant(
        "prune-forgets-members",
        36,
        "a prune keeps what cold storage needs",
        _forget_the_members,
        scenario="shared-store",
    ),
    _plant("backup-of-uncommitted", "a backup takes committed log only", _copy_what_is_not_committed),
    _plant(
        "backup-snapshot-ahead",
        "a backup notes a snapshot once its log has reached it",
        _note_a_snapshot_that_is_not_reached,
    ),
)
