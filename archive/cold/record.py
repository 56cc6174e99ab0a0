"""Which segments of a log are in cold storage, by position, and what a member's directory says of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from ...service_api.documents.document import Count, Id, SealedDocument, read_document
from ...service_api.errors import RemoteProtocolError
from ..disk.file_system import OsFileSystem, ReadableFileSystem, read_file
from ..errors import CorruptionError
from ..format.descriptor import RecordingDescriptor
from ..format.layout import COLD_RECORD_NAME, first_base_position
from ..stored.index import StoredSegment


class ColdRecord(SealedDocument):
    """What a member's directory says of its cold storage: readers need no more to find a segment."""

    KIND: ClassVar[str] = "record of cold storage"

    url: str
    """Of the cluster's place in the store."""
    recording_id: Id
    """The log in this archive."""
    cache_bytes: Count
    segments: list[StoredSegment]
    """Of all members, as they were last asked for."""


def read_record(directory: Path, disk: ReadableFileSystem | None = None) -> ColdRecord | None:
    """Read what an archive directory says of its cold storage; None where it has none.

    Raises:
        CorruptionError: the file is damaged.
        OSError: the disk refused.
    """
    path = directory / COLD_RECORD_NAME
    try:
        return read_document(ColdRecord, read_file(OsFileSystem() if disk is None else disk, path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except RemoteProtocolError as error:
        raise CorruptionError(
            f"bad record of cold storage: path={path}: {error}; start the member, which writes it again from the store"
        ) from error


class ColdIndex:
    """The cold segments of one log, by position."""

    def __init__(self, segments: Iterable[StoredSegment] = ()) -> None:
        self._by_base: dict[int, StoredSegment] = {}
        self.add(segments)

    def __repr__(self) -> str:
        return f"<ColdIndex segments={len(self._by_base)}>"

    def __len__(self) -> int:
        return len(self._by_base)

    def __contains__(self, segment: StoredSegment) -> bool:
        return self._by_base.get(segment.base_position) == segment

    @property
    def segments(self) -> list[StoredSegment]:
        """All of them, in order of position."""
        return [self._by_base[base] for base in sorted(self._by_base)]

    def add(self, segments: Iterable[StoredSegment]) -> None:
        """Take segments in. Of two of one position that stays which has more frames, else the one that was there."""
        for segment in segments:
            known = self._by_base.get(segment.base_position)
            if known is None or segment.start_position < known.start_position:
                self._by_base[segment.base_position] = segment

    def find(self, base_position: int, descriptor: RecordingDescriptor) -> StoredSegment | None:
        """Find a segment of a recording by its base position; one of another length is none of it."""
        found = self._by_base.get(base_position)
        return found if found is not None and found.length == descriptor.segment_file_length else None

    def extend(self, descriptor: RecordingDescriptor) -> RecordingDescriptor:
        """Let a recording begin where it can be read from: without a gap as far below its start as this goes."""
        oldest_position = self._oldest_position(descriptor)
        if oldest_position == descriptor.start_position:
            return descriptor
        return replace(descriptor, start_position=oldest_position)

    def _oldest_position(self, descriptor: RecordingDescriptor) -> int:
        position, length = descriptor.start_position, descriptor.segment_file_length
        base = descriptor.segment_base_position(position)
        if position == base:
            base -= length
        while (found := self.find(base, descriptor)) is not None and found.start_position < position:
            if found.start_position != base:
                is_on_grid = first_base_position(found.start_position, term_length_bytes=descriptor.term_buffer_length)
                return found.start_position if is_on_grid == base else position
            position, base = base, base - length
        return position
