"""Copies a backup's directory to an object store: each byte of the log, and each snapshot, once.

The store has the layout of `archive.stored`: a segment that a member has put there, or another backup, is not sent
again. A reader never sees half of anything:

1. each whole segment that no index names, and after it this backup's index, which names it; the backup that the index
   has is still the one before
2. the log that is new in a segment which an earlier copy has begun, and the recordings of snapshots
3. the index with the new backup: its small files, too
4. only then what the backup before had and this one has not, is removed

So a copy that is cut off need not be done again from its beginning: the index names what is there.

A segment that the copies follow while it is filled becomes one object for each copy, and stays so when it is full: it
is read back then, and written whole if it is not what was sent. Once a member has put the same segment into the store,
that one is named instead. While objects are small the last of them are written again as one.

What a backup has for itself is known by name and length. So it belongs to one directory, from its beginning to its end:
one that was begun again has an index and a folder of its own. What a prune has removed stays removed, and what the
directory has no longer is named no longer.

The end of the log is looked at first and the small files after it, so they are never behind it. The directory's agent
may run meanwhile; should something go away that is copied, the next time does without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Final, Literal

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
    StoredObject,
    StoredPart,
    StoredSegment,
    WriterIndex,
    encode_file,
    index_name,
)
from ....service_api import ClusterError, ConfigurationError, RemoteProtocolError
from ....service_api.cluster_id import format_cluster_id
from ....service_api.types import LOG_STREAM_ID, TICKS_PER_MS
from ....service_api.wire.log.recording_log import RecordingLogEntry, with_checksum
from ...core.log.recording_log import RecordedSnapshot, RecordingLog
from ...runtime.files.cluster_id_file import CLUSTER_ID_FILE_NAME, kept_cluster_id
from ...time_travel.member_log import MemberLog

_WHOLE_BELOW: Final = 8
"""A segment is sent whole, so that others share it, while the store has an eighth of it at most."""
_SMALL_BYTES: Final = 1 << 20
_SMALL_LIMIT: Final = 16
"""So many objects below the length before it, one after the other, are written again as one."""
_NOTHING: Final = sha256().hexdigest()


@dataclass(slots=True, frozen=True)
class Shipped:
    """What one copy did."""

    url: str
    """The URL that names this backup and no other."""
    contents: BackupContents
    written_count: int
    """Objects beside the index and notes."""
    written_bytes: int
    """In all."""
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
    store = ClusterStore.below(url, cluster_id, disk=disk, open_objects=open_objects)
    empty = WriterIndex(cluster_id=cluster_id, writer=f"backup-{log.log.start_timestamp_ms}", segments=[])
    shipping = _Shipping(disk, store, clock_ms, empty)
    index = shipping.read_index()
    if index.backup is not None and index.backup.log_stop_position > stop_position:
        raise ClusterError(
            f"{shipping.url} has log up to {index.backup.log_stop_position}, and {directory} up to {stop_position} "
            "only: it is an older copy, or has lost its end; let `trimaran backup run` record the log up to there, "
            "then copy"
        )
    start_position = log.log.start_position
    if index.backup is not None:
        start_position = max(start_position, index.backup.log_start_position)
    kept = keep_reached(log.recording_log, stop_position, partial(_stays, index.backup))
    descriptors = _descriptors(disk, directory, log, kept, start_position, stop_position)
    files = {
        CATALOG_NAME: encode_descriptors(descriptors),
        RECORDING_LOG_NAME: encode_recording_log(kept),
        CLUSTER_ID_NAME: read_file(disk, directory / "cluster" / CLUSTER_ID_FILE_NAME),
    }
    contents = BackupContents(
        log_recording_id=log.log.recording_id,
        log_start_position=start_position,
        log_stop_position=stop_position,
        snapshot_positions=snapshot_positions(kept),
        written_ms=written_ms,
        parts=[],
        files={name: encode_file(data) for name, data in files.items()},
        ticks_per_ms=TICKS_PER_MS[log.time_unit],
    )
    return shipping.ship(index, contents, [*_segments(directory / "archive", descriptors)])


def _stays(before: BackupContents | None, entry: RecordingLogEntry) -> bool:
    """Return whether a snapshot of the directory is to be in the store: not one that was there and was pruned."""
    there = [] if before is None else before.snapshot_positions
    return not there or entry.log_position in there or entry.log_position > there[-1]


@dataclass(slots=True)
class _Shipping:
    """One copy under way."""

    disk: FileSystem
    store: ClusterStore
    clock_ms: Callable[[], int]
    empty: WriterIndex
    """The index of this backup before there is one."""

    @property
    def url(self) -> str:
        """The URL that names this backup and no other."""
        return f"{self.store.url}/{index_name(self.empty.writer)}"

    def read_index(self) -> WriterIndex:
        """Read what the store has of this backup.

        Raises:
            ConfigurationError: an older Trimaran wrote the store.
            ClusterError: the store refused, or the index cannot be read.
        """
        index = self.store.read_index(self.empty.writer)
        if index is None:
            self.store.refuse_older_layout()
            return self.empty
        return index

    def ship(self, index: WriterIndex, contents: BackupContents, segments: list[_Segment]) -> Shipped:
        """Write what the store lacks, then the index, and remove what that does not name."""
        before = index.backup
        known = {} if before is None else {part.name: part for part in before.parts}
        named = {segment.base_position for segment in index.segments}
        unnamed = [each for each in segments if each.kind != "segment" or each.base_position not in named]
        missing = [each for each in unnamed if each.kind == "segment" and not _is_begun(each, known)]
        parts = [each for each in unnamed if each.kind != "segment" or _is_begun(each, known)]
        if not missing and before is not None and _has_same(before, contents, parts):
            self.store.stop_writing(index.writer)
            return Shipped(self.url, before, 0, 0, 0)
        if missing:
            self._put_segments(contents, missing)
        with self.store.writing(self.empty.writer, self.clock_ms) as write_index:
            index = self.read_index()
            named = {segment.base_position for segment in index.segments}
            if index.backup != before or any(each.base_position not in named for each in missing):
                raise StoreError(f"{self.url} was pruned or written by another meanwhile: the next copy begins again")
            put = self._put_parts(parts, known, contents.log_start_position)
            contents = contents.model_copy(update={"parts": [each for each in put if isinstance(each, StoredPart)]})
            whole = [*index.segments, *(each for each in put if isinstance(each, StoredSegment))]
            whole = [each for each in whole if each.end_position > contents.log_start_position]
            whole.sort(key=lambda segment: segment.base_position)
            index = index.model_copy(update={"segments": whole, "backup": contents})
            write_index(index)
            needed, was = _object_names(contents), set() if before is None else _object_names(before)
            removed_count = 0 if not missing and was <= needed else self._remove_all_but(needed)
        return Shipped(self.url, contents, self.store.written_count, self.store.written_bytes, removed_count)

    def _put_segments(self, wanted: BackupContents, missing: list[_Segment]) -> None:
        """Have whole segments in the store and in the index, one after the other."""
        named = self._named_segments()
        for each in missing:
            segment = self._describe(each, wanted.log_start_position)
            with self.store.writing(self.empty.writer, self.clock_ms) as write_index:
                index = self.read_index()
                self.store.put_segment(each.path, segment, is_named=segment.name in named)
                write_index(index.model_copy(update={"segments": [*index.segments, segment]}))

    def _named_segments(self) -> set[StoredName]:
        """Find the segments that are in the store and that an index names."""
        with suppress(RemoteProtocolError):  # the index of another writer: what it names is read instead
            return {name for index in self.store.read_indexes() for name in index.names}
        return set()

    def _describe(self, segment: _Segment, log_start_position: int) -> StoredSegment:
        return StoredSegment(
            base_position=segment.base_position,
            start_position=max(segment.base_position, log_start_position),
            length=segment.length,
            sha256=digest_of_file(self.disk, segment.path, segment.length),
        )

    def _put_parts(
        self, parts: list[_Segment], known: dict[StoredName, StoredPart], log_start_position: int
    ) -> list[StoredPart | StoredSegment]:
        """Write what is new in objects of this backup's own. A segment that has become full is in the store then."""
        put: list[StoredPart | StoredSegment] = []
        has_full = any(each.kind == "segment" and not _is_there(each, known) for each in parts)
        named = self._named_segments() if has_full else set()
        for each in parts:
            found = known.get(StoredName(each.path.name))
            if each.kind != "segment":
                put.append(self._put_part(each, found))
            elif found is not None and _is_there(each, known):
                same = StoredSegment(
                    base_position=each.base_position,
                    start_position=max(each.base_position, log_start_position),
                    length=each.length,
                    sha256=found.sha256,
                )
                put.append(same if same.name in named else found)
            else:
                put.append(self._complete(each, found, self._describe(each, log_start_position), named))
        return put

    def _complete(
        self, segment: _Segment, found: StoredPart | None, whole: StoredSegment, named: set[StoredName]
    ) -> StoredPart | StoredSegment:
        """Have a segment in the store that has become full: one that is named, or the rest of it, read back."""
        if whole.name not in named:
            part = self._put_part(segment, found)
            with suppress(StoreError):  # it is written whole
                self.store.check(self._own(part), part.sha256)
                return part
        self.store.put_segment(segment.path, whole, is_named=whole.name in named)
        return whole

    def _put_part(self, segment: _Segment, found: StoredPart | None) -> StoredPart:
        """Write what objects of this backup's own lack, as one object."""
        kind: Literal["log", "snapshot"] = "snapshot" if segment.kind == "snapshot" else "log"
        if found is not None and (found.kind, found.length) == (kind, segment.length):
            return found
        begins = [] if found is None or found.kind != kind else _objects_that_stay(found)
        part = StoredPart(
            kind=kind,
            recording_id=segment.recording_id,
            base_position=segment.base_position,
            length=segment.length,
            file_length=segment.file_length,
            sha256=digest_of_file(self.disk, segment.path, segment.length) if segment.length else _NOTHING,
            cuts=tuple(begins[1:]),
        )
        last = self._own(part)[-1]
        self.store.put(last.name, _read(self.disk, segment.path, segment.length - last.length, segment.length))
        return part

    def _own(self, part: StoredPart) -> list[StoredObject]:
        return [replace(each, name=StoredName(f"{self.empty.writer}/{each.name}")) for each in part.objects]

    def _remove_all_but(self, needed: set[StoredName]) -> int:
        """Remove other objects of this backup's own, also those that a copy wrote which was cut off."""
        listed = self.store.list_names(self.empty.writer)
        names = {take_name(name, NameKind.PART) for name in listed if NameKind.PART.fits(name)} - needed
        for name in sorted(names):
            self.store.remove(StoredName(f"{self.empty.writer}/{name}"))
        return len(names)


