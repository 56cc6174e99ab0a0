"""Checks where a member's log begins, and that a complete snapshot covers what was purged, as after a power loss now.

The referee believes no member: which recording the log is and which snapshots are complete is read from the recording
log, where each begins and ends from the catalog, both as they are durable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ....archive import RecordingDescriptor, RecordingState
from ....archive.disk.memory_file_system import MemoryFileSystem
from ....archive.format.catalog import CATALOG_FILE_NAME, parse_catalog
from ....archive.log.log_file import choose_log
from ....service_api import ClusterError
from ....service_api.wire.log.recording_log import RECORDING_LOG_FILE_NAME
from ...core.log.recording_log import RecordingLog
from .cluster import DIRECTORY

_CATALOG_LIMIT_BYTES: Final = 256 << 10


@dataclass(slots=True, frozen=True)
class KeptLog:
    """Which recording is the log of a member, and where it begins."""

    recording_id: int = 0
    start_position: int = 0


def read_kept_log(disk: MemoryFileSystem) -> KeptLog | None:
    """Read it from a disk; None where there is none, or a file is being written just now."""
    found = _read(disk)
    if found is None:
        return None
    recording_log, descriptors = found
    last = recording_log.last_term()
    if last is not None:
        log = descriptors.get(last.recording_id)
    else:
        log = choose_log(found for found in descriptors.values() if found.start_position == 0)
    return None if log is None else KeptLog(log.recording_id, log.start_position)


def complete_snapshot_times(disk: MemoryFileSystem) -> dict[int, int]:
    """Find the snapshots that a start could load: named by the recording log, every recording stopped and whole.

    Gives the cluster time of each by its position.
    """
    found = _read(disk)
    if found is None:
        return {}
    recording_log, descriptors = found
    return {
        entries[0].log_position: entries[0].timestamp
        for entries in recording_log.complete_snapshots(recording_log.latest_service_count() or 0)
        if all(_is_whole(disk, descriptors.get(entry.recording_id)) for entry in entries)
    }


def complete_snapshot_positions(disk: MemoryFileSystem) -> list[int]:
    """Find where those were taken."""
    return [*complete_snapshot_times(disk)]


def _read(disk: MemoryFileSystem) -> tuple[RecordingLog, dict[int, RecordingDescriptor]] | None:
    try:
        recording_log = RecordingLog.parse(
            disk.durable_read(DIRECTORY / "cluster" / RECORDING_LOG_FILE_NAME, 1 << 30, 0)
        )
        catalog = parse_catalog(disk.durable_read(DIRECTORY / "archive" / CATALOG_FILE_NAME, _CATALOG_LIMIT_BYTES, 0))
    except ClusterError:
        return None
    descriptors: dict[int, RecordingDescriptor] = {}
    for descriptor in catalog.readable:
        if descriptor.state is RecordingState.VALID:
            descriptors[descriptor.recording_id] = descriptor
    return recording_log, descriptors


def _is_whole(disk: MemoryFileSystem, descriptor: RecordingDescriptor | None) -> bool:
    """Whether a recording is stopped, and every byte of it is there as the member itself reads it."""
    if descriptor is None or descriptor.stop_position is None:
        return False
    for base, begin, end in descriptor.clip(descriptor.start_position, descriptor.stop_position):
        path = DIRECTORY / "archive" / descriptor.segment_file_name(base)
        if len(disk.durable_as_visible(path, end - begin, begin - base)) < end - begin:
            return False
    return True
