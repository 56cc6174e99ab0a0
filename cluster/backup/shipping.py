"""Copies a backup's directory to an object store: closed segments and snapshots once, the newest segment each time.

The store has a member-like directory again, so everything that reads a member's directory by URL reads it. A reader
never sees half of anything:

1. segments, whole or with what they have so far, and the recordings of snapshots
2. the catalog, which names them
3. `recording.log`, which names those as snapshots
4. the manifest
5. only then what the manifest before named and this one does not, is removed

The end of the log is looked at first and the small files after it, so they are never behind it. The directory's agent
may run meanwhile; it only adds, but for snapshots that it removes: should one go away, the next time does without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from trimaran.archive.disk.file_system import OsFileSystem, opened, read_fully
from trimaran.archive.disk.object_store import ObjectStore
from trimaran.archive.files.catalog import encode_catalog, read_catalog
from trimaran.archive.format.descriptor import RecordingDescriptor
from trimaran.service_api import ClusterError
from trimaran.service_api.cluster_id import format_cluster_id
from trimaran.service_api.documents import read_document
from trimaran.service_api.types import LOG_STREAM_ID
from trimaran.service_api.wire.log.recording_log import with_checksum

from ..core.log.recording_log import RecordingLog
from ..runtime.files.cluster_id_file import CLUSTER_ID_FILE_NAME, kept_cluster_id
from ..time_travel.member_log import MemberLog
from .manifest import (
    CATALOG_NAME,
    CLUSTER_ID_NAME,
    MANIFEST_NAME,
    RECORDING_LOG_NAME,
    Manifest,
    StoredObject,
    encode_file,
    object_digest,
)


@dataclass(slots=True, frozen=True)
class Shipped:
    """What one copy did."""

    manifest: Manifest
    written_count: int
    written_bytes: int
    removed_count: int


def read_backup_manifest(store: ObjectStore) -> Manifest | None:
    """Read the manifest of a store; None where there is no backup.

    Raises:
        RemoteProtocolError: it cannot be read.
        OSError: the store refused.
    """
    try:
        return read_document(Manifest, store.read(MANIFEST_NAME))
    except FileNotFoundError:
        return None


def ship_backup(directory: Path, url: str, *, now_ms: int) -> Shipped:
    """Bring the store at a URL up to what a backup's directory has now.

    Raises:
        ClusterError: the directory holds no backup, or the store one of another cluster or another log.
        OSError: the disk or the store refused.
    """
    store, log = ObjectStore(url), MemberLog.open(directory)
    stop_position = log.recorded_position
    kept = _keep_reached(log.recording_log, stop_position)
    before = read_backup_manifest(store)
    cluster_id = format_cluster_id(kept_cluster_id(directory / "cluster"))
    if before is not None and before.cluster_id != cluster_id:
        raise ClusterError(f"{store.url} has a backup of cluster {before.cluster_id}, not of {cluster_id}")
    if before is not None and (
        before.log_start_position != log.log.start_position or before.log_stop_position > stop_position
    ):
        raise ClusterError(
            f"{store.url} has log from {before.log_start_position} to {before.log_stop_position}, and {directory} from "
            f"{log.log.start_position} to {stop_position}: it is another backup; name another URL"
        )
    descriptors = _descriptors(directory, log, kept, stop_position)
    known = {} if before is None else before.by_name
    objects, written_bytes, written_count = [], 0, 0
    for name, path, file_length, length, is_final in _segments(directory / "archive", descriptors):
        found = known.get(name)
        if found is None or (found.length, found.is_final) != (length, is_final):
            data = _read(path, length)
            store.put(name, data)
            found = StoredObject(
                name=name, length=length, file_length=file_length, sha256=object_digest(data), is_final=is_final
            )
            written_bytes, written_count = written_bytes + length, written_count + 1
        objects.append(found)
    next_id = max(descriptor.recording_id for descriptor in descriptors) + 1
    files = {
        CATALOG_NAME: encode_catalog(descriptors, next_recording_id=next_id),
        RECORDING_LOG_NAME: b"".join(with_checksum(w.data, w.file_position) for w in kept.take_writes()),
        CLUSTER_ID_NAME: (directory / "cluster" / CLUSTER_ID_FILE_NAME).read_bytes(),
    }
    for name, data in files.items():
        store.put(name, data)
    manifest = Manifest(
        cluster_id=cluster_id,
        log_start_position=log.log.start_position,
        log_stop_position=stop_position,
        snapshot_positions=sorted({entry.log_position for entry in kept.entries if entry.is_valid_snapshot}),
        written_ms=now_ms,
        objects=objects,
        files={name: encode_file(data) for name, data in files.items()},
    )
    store.put(MANIFEST_NAME, manifest.model_dump_json().encode())
    old = known.keys() - manifest.by_name.keys()
    for name in sorted(old):
        store.remove(name)
    return Shipped(manifest, written_count, written_bytes, len(old))


def _keep_reached(recording_log: RecordingLog, stop_position: int) -> RecordingLog:
    """Take the terms and complete snapshots that a log up to a position has."""
    kept = RecordingLog()
    count = recording_log.latest_service_count()
    complete = recording_log.complete_snapshots(count) if count is not None else []
    seeds = [found for found in complete if found[0].is_seed]
    for entry in chain.from_iterable(reversed(found) for found in seeds):
        kept.append_snapshot_of(entry)
    for term in recording_log.entries:
        if term.is_valid_term and term.term_base_log_position <= stop_position:
            kept.append_term(
                recording_id=term.recording_id,
                leadership_term_id=term.leadership_term_id,
                term_base_log_position=term.term_base_log_position,
                timestamp=term.timestamp,
            )
    reached = [found for found in complete if 0 < found[0].log_position <= stop_position]
    for entry in chain.from_iterable(reversed(found) for found in reached):
        kept.append_snapshot_of(entry)
    return kept


def _descriptors(directory: Path, log: MemberLog, kept: RecordingLog, stop_position: int) -> list[RecordingDescriptor]:
    """Describe the log, which ends at a position, and the snapshots."""
    wanted = {entry.recording_id for entry in kept.entries if entry.is_valid_snapshot}
    entries = read_catalog(OsFileSystem(), directory / "archive").entries
    found = [entry.descriptor for entry in entries if entry.descriptor is not None and entry.problem is None]
    snapshots = [descriptor for descriptor in found if descriptor.recording_id in wanted]
    lost = wanted - {descriptor.recording_id for descriptor in snapshots}
    if lost or any(descriptor.stop_position is None for descriptor in snapshots):
        raise ClusterError(f"snapshots are not in the catalog, or not whole: recording_ids={sorted(lost)}")
    stopped = replace(log.log, stop_position=stop_position, stop_timestamp_ms=log.log.start_timestamp_ms)
    return sorted([stopped, *snapshots], key=lambda descriptor: descriptor.recording_id)


def _segments(archive: Path, descriptors: list[RecordingDescriptor]) -> Iterator[tuple[str, Path, int, int, bool]]:
    """Yield the name, file, file's length and used length of each segment, and whether it will have no more."""
    for descriptor in descriptors:
        stop_position = descriptor.stop_position
        assert stop_position is not None
        is_snapshot = descriptor.stream_id != LOG_STREAM_ID
        base = descriptor.segment_base_position(descriptor.start_position)
        while base < stop_position or base == descriptor.segment_base_position(descriptor.start_position):
            end = base + descriptor.segment_file_length
            name = descriptor.segment_file_name(base)
            length, is_final = min(end, stop_position) - base, is_snapshot or end <= stop_position
            yield f"archive/{name}", archive / name, descriptor.segment_file_length, length, is_final
            base = end


def _read(path: Path, length: int) -> bytes:
    disk = OsFileSystem()
    with opened(disk, path) as handle:
        data = read_fully(disk, handle, length, 0)
    if len(data) != length:
        raise ClusterError(f"segment file is too short: path={path} length={len(data)} expected={length}")
    return data