def _is_begun(segment: _Segment, known: dict[StoredName, StoredPart]) -> bool:
    """Return whether so much of a segment is there in objects of the backup's own that only the rest is sent."""
    found = known.get(StoredName(segment.path.name))
    return found is not None and found.length > segment.length // _WHOLE_BELOW


def _is_there(segment: _Segment, known: dict[StoredName, StoredPart]) -> bool:
    found = known.get(StoredName(segment.path.name))
    return found is not None and found.length == segment.length


def _objects_that_stay(found: StoredPart) -> list[int]:
    """Decide where the objects of a segment begin once it is longer: the last begin is that of the new object.

    Many small objects at the end are written again with it. So a segment has few objects, and with few bytes a second a
    byte goes up a few times; with many, once.
    """
    begins, lengths = [0, *found.cuts], [each.length for each in found.objects]
    small_count = 0
    while small_count < len(lengths) and lengths[-1 - small_count] < _SMALL_BYTES:
        small_count += 1
    if small_count >= _SMALL_LIMIT:
        return begins[: len(begins) - small_count + 1]
    return begins if not lengths[-1] else [*begins, found.length]


def _object_names(contents: BackupContents) -> set[StoredName]:
    return {each.name for part in contents.parts for each in part.objects}


def _has_same(before: BackupContents, now: BackupContents, parts: list[_Segment]) -> bool:
    there = [(part.name, part.length) for part in before.parts]
    return before.files == now.files and there == [(part.path.name, part.length) for part in parts]


