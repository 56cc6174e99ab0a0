"""Putting segments of a log into cold storage: each is checked, written, read back, and then named by the index.

All of it blocks, for as long as the store takes: it runs in a thread of its own. Retention deletes a segment only after
the directory's record, which is written last, names it.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

from ...service_api.types import MemberId
from ..cold.record import ColdIndex
from ..disk.file_system import FileSystem, opened, read_fully
from ..errors import ArchiveError, ArchiveErrorCode, CorruptionError
from ..format.descriptor import RecordingDescriptor
from ..stored.cluster_store import ClusterStore, StoreError
from ..stored.index import StoredSegment, WriterIndex
from .range_reader import RangeReader
from .replay import CHUNK_LENGTH_BYTES


class ColdShipping:
    """One member's part of a cluster's cold storage."""

    def __init__(
        self,
        store: ClusterStore,
        directory: Path,
        *,
        cluster_id: str,
        member_id: MemberId,
        disk: FileSystem,
        clock_ms: Callable[[], int],
    ) -> None:
        self.store: Final = store
        self._disk = disk
        self._directory = directory
        self._cluster_id = cluster_id
        self._writer = f"member-{member_id}"
        self._clock_ms = clock_ms
        self._own = ColdIndex()
        """The segments that this member's index names."""
        self._all = ColdIndex()
        """The segments that any member's index names. A backup's may go with the backup, so no member reads by it."""

    def __repr__(self) -> str:
        return f"<ColdShipping {self._writer} own={len(self._own)} all={len(self._all)} {self.store.url}>"

    def load(self) -> list[StoredSegment]:
        """Read the indexes; give the segments of all members.

        Raises:
            ConfigurationError: an older Trimaran wrote the store.
            StoreError: the store refused.
            RemoteProtocolError: an index is damaged.
        """
        self.store.refuse_older_layout()
        self.store.stop_writing(self._writer)
        index = self.store.read_index(self._writer)
        self._own = ColdIndex([] if index is None else index.segments)
        self._all = self._read_all()
        return self._all.segments

    def ship(self, descriptor: RecordingDescriptor, base_position: int) -> StoredSegment:
        """Have the segment of a recording in the store, and in the index; give what the index says of it.

        One that is damaged here need not be written if another member has written it.

        Raises:
            StoreError: the store refused, or has another log at this place.
            ArchiveError: the segment cannot be read, or a frame of it is not valid, and nobody has written it.
        """
        segment, is_here = self._choose(descriptor, base_position)
        known = self._own.find(base_position, descriptor)
        if known is None or known.start_position > segment.start_position:
            own = ColdIndex([*self._own.segments, segment])
            index = WriterIndex(cluster_id=self._cluster_id, writer=self._writer, segments=own.segments)
            with self.store.writing(self._writer, self._clock_ms) as write_index:
                if is_here:
                    path = self._directory / descriptor.segment_file_name(base_position)
                    self.store.put_segment(path, segment, is_named=segment in self._all)
                write_index(index)
            self._own = own  # only now: the index that the next attempt relies on is in the store
        self._all.add([segment])
        return segment

    def _choose(self, descriptor: RecordingDescriptor, base_position: int) -> tuple[StoredSegment, bool]:
        """Check the segment on the disk; give what is to be named, and whether that is what is on the disk."""
        start_position = max(base_position, descriptor.start_position)
        known = self._own.find(base_position, descriptor) or self._all.find(base_position, descriptor)
        try:
            digest = check_segment(self._disk, self._directory, descriptor, base_position)
        except ArchiveError as error:
            if error.code is not ArchiveErrorCode.CORRUPT:
                raise
            self._all = self._read_all()
            written = self._all.find(base_position, descriptor)
            if written is None or written.start_position > start_position:
                raise
            return written, False
        if known is not None and known.start_position < start_position:
            return known, False
        if known is not None and known.start_position == start_position and known.sha256 != digest:
            raise StoreError(
                f"cold storage has another log than this member: object={self.store.url}/{known.name} this "
                f"member's sha256={digest}; compare the members with `trimaran archive diff`, and give a cluster that "
                "was restored another cluster_id or URL"
            )
        found = StoredSegment(
            base_position=base_position,
            start_position=start_position,
            length=descriptor.segment_file_length,
            sha256=digest,
        )
        return found, True

    def _read_all(self) -> ColdIndex:
        indexes = [index for index in self.store.read_indexes() if index.is_of_member]
        return ColdIndex(segment for index in indexes for segment in index.segments)


def check_segment(disk: FileSystem, directory: Path, descriptor: RecordingDescriptor, base_position: int) -> str:
    """Check every frame of a segment that is full, and return its checksum, as an index has it.

    Raises:
        CorruptionError: a frame is not valid.
        ArchiveError: STORAGE_FAILED, the disk refused.
    """
    digest = sha256()
    end_position = base_position + descriptor.segment_file_length
    position = max(base_position, descriptor.start_position)

    def refuse(recording_id: int, position: int) -> None:
        raise ArchiveError(
            "the segment was removed meanwhile",
            code=ArchiveErrorCode.STORAGE_FAILED,
            recording_id=recording_id,
            position=position,
        )

    reader = RangeReader(directory, disk, refuse_if_purged=refuse)
    try:
        with opened(disk, directory / descriptor.segment_file_name(base_position)) as handle:
            digest.update(read_fully(disk, handle, position - base_position, 0))
        while position < end_position:
            data = reader.read(descriptor, None, position, CHUNK_LENGTH_BYTES, stop_position=end_position)
            digest.update(data)
            position += len(data)
    except OSError as error:
        raise ArchiveError(
            f"the segment cannot be read: {error}",
            code=ArchiveErrorCode.STORAGE_FAILED,
            recording_id=descriptor.recording_id,
            position=position,
        ) from error
    finally:
        reader.forget(None)
    if position != end_position:
        raise CorruptionError(
            f"a frame runs past the end of its segment: base_position={base_position}",
            recording_id=descriptor.recording_id,
            position=position,
        )
    return digest.hexdigest()
