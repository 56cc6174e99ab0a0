"""Copies a backup's directory to an object store: closed segments and snapshots once, the newest segment each time.

The store has a member-like directory again, so everything that reads a member's directory by URL reads it. A reader
never sees half of anything:

1. segments, whole or with what they have so far, and the recordings of snapshots
2. the catalog, which names them
3. `recording.log`, which names those as snapshots
4. the manifest
5. only then what the manifest before named and this one does not, is removed

A draft of the manifest is written with each segment. It is for the next copy alone: if this one is cut off, the next
one writes only what the draft does not name, and removes what it named for nothing.

What is in the store is known by name and length. So the store belongs to one directory, from its beginning to its end:
one that was begun again has other snapshots under the same names.

The end of the log is looked at first and the small files after it, so they are never behind it. The directory's agent
may run meanwhile; it only adds, but for snapshots that it removes: should one go away, the next time does without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from ....archive.disk.file_system import FileSystem, OsFileSystem, opened, read_file, read_fully
from ....archive.disk.object_store import Objects, ObjectStore, OpenObjects
from ....archive.files.catalog import read_catalog
from ....archive.format.catalog import encode_catalog
from ....archive.format.descriptor import RecordingDescriptor
from ....archive.format.stored_names import StoredName
from ....archive.log.member_directory import ArchiveLocation
from ....service_api import ClusterError, ConfigurationError
from ....service_api.cluster_id import format_cluster_id
from ....service_api.types import LOG_STREAM_ID
from ....service_api.wire.log.recording_log import with_checksum
from ...core.log.recording_log import RecordedSnapshot, RecordingLog
from ...runtime.files.cluster_id_file import CLUSTER_ID_FILE_NAME, kept_cluster_id
from ...time_travel.member_log import MemberLog
from .manifest import (
    CATALOG_NAME,
    CLUSTER_ID_NAME,
    DRAFT_NAME,
    MANIFEST_NAME,
    RECORDING_LOG_NAME,
    Manifest,
    StoredObject,
    decode_manifest,
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


@dataclass(slots=True, frozen=True, kw_only=True)
class _Segment:
    """A file of a recording."""

    name: StoredName
    """Below the backup's URL."""
    path: Path
    file_length: int
    length: int
    """How much of it is used."""
    is_final: bool
    """Whether it will have no more."""


def read_backup_manifest(store: Objects, name: StoredName = MANIFEST_NAME) -> Manifest | None:
    """Read the manifest of a store; None where there is no backup.

    Raises:
        RemoteProtocolError: it cannot be read.
        OSError: the store refused.
    """
    try:
        return decode_manifest(store.read(name), f"{store.url}/{name}")
    except FileNotFoundError:
        return None


def no_backup(url: str) -> ConfigurationError:
    """Say that a store has no manifest: whatever else is there, nothing says that it is what was copied there."""
    return ConfigurationError(
        f"no backup at {url}: there is no {MANIFEST_NAME}, which `trimaran backup ship` writes; name a directory that "
        "was not shipped by its path"
    )


def ship_backup(
    directory: Path,
    url: str,
    *,
    now_ms: int,
    disk: FileSystem | None = None,
    open_objects: OpenObjects = ObjectStore,
) -> Shipped:
    """Bring the store at a URL up to what a backup's directory has now.

    Raises:
        ConfigurationError: the directory holds no backup, or the store one of another cluster or another log.
        ClusterError: a snapshot or a segment went away meanwhile, or the store is ahead; a later copy goes on.
        OSError: the disk or the store refused. What was written stays, and the next call goes on from there.
    """
    cluster_id = format_cluster_id(kept_cluster_id(directory / "cluster", disk))
    if cluster_id is None:
        raise ConfigurationError(
            f"no backup in {directory}: expected cluster/{CLUSTER_ID_FILE_NAME}, which `trimaran backup run` writes"
        )
    disk = OsFileSystem() if disk is None else disk
    store, log = open_objects(url), MemberLog.open(ArchiveLocation(disk, directory))
    stop_position = log.recorded_position
    kept = _keep_reached(log.recording_log, stop_position)
    descriptors = _descriptors(disk, directory, log, kept, stop_position)
    files = {
        CATALOG_NAME: encode_catalog(
            descriptors, next_recording_id=max(descriptor.recording_id for descriptor in descriptors) + 1
        ),
        RECORDING_LOG_NAME: _encode_recording_log(kept),
        CLUSTER_ID_NAME: read_file(disk, directory / "cluster" / CLUSTER_ID_FILE_NAME),
    }
    wanted = Manifest(
        cluster_id=cluster_id,
        log_started_ms=log.log.start_timestamp_ms,
        log_start_position=log.log.start_position,
        log_stop_position=stop_position,
        snapshot_positions=sorted({entry.log_position for entry in kept.entries if entry.is_valid_snapshot}),
        written_ms=now_ms,
        objects=[],
        files={name: encode_file(data) for name, data in files.items()},
    )
    last, draft = [read_backup_manifest(store, name) for name in (MANIFEST_NAME, DRAFT_NAME)]
    before = [found for found in (last, draft) if found is not None]
    for found in before:
        _check_same_backup(found, wanted, store.url, directory)
    known = {stored.name: stored for found in before for stored in found.objects}  # the draft is the newer one
    manifest, written = _put_segments(disk, store, wanted, known, _segments(directory / "archive", descriptors))
    if draft is None and last is not None and (last.objects, last.files) == (manifest.objects, manifest.files):
        return Shipped(last, 0, 0, 0)
    for name, data in files.items():
        store.put(name, data)
    store.put(MANIFEST_NAME, manifest.seal())
    old = known.keys() - manifest.by_name.keys()
    for name in sorted(old):
        store.remove(name)
    if draft is not None or written:
        store.remove(DRAFT_NAME)
    return Shipped(manifest, len(written), sum(stored.length for stored in written), len(old))


