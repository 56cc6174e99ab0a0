"""Putting segments of a log into cold storage: each is checked, written, read back, and then named by the manifest.

All of it blocks, for as long as the store takes: it runs in a thread of its own. Retention deletes a segment only after
the directory's record, which is written last, names it.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

from ...service_api.types import MemberId
from ..cold.manifest import ColdIndex, ColdManifest, ColdSegment
from ..cold.store import ColdStorageError, ColdStore
from ..disk.file_system import FileSystem, opened, read_fully
from ..errors import ArchiveError, ArchiveErrorCode, CorruptionError
from ..format.descriptor import RecordingDescriptor
from .range_reader import RangeReader
from .replay import CHUNK_LENGTH_BYTES


class ColdShipping:
    """One member's part of a cluster's cold storage."""

    def __init__(
        self, store: ColdStore, directory: Path, *, cluster_id: str, member_id: MemberId, disk: FileSystem
    ) -> None:
        self.store: Final = store
        self._disk = disk
        self._directory = directory
        self._cluster_id = cluster_id
        self._member_id = member_id
        self._own = ColdIndex()
        """What this member's manifest names."""
        self._all = ColdIndex()
        """What any member's manifest names."""

    def __repr__(self) -> str:
        return f"<ColdShipping member={self._member_id} own={len(self._own)} all={len(self._all)} {self.store.url}>"

    def load(self) -> list[ColdSegment]:
        """Read the manifests; give the segments of all members.

        Raises:
            ColdStorageError: the store refused, or a manifest is damaged.
        """
        manifest = self.store.read_manifest(self._member_id)
        self._own = ColdIndex([] if manifest is None else manifest.segments)
        self._all = self.store.read_index()
        return self._all.segments

    def ship(self, descriptor: RecordingDescriptor, base_position: int) -> ColdSegment:
        """Have the segment of a recording in the store, and in the manifest; give what the manifest says of it.

        One that is damaged here need not be written if another member has written it.

        Raises:
            ColdStorageError: the store refused, or has another log at this place.
            ArchiveError: the segment cannot be read, or a frame of it is not valid, and nobody has written it.
        """
        segment = self._take_in(descriptor, base_position)
        known = self._own.find(base_position, descriptor)
        if known is None or known.start_position > segment.start_position:
            own = ColdIndex([*self._own.segments, segment])
            self._write_manifest(own)
            self._own = own  # only now: the manifest that the next attempt relies on is in the store
        self._all.add([segment])
        return segment

    def _take_in(self, descriptor: RecordingDescriptor, base_position: int) -> ColdSegment:
        start_position = max(base_position, descriptor.start_position)
        known = self._own.find(base_position, descriptor) or self._all.find(base_position, descriptor)
        try:
            digest = check_segment(self._disk, self._directory, descriptor, base_position)
        except ArchiveError as error:
            if error.code is not ArchiveErrorCode.CORRUPT:
                raise
            self._all = self.store.read_index()
            written = self._all.find(base_position, descriptor)
            if written is None or written.start_position > start_position:
                raise
            return written
        if known is not None and known.start_position <= start_position:
            if known.start_position < start_position or known.sha256 == digest:
                return known
            raise ColdStorageError(
                f"cold storage has another log than this member: object={self.store.url}/{known.name} this "
                f"member's sha256={digest}; compare the members with `trimaran archive diff`, and give a cluster that "
                "was restored another cluster_id or URL"
            )
        segment = ColdSegment(
            base_position=base_position,
            start_position=start_position,
            length=descriptor.segment_file_length,
            sha256=digest,
        )
        self.store.put_segment(self._directory / descriptor.segment_file_name(base_position), segment)
        return segment

    def _write_manifest(self, own: ColdIndex) -> None:
        self.store.write_manifest(
            ColdManifest(cluster_id=self._cluster_id, member_id=self._member_id, segments=own.segments)
        )


def check_segment(disk: FileSystem, directory: Path, descriptor: RecordingDescriptor, base_position: int) -> str:
    """Check every frame of a segment that is full, and return its checksum, as a manifest has it.

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
