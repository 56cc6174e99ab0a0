"""A disk in memory that forgets, at a crash, what was not synced: the twin of `OsFileSystem`.

A file has two images: what reads see, and what is durable. `sync_data` and `sync_file` copy the one to the
other; `sync_directory` does the same for the names in a directory. `crash` drops the rest, or keeps some of
it as a real disk may: for each unsynced sector, and for a prefix of the unsynced directory operations, the
given `keep` decides. Faults are set as attributes: the next operations then raise, take only a part, or wait.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .file_system import WritableBytes

SECTOR_LENGTH_BYTES: Final = 512

_Entries = dict[Path, "_File"]


@dataclass(slots=True, eq=False)
class _File:
    """One file: its content, its durable content, and the sectors in which they differ."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    dirty_sectors: set[int] = field(default_factory=set)

    def sync(self) -> None:
        """Make the content durable."""
        self.durable = bytes(self.data)
        self.dirty_sectors.clear()


class MemoryFileSystem:
    """Implements `FileSystem` in memory. Thread-safe, as the real one is."""

    def __init__(self) -> None:
        self.fail_write: OSError | None = None
        self.fail_sync: OSError | None = None
        self.write_limit_bytes: int | None = None
        """How many bytes a single write takes at most."""
        self.before_sync: Callable[[int], None] | None = None
        """Called with the handle before each sync of a file, outside the lock: may block."""
        self.sync_count = 0
        self._lock = threading.RLock()
        self._files: _Entries = {}
        self._durable_files: _Entries = {}
        self._pending: list[tuple[Path, Callable[[_Entries], object]]] = []
        """Directory operations since the last sync of their directory, in order."""
        self._handles: dict[int, _File] = {}
        self._next_handle = 3
        self._directories: set[Path] = {Path("/")}

    def __repr__(self) -> str:
        return f"<MemoryFileSystem files={len(self._files)} handles={len(self._handles)}>"

    def open_file(self, path: Path, *, create: bool = False, writable: bool = True) -> int:
        """Open a file; with `create`, make it, and refuse one that is already there."""
        with self._lock:
            if create:
                if path in self._files:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
                made = _File()
                self._change(path.parent, lambda entries: entries.update({path: made}))
            file = self._files.get(path)
            if file is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            handle, self._next_handle = self._next_handle, self._next_handle + 1
            self._handles[handle] = file
            return handle

    def close_file(self, handle: int) -> None:
        """Give the handle back."""
        with self._lock:
            self._file(handle)
            del self._handles[handle]

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        """Read up to `length` bytes at `offset`."""
        with self._lock:
            return bytes(memoryview(self._file(handle).data)[offset : offset + length])

    def pwrite(self, handle: int, data: WritableBytes, offset: int) -> int:
        """Write at `offset`; as much as `write_limit_bytes` allows."""
        with self._lock:
            file = self._file(handle)
            if self.fail_write is not None:
                raise self.fail_write
            view = memoryview(data)[: self.write_limit_bytes]
            end = offset + len(view)
            if end > len(file.data):
                file.data.extend(bytes(end - len(file.data)))
            file.data[offset:end] = view
            file.dirty_sectors.update(range(offset // SECTOR_LENGTH_BYTES, -(-end // SECTOR_LENGTH_BYTES)))
            return len(view)

    def file_length(self, handle: int) -> int:
        """Return the length of the file in bytes."""
        with self._lock:
            return len(self._file(handle).data)

    def set_length(self, handle: int, length: int) -> None:
        """Cut or extend (with zeros) the file to `length` bytes."""
        with self._lock:
            data = self._file(handle).data
            if length < len(data):
                del data[length:]
            else:
                data.extend(bytes(length - len(data)))

    def sync_data(self, handle: int) -> None:
        """Make the content of the file durable."""
        if self.before_sync is not None:
            self.before_sync(handle)
        with self._lock:
            self.sync_count += 1
            file = self._file(handle)
            if self.fail_sync is not None:
                raise self.fail_sync
            file.sync()

    sync_file = sync_data

    def sync_directory(self, path: Path) -> None:
        """Make the names in the directory durable."""
        with self._lock:
            if self.fail_sync is not None:
                raise self.fail_sync
            for directory, operation in self._pending:
                if directory == path:
                    operation(self._durable_files)
            self._pending = [pending for pending in self._pending if pending[0] != path]

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents, durably."""
        with self._lock:
            self._directories.update((path, *path.parents))

    def list_directory(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        with self._lock:
            if path not in self._directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            return sorted(file.name for file in self._files if file.parent == path)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file in one step, replacing the target."""
        with self._lock:
            file = self._existing(source)

            def move(entries: _Entries) -> None:
                entries.pop(source, None)
                entries[target] = file

            self._change(target.parent, move)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        with self._lock:
            self._existing(path)
            self._change(path.parent, lambda entries: entries.pop(path, None))

    def crash(self, keep: Callable[[], bool] = lambda: False) -> None:
        """Lose power: every handle is gone, and of what was not synced only what `keep` says survives."""
        with self._lock:
            self._handles.clear()
            for _, operation in self._pending:
                if not keep():
                    break
                operation(self._durable_files)
            self._pending.clear()
            for file in set(self._durable_files.values()):
                _lose_unsynced(file, keep)
            self._files = dict(self._durable_files)

    def content(self, path: Path) -> bytes:
        """Return what reads of the file see."""
        with self._lock:
            return bytes(self._existing(path).data)

    def durable_content(self, path: Path) -> bytes | None:
        """Return what would survive a crash now; None when the name itself would not."""
        with self._lock:
            file = self._durable_files.get(path)
            return None if file is None else file.durable

    def damage(self, path: Path, offset: int, data: bytes) -> None:
        """Change bytes behind everybody's back, durably: what a failing disk does."""
        with self._lock:
            file = self._existing(path)
            file.data[offset : offset + len(data)] = data
            file.sync()

    def _change(self, directory: Path, operation: Callable[[_Entries], object]) -> None:
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory))
        operation(self._files)
        self._pending.append((directory, operation))

    def _existing(self, path: Path) -> _File:
        file = self._files.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return file

    def _file(self, handle: int) -> _File:
        file = self._handles.get(handle)
        if file is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return file


def _lose_unsynced(file: _File, keep: Callable[[], bool]) -> None:
    """Go back to the durable content, except for the dirty sectors that are kept."""
    survived = bytearray(file.durable)
    if len(survived) < len(file.data) and keep():
        survived.extend(bytes(len(file.data) - len(survived)))
    for sector in sorted(file.dirty_sectors):
        if keep():
            begin = sector * SECTOR_LENGTH_BYTES
            end = min(begin + SECTOR_LENGTH_BYTES, len(survived))
            survived[begin:end] = file.data[begin:end]
    file.data = survived
    file.sync()
