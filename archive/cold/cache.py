"""Cold segments on a member's disk: those used last, up to a length in all.

Each process that reads uses the same files: the member, a command, a task of Spark. It removes the ones that were used
longest ago, by the time of the file, before it fetches another. An open file that is removed stays readable until
it is closed. Files have their final name only after their checksum was found right.
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from trimaran.service_api.errors import ClusterError

from .manifest import ColdSegment
from .store import ColdStore

CACHE_DIRECTORY_NAME: Final = "cold-cache"
"""In the archive's directory."""

_ATTEMPT_LIMIT: Final = 3
_counter: Final = itertools.count()


class SegmentCache:
    """The cached segments in one directory. Every method blocks."""

    def __init__(self, directory: Path, *, limit_bytes: int) -> None:
        self.directory: Final = directory
        self.limit_bytes: Final = limit_bytes

    def __repr__(self) -> str:
        return f"<SegmentCache {self.directory} limit_bytes={self.limit_bytes}>"

    def path_of(self, segment: ColdSegment) -> Path:
        """Name the file of a segment, whether it is there or not."""
        return self.directory / f"{segment.base_position}-{segment.sha256[:16]}.rec"

    def fetch(self, store: ColdStore, segment: ColdSegment) -> bool:
        """Have a segment on the disk, and say whether it had to be fetched. Others go if there is no room for it.

        Raises:
            ColdStorageError: the store refused, or has something else.
            OSError: the disk refused.
        """
        path = self.path_of(segment)
        if self._touch(path):
            return False
        self.directory.mkdir(mode=0o700, exist_ok=True)
        self._make_room(segment.length)
        temporary = path.with_name(f"{path.name}.{os.getpid()}-{next(_counter)}.tmp")
        store.fetch_segment(segment, temporary)
        temporary.replace(path)
        return True

    def open_segment(self, store: ColdStore, segment: ColdSegment) -> int:
        """Open the file of a segment for reading, after it was fetched if need be.

        Raises:
            ColdStorageError: the store refused, or has something else.
            OSError: the disk refused.
        """
        for _ in range(_ATTEMPT_LIMIT):
            self.fetch(store, segment)
            with suppress(FileNotFoundError):  # another process needed the room already
                return os.open(self.path_of(segment), os.O_RDONLY | os.O_CLOEXEC)
        raise ClusterError(
            f"a cold segment is removed from the cache before it can be read: directory={self.directory} "
            f"limit_bytes={self.limit_bytes}; raise cold_cache_bytes, or let fewer processes read at once"
        )

    def drop(self, segment: ColdSegment) -> None:
        """Forget a segment: it is fetched again."""
        self.path_of(segment).unlink(missing_ok=True)

    def _make_room(self, length: int) -> None:
        files = sorted(self._files())
        used = sum(found for _, found, _ in files)
        for _, found, path in files:
            if used + length <= self.limit_bytes:
                return
            path.unlink(missing_ok=True)
            used -= found

    def _files(self) -> list[tuple[int, int, Path]]:
        """Return the time of the last use, the length and the path of each file; what a crash left counts, too."""
        found = list[tuple[int, int, Path]]()
        with suppress(FileNotFoundError):
            for entry in os.scandir(self.directory):
                with suppress(FileNotFoundError):
                    status = entry.stat()
                    found.append((status.st_mtime_ns, status.st_size, Path(entry.path)))
        return found

    @staticmethod
    def _touch(path: Path) -> bool:
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
        return True
