"""Cold segments that a reader of this process has fetched: temporary files without a name, up to a length in all.

A scan opens a segment several times: for its head, for a place to cut, for its frames. So the files stay open between,
and each opening gets a handle of its own on the same file. The files were unlinked when they were made: nothing is left
behind, however the process ends. The directory of temporary files is the operating system's, or `TMPDIR`.
"""

from __future__ import annotations

import os
import tempfile
import threading
from typing import Final

from ..disk.file_system import OsFileSystem, write_fully
from ..stored.cluster_store import ClusterStore
from ..stored.index import StoredObject, StoredSegment

FETCHED_LIMIT_BYTES: Final = 1 << 28
"""How much is kept for the next opening; the segment that was fetched last is kept, however long it is."""


class FetchedSegments:
    """The segments of one process. Methods may be called from several threads, and block."""

    def __init__(self, limit_bytes: int = FETCHED_LIMIT_BYTES) -> None:
        self._limit_bytes: Final = limit_bytes
        self._lock = threading.Lock()
        self._handles: dict[str, tuple[int, int]] = {}
        """Handle and length by the object that was fetched; the one that was used last is the last."""

    def __repr__(self) -> str:
        return f"<FetchedSegments segments={len(self._handles)} limit_bytes={self._limit_bytes}>"

    def open_segment(self, store: ClusterStore, segment: StoredSegment) -> int:
        """Open a segment for reading, after it was fetched if need be, and give a handle that the caller closes.

        Raises:
            StoreError: the store refused, or has something else.
            OSError: the directory of temporary files refused.
        """
        key = f"{store.url}/{segment.name}"
        with self._lock:
            found = self._handles.pop(key, None)
            if found is None:
                found = self._fetch(store, segment), segment.length
                self._make_room(segment.length)
            self._handles[key] = found
            return os.dup(found[0])

    def _fetch(self, store: ClusterStore, segment: StoredSegment) -> int:
        disk = OsFileSystem()
        with tempfile.TemporaryFile(prefix="trimaran-cold-") as file:
            objects = [StoredObject(segment.name, segment.length)]
            for begin, data in store.checked_blocks(objects, segment.sha256):
                write_fully(disk, file.fileno(), data, begin)
            return os.dup(file.fileno())

    def _make_room(self, length: int) -> None:
        kept = sum(each for _, each in self._handles.values())
        while self._handles and kept + length > self._limit_bytes:
            handle, dropped = self._handles.pop(next(iter(self._handles)))
            os.close(handle)
            kept -= dropped


FETCHED: Final = FetchedSegments()
"""Those of this process."""