def snapshot_positions(recording_log: RecordingLog) -> list[int]:
    """Return where valid snapshots were taken, in order."""
    return sorted({entry.log_position for entry in recording_log.entries if entry.is_valid_snapshot})


def keep_reached(
    recording_log: RecordingLog, stop_position: int, stays: Callable[[RecordingLogEntry], bool]
) -> RecordingLog:
    """Take the terms that a log up to a position has, and of its complete snapshots those that stay."""
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
    reached = [found for found in complete if 0 < found[0].log_position <= stop_position and stays(found[0])]
    for entry in chain.from_iterable(reversed(found) for found in reached):
        kept.append_snapshot(RecordedSnapshot.of(entry))
    return kept


def encode_recording_log(recording_log: RecordingLog) -> bytes:
    """Write a new recording log as its file. A slot may be written several times: the last one counts."""
    slots = {
        write.file_position: with_checksum(write.data, write.file_position) for write in recording_log.take_writes()
    }
    return b"".join(slots[position] for position in sorted(slots))


def encode_descriptors(descriptors: list[RecordingDescriptor]) -> bytes:
    """Write recordings as a catalog file without the room that it has on a disk: each index has it."""
    next_recording_id = max(descriptor.recording_id for descriptor in descriptors) + 1
    return encode_catalog(descriptors, next_recording_id=next_recording_id, length_bytes=0)


def _descriptors(
    disk: FileSystem, directory: Path, log: MemberLog, kept: RecordingLog, start_position: int, stop_position: int
) -> list[RecordingDescriptor]:
    """Describe the log, which begins and ends at a position, and the snapshots."""
    wanted = {entry.recording_id for entry in kept.entries if entry.is_valid_snapshot}
    entries = read_catalog(disk, directory / "archive").entries
    found = [entry.descriptor for entry in entries if entry.descriptor is not None and entry.problem is None]
    snapshots = [descriptor for descriptor in found if descriptor.recording_id in wanted]
    lost = wanted - {descriptor.recording_id for descriptor in snapshots}
    if lost or any(descriptor.stop_position is None for descriptor in snapshots):
        raise ClusterError(f"snapshots are not in the catalog, or not whole: recording_ids={sorted(lost)}")
    stopped = replace(
        log.log,
        start_position=start_position,
        stop_position=stop_position,
        stop_timestamp_ms=log.log.start_timestamp_ms,
    )
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


def _read(disk: FileSystem, path: Path, begin: int, end: int) -> bytes:
    if begin == end:
        return b""
    with opened(disk, path) as handle:
        data = read_fully(disk, handle, end - begin, begin)
    if len(data) != end - begin:
        raise ClusterError(f"segment file is too short: path={path} length={begin + len(data)} expected={end}")
    return data
