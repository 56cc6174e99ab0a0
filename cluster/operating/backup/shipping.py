"""Copies a backup's directory to an object store: closed segments and snapshots once, the newest segment each time.

The store has the layout of `archive.stored`: a segment that a member has put there, or another backup, is not sent
again. A reader never sees half of anything:

1. each whole segment that no index names, and after it this backup's index, which names it; the backup that the index
   has is still the one before
2. the end of the log, and the recordings of snapshots
3. the index with the new backup: its small files, too
4. only then what the backup before had and this one has not, is removed

So a copy that is cut off need not be done again from its beginning: the index names what is there.

What a backup has for itself is known by name and length. So it belongs to one directory, from its beginning to its end:
one that was begun again has an index and a folder of its own.

The end of the log is looked at first and the small files after it, so they are never behind it. The directory's agent
may run meanwhile; it only adds, but for snapshots that it removes: should one go away, the next time does without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Literal

from ....archive.disk.file_system import FileSystem, OsFileSystem, opened, read_file, read_fully
from ....archive.disk.object_store import ObjectStore, OpenObjects
from ....archive.files.catalog import read_catalog
from ....archive.format.catalog import encode_catalog
from ....archive.format.descriptor import RecordingDescriptor
from ....archive.format.stored_names import NameKind, StoredName, take_name
from ....archive.log.member_directory import ArchiveLocation
from ....archive.stored.cluster_store import ClusterStore, StoreError, digest_of_file
from ....archive.stored.index import (
    CATALOG_NAME,
    CLUSTER_ID_NAME,
    RECORDING_LOG_NAME,
    BackupContents,
    StoredPart,
    StoredSegment,
    WriterIndex,
    encode_file,
    index_name,
)
from ....service_api import ClusterError, ConfigurationError, RemoteProtocolError
from ....service_api.cluster_id import format_cluster_id
from ....service_api.types import LOG_STREAM_ID
from ....service_api.wire.log.recording_log import with_checksum
from ...core.log.recording_log import RecordedSnapshot, RecordingLog
from ...runtime.files.cluster_id_file import CLUSTER_ID_FILE_NAME, kept_cluster_id
from ...time_travel.member_log import MemberLog


@dataclass(slots=True, frozen=True)
class Shipped:
    """What one copy did."""

    url: str
    """The URL that names this backup and no other."""
    contents: BackupContents
    written_count: int
    written_bytes: int
    removed_count: int


@dataclass(slots=True, frozen=True, kw_only=True)
class _Segment:
    """A file of a recording."""

    kind: Literal["segment", "tail", "snapshot"]
    """`segment`: a whole one of the log; `tail`: the one that will have more."""
    recording_id: int
    base_position: int
    path: Path
    file_length: int
    length: int
    """How much of it is used."""


def ship_backup(
    directory: Path,
    url: str,
    *,
    clock_ms: Callable[[], int],
    disk: FileSystem | None = None,
    open_objects: OpenObjects = ObjectStore,
) -> Shipped:
    """Bring the store at a URL up to what a backup's directory has now.

    Raises:
        ConfigurationError: the directory holds no backup, or an older Trimaran wrote the store.
        ClusterError: a snapshot or a segment went away meanwhile, a prune runs, or the store is ahead or refused; a
            later copy goes on, with what was written.
        OSError: the disk refused.
    """
    cluster_id = format_cluster_id(kept_cluster_id(directory / "cluster", disk))
    if cluster_id is None:
        raise ConfigurationError(
            f"no backup in {directory}: expected cluster/{CLUSTER_ID_FILE_NAME}, which `trimaran backup run` writes"
        )
    disk = OsFileSystem() if disk is None else disk
    written_ms, log = clock_ms(), MemberLog.open(ArchiveLocation(disk, directory))
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
    contents = BackupContents(
        log_recording_id=log.log.recording_id,
        log_start_position=log.log.start_position,
        log_stop_position=stop_position,
        snapshot_positions=sorted({entry.log_position for entry in kept.entries if entry.is_valid_snapshot}),
        written_ms=written_ms,
        parts=[],
        files={name: encode_file(data) for name, data in files.items()},
    )
    store = ClusterStore.below(url, cluster_id, disk=disk, open_objects=open_objects)
    writer = f"backup-{log.log.start_timestamp_ms}"
    empty = WriterIndex(cluster_id=cluster_id, writer=writer, segments=[])
    segments = [*_segments(directory / "archive", descriptors)]
    return _Shipping(disk, store, clock_ms, directory, empty).ship(contents, segments)


@dataclass(slots=True)
class _Shipping:
    """One copy under way."""

    disk: FileSystem
    store: ClusterStore
    clock_ms: Callable[[], int]
    directory: Path
    empty: WriterIndex
    """The index of this backup before there is one."""
    written: list[int] = field(default_factory=list)
    """How long the objects are that were written."""

    def ship(self, contents: BackupContents, segments: list[_Segment]) -> Shipped:
        """Write what the store lacks, then the index, and remove what that does not name."""
        index = self._read_index(contents)
        whole = [segment for segment in segments if segment.kind == "segment"]
        parts = [segment for segment in segments if segment.kind != "segment"]
        missing = _missing(index, whole)
        has_all = not missing
        if has_all and index.backup is not None and _has_same(index.backup, contents, parts):
            self.store.stop_writing(index.writer)
            return Shipped(self._url, index.backup, 0, 0, 0)
        if missing:
            self._put_segments(contents, missing)
        with self.store.writing(self.empty.writer, self.clock_ms) as write_index:
            index = self._read_index(contents)
            if _missing(index, whole):
                raise StoreError(f"{self._url} was pruned meanwhile: the next copy begins again")
            known = {} if index.backup is None else {part.name: part for part in index.backup.parts}
            contents = contents.model_copy(update={"parts": [self._put_part(part, known) for part in parts]})
            write_index(index.model_copy(update={"backup": contents}))
            new = {part.name for part in contents.parts}
            removed_count = 0 if has_all and known.keys() <= new else self._remove_all_but(new)
        return Shipped(self._url, contents, len(self.written), sum(self.written), removed_count)

    @property
    def _url(self) -> str:
        return f"{self.store.url}/{index_name(self.empty.writer)}"

    def _read_index(self, wanted: BackupContents) -> WriterIndex:
        """Read what the store has of this backup.

        Raises:
            ClusterError: it is ahead of the directory: an agent records again what a power loss took.
        """
        index = self.store.read_index(self.empty.writer)
        if index is None:
            self.store.refuse_older_layout()
            return self.empty
        if index.backup is not None and index.backup.log_stop_position > wanted.log_stop_position:
            raise ClusterError(
                f"{self._url} has log up to {index.backup.log_stop_position}, and {self.directory} up to "
                f"{wanted.log_stop_position} only: it is an older copy, or has lost its end; let `trimaran backup run` "
                "record the log up to there, then copy"
            )
        return index

    def _put_segments(self, wanted: BackupContents, missing: list[_Segment]) -> None:
        """Have whole segments in the store and in the index, one after the other."""
        named: set[StoredName] = set()
        with suppress(RemoteProtocolError):  # the index of another writer: what it names is read instead
            named = {name for index in self.store.read_indexes() for name in index.names}
        for each in missing:
            segment = StoredSegment(
                base_position=each.base_position,
                start_position=max(each.base_position, wanted.log_start_position),
                length=each.length,
                sha256=digest_of_file(self.disk, each.path, each.length),
            )
            with self.store.writing(self.empty.writer, self.clock_ms) as write_index:
                index = self._read_index(wanted)
                if self.store.put_segment(each.path, segment, is_named=segment.name in named):
                    self.written.append(segment.length)
                write_index(index.model_copy(update={"segments": [*index.segments, segment]}))

    def _put_part(self, segment: _Segment, known: dict[StoredName, StoredPart]) -> StoredPart:
        """Write an object of this backup's own, unless the one that is there has as much."""
        found = known.get(StoredName(segment.path.name))
        if found is not None and (found.kind, found.length) == (segment.kind, segment.length):
            return found
        data = _read(self.disk, segment.path, segment.length)
        part = StoredPart(
            kind="snapshot" if segment.kind == "snapshot" else "tail",
            recording_id=segment.recording_id,
            base_position=segment.base_position,
            length=segment.length,
            file_length=segment.file_length,
            sha256=sha256(data).hexdigest(),
        )
        self.store.put(StoredName(f"{self.empty.writer}/{part.name}"), data)
        self.written.append(part.length)
        return part

    def _remove_all_but(self, needed: set[StoredName]) -> int:
        """Remove other objects of this backup's own, also those that a copy wrote which was cut off."""
        listed = self.store.list_names(self.empty.writer)
        names = {take_name(name, NameKind.PART) for name in listed if NameKind.PART.fits(name)} - needed
        for name in sorted(names):
            self.store.remove(StoredName(f"{self.empty.writer}/{name}"))
        return len(names)


def _missing(index: WriterIndex, whole: list[_Segment]) -> list[_Segment]:
    named = {segment.base_position for segment in index.segments}
    return [segment for segment in whole if segment.base_position not in named]


def _has_same(before: BackupContents, now: BackupContents, parts: list[_Segment]) -> bool:
    there = [(part.name, part.length) for part in before.parts]
    return before.files == now.files and there == [(part.path.name, part.length) for part in parts]


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
            yield _Segment(
                kind="snapshot" if is_snapshot else "segment" if end <= stop_position else "tail",
                recording_id=descriptor.recording_id,
                base_position=base,
                path=archive / descriptor.segment_file_name(base),
                file_length=descriptor.segment_file_length,
                length=min(end, stop_position) - base,
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
