"""Cold segments on a member's disk: those used last, up to a length in all.

The member fills it: it removes the files that were used longest ago, by the time of the file, before it fetches
another. Other processes read what is there and change nothing (`file_system`). An open file that is removed stays
readable until it is closed. Files have their final name only after their checksum was found right.
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..disk.file_system import FileSystem
from ..stored.cluster_store import ClusterStore
from ..stored.index import StoredObject, StoredSegment

CACHE_DIRECTORY_NAME: Final = "cold-cache"
"""In the archive's directory."""

_counter: Final = itertools.count()


def cached_path(archive_directory: Path, segment: StoredSegment) -> Path:
    """Name the file of a segment in the cache of an archive's directory, whether it is there or not."""
    return archive_directory / CACHE_DIRECTORY_NAME / _file_name(segment)


def _file_name(segment: StoredSegment) -> str:
    return f"{segment.base_position}-{segment.sha256[:16]}.rec"


class SegmentCache:
    """The cached segments in one directory. Every method blocks."""

    def __init__(self, directory: Path, *, limit_bytes: int, disk: FileSystem) -> None:
        self.directory: Final = directory
        self._disk: Final = disk
        self.limit_bytes: Final = limit_bytes

    def __repr__(self) -> str:
        return f"<SegmentCache {self.directory} limit_bytes={self.limit_bytes}>"

    def path_of(self, segment: StoredSegment) -> Path:
        """Name the file of a segment, whether it is there or not."""
        return self.directory / _file_name(segment)

    def fetch(self, store: ClusterStore, segment: StoredSegment) -> bool:
        """Have a segment on the disk, and say whether it had to be fetched. Others go if there is no room for it.

        Raises:
            StoreError: the store refused, or has something else.
            OSError: the disk refused.
        """
        path = self.path_of(segment)
        if self._disk.mark_used(path):
            return False
        self._disk.make_directory(self.directory)
        self._make_room(segment.length)
        temporary = path.with_name(f"{path.name}.{os.getpid()}-{next(_counter)}.tmp")
        store.fetch([StoredObject(segment.name, segment.length)], temporary, digest=segment.sha256)
        self._disk.rename(temporary, path)
        self._disk.mark_used(path)
        return True

    def drop(self, segment: StoredSegment) -> None:
        """Forget a segment: it is fetched again."""
        self._remove(self.path_of(segment))

    def has(self, segment: StoredSegment) -> bool:
        """Whether the file of a segment is there."""
        try:
            self._disk.close_file(self._disk.open_file(self.path_of(segment), writable=False))
        except FileNotFoundError:
            return False
        return True

    def _make_room(self, length: int) -> None:
        """Remove those used longest ago; what a crash left counts, too."""
        files = self._disk.list_used(self.directory)
        used = sum(file.length for file in files)
        for file in files:
            if used + length <= self.limit_bytes:
                return
            self._remove(file.path)
            used -= file.length

    def _remove(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self._disk.remove(path)