def _check_same_backup(found: Manifest, wanted: Manifest, url: str, directory: Path) -> None:
    """Refuse a store of another directory, or one that is ahead: an agent records again what a power loss took."""
    if found.cluster_id != wanted.cluster_id:
        raise ConfigurationError(f"{url} has a backup of cluster {found.cluster_id}, not of {wanted.cluster_id}")
    if found.log_started_ms != wanted.log_started_ms:
        raise ConfigurationError(
            f"{url} has log from {found.log_start_position} to {found.log_stop_position}, begun at "
            f"{found.log_started_ms} ms, and {directory} from {wanted.log_start_position} to "
            f"{wanted.log_stop_position}, begun at {wanted.log_started_ms} ms: it is another backup; name another URL"
        )
    if found.log_stop_position > wanted.log_stop_position:
        raise ClusterError(
            f"{url} has log up to {found.log_stop_position}, and {directory} up to {wanted.log_stop_position} only: it "
            "is an older copy, or has lost its end; let `trimaran backup run` record the log up to there, then copy"
        )


def _put_segments(
    disk: FileSystem,
    store: Objects,
    wanted: Manifest,
    known: dict[StoredName, StoredObject],
    segments: Iterator[_Segment],
) -> tuple[Manifest, list[StoredObject]]:
    """Write what the store does not have; give the manifest with all objects, and what was written.

    After each object that is written the draft says that it is there, so that a copy which is cut off need not be done
    again from its beginning.
    """
    objects: list[StoredObject] = []
    written: list[StoredObject] = []
    for segment in segments:
        found = known.get(segment.name)
        if found is None or (found.length, found.is_final) != (segment.length, segment.is_final):
            data = _read(disk, segment.path, segment.length)
            store.put(segment.name, data)
            found = StoredObject(
                name=segment.name,
                length=segment.length,
                file_length=segment.file_length,
                sha256=object_digest(data),
                is_final=segment.is_final,
            )
            written.append(found)
            there = known | {each.name: each for each in written}
            draft = wanted.model_copy(update={"objects": [*there.values()], "files": {}})
            store.put(DRAFT_NAME, draft.seal())
        objects.append(found)
    return wanted.model_copy(update={"objects": objects}), written


def _keep_reached(recording_log: RecordingLog, stop_position: int) -> RecordingLog:
    """Take the terms and complete snapshots that a log up to a position has."""
    kept = RecordingLog()
    count = recording_log.latest_service_count()
    complete = recording_log.complete_snapshots(count) if count is not None else []
    seeds = [found for found in complete if found[0].is_seed]
    for entry in chain.from_iterable(reversed(found) for found in seeds):
        kept.append_snapshot(RecordedSnapshot.of(entry))
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
        kept.append_snapshot(RecordedSnapshot.of(entry))
    return kept


def _encode_recording_log(recording_log: RecordingLog) -> bytes:
    """Write a new recording log as its file. A slot may be written several times: the last one counts."""
    slots = {
        write.file_position: with_checksum(write.data, write.file_position) for write in recording_log.take_writes()
    }
    return b"".join(slots[position] for position in sorted(slots))


def _descriptors(
    disk: FileSystem, directory: Path, log: MemberLog, kept: RecordingLog, stop_position: int
) -> list[RecordingDescriptor]:
    """Describe the log, which ends at a position, and the snapshots."""
    wanted = {entry.recording_id for entry in kept.entries if entry.is_valid_snapshot}
    entries = read_catalog(disk, directory / "archive").entries
    found = [entry.descriptor for entry in entries if entry.descriptor is not None and entry.problem is None]
    snapshots = [descriptor for descriptor in found if descriptor.recording_id in wanted]
    lost = wanted - {descriptor.recording_id for descriptor in snapshots}
    if lost or any(descriptor.stop_position is None for descriptor in snapshots):
        raise ClusterError(f"snapshots are not in the catalog, or not whole: recording_ids={sorted(lost)}")
    stopped = replace(log.log, stop_position=stop_position, stop_timestamp_ms=log.log.start_timestamp_ms)
    return sorted([stopped, *snapshots], key=lambda descriptor: descriptor.recording_id)


def _segments(archive: Path, descriptors: list[RecordingDescriptor]) -> Iterator[_Segment]:
    """Yield each segment of each recording; of a log that ends with a segment also the next, as a member keeps it."""
    for descriptor in descriptors:
        stop_position = descriptor.stop_position
        assert stop_position is not None
        is_snapshot = descriptor.stream_id != LOG_STREAM_ID
        first = base = descriptor.segment_base_position(descriptor.start_position)
        while base < stop_position or base == first or (base == stop_position and not is_snapshot):
            end = base + descriptor.segment_file_length
            name = descriptor.segment_file_name(base)
            yield _Segment(
                name=StoredName(f"archive/{name}"),
                path=archive / name,
                file_length=descriptor.segment_file_length,
                length=min(end, stop_position) - base,
                is_final=is_snapshot or end <= stop_position,
            )
            base = end


def _read(disk: FileSystem, path: Path, length: int) -> bytes:
    if not length:
        return b""
    with opened(disk, path) as handle:
        data = read_fully(disk, handle, length, 0)
    if len(data) != length:
        raise ClusterError(f"segment file is too short: path={path} length={len(data)} expected={length}")
    return data
