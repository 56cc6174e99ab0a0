"""A disk in memory that loses unsynced data at a power loss: the twin of `OsFileSystem`.

What a file holds is what reads see; beside it lies, for each sector that was changed since the last sync, the
durable content of that sector. So a sync throws that away, whatever the length of the file, and a power loss
puts it back. Directory operations wait in a list per directory until that directory is synced.

`crash` is a power loss: of the changed sectors any subset survives, of the changed length the old or the new,
of the operations in a directory a prefix; the given `keep` decides each. `crash_process` is the end of a process:
handles and locks are gone, everything written stays.

Faults: `on_operation` is told each operation before it is done, outside the lock (so it may block), and may raise;
`write_limit_bytes` makes writes short; `capacity_bytes` fills the disk up; `damage` flips what is durable.
Deterministic: nothing is iterated but lists, dicts in order of insertion, and sorted sectors.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

from .file_system import DiskSpace, UsedFile, WritableBytes

SECTOR_LENGTH_BYTES: Final = 512

OperationName = Literal["open", "create", "pread", "pwrite", "set_length", "sync", "sync_directory", "rename", "remove"]
OnOperation = Callable[[str, Path, int], None]
"""Called with an `OperationName`, the path, and a length in bytes: asked for, given, or new; else 0. A rename names its
source."""

_Entries = dict[Path, "_File"]


@dataclass(slots=True, eq=False)
class _File:
    """One file as reads see it, and what a power loss would put back."""

    path: Path
    data: bytearray = field(default_factory=bytearray)
    durable_length: int = 0
    undo: dict[int, bytes] = field(default_factory=dict)
    """Changed sectors with their durable content, which ends where the durable content of the file does."""
    lock_handle: int | None = None
    used: int = 0
    """Which use of a file of this disk was the last one of this file."""

    def sync(self) -> None:
        """Make the content durable."""
        self.undo.clear()
        self.durable_length = len(self.data)

    def note_change(self, begin: int, end: int) -> None:
        """Keep the durable content of the sectors in [begin, end), which is about to change."""
        undo, durable_length = self.undo, self.durable_length
        sector, end_sector = begin // SECTOR_LENGTH_BYTES, -(-end // SECTOR_LENGTH_BYTES)
        while sector < end_sector:
            offset = sector * SECTOR_LENGTH_BYTES
            if offset >= durable_length:
                undo.update(dict.fromkeys(range(sector, end_sector), b""))
                return
            if sector not in undo:
                undo[sector] = bytes(self.data[offset : min(offset + SECTOR_LENGTH_BYTES, durable_length)])
            sector += 1

    def resize(self, length: int) -> None:
        """Cut or extend with zeros."""
        old_length = len(self.data)
        if length < old_length:
            self.note_change(length, min(old_length, self.durable_length))
            del self.data[length:]
        else:
            self.data.extend(bytes(length - old_length))

    def durable_read(self, length: int, offset: int) -> bytes:
        """Read what is durable now."""
        end = min(offset + length, self.durable_length)
        begin = offset // SECTOR_LENGTH_BYTES * SECTOR_LENGTH_BYTES
        found = self.data[begin:end]
        found.extend(bytes(max(0, end - begin - len(found))))
        for at in range(begin, end, SECTOR_LENGTH_BYTES):
            durable = self.undo.get(at // SECTOR_LENGTH_BYTES)
            if durable is not None:
                found[at - begin : at - begin + len(durable)] = durable
        return bytes(found[offset - begin : max(0, end - begin)])

    def lose_power(self, keep: Callable[[], bool]) -> None:
        """Go back to the durable content, except for the length and the changed sectors that are kept."""
        written_length, length = len(self.data), self.durable_length
        if written_length != length and keep():
            length = written_length
        del self.data[length:]
        self.data.extend(bytes(length - len(self.data)))
        for sector in sorted(self.undo):
            begin = sector * SECTOR_LENGTH_BYTES
            end = min(begin + SECTOR_LENGTH_BYTES, length)
            if begin >= end:
                break
            # A sector that was cut off, by a cut that is now undone, has no new content to keep.
            if end > written_length or not keep():
                self.data[begin:end] = self.undo[sector].ljust(end - begin, b"\0")[: end - begin]
        self.sync()


class _DirectoryChange(NamedTuple):
    """A name that was made, moved or removed: `source` goes, `target` comes."""

    source: Path | None
    target: Path | None
    file: _File

    def renamed(self, moved: Callable[[Path], Path]) -> _DirectoryChange:
        source, target = self.source, self.target
        return _DirectoryChange(source and moved(source), target and moved(target), self.file)

    def apply(self, entries: _Entries) -> None:
        if self.source is not None:
            entries.pop(self.source, None)
        if self.target is not None:
            entries[self.target] = self.file


class MemoryFileSystem:
    """Implements `FileSystem` in memory. Thread-safe, as the real one is."""

    def __init__(self) -> None:
        self.on_operation: OnOperation | None = None
        self.write_limit_bytes: int | None = None
        """How many bytes a single write takes at most."""
        self.capacity_bytes: int | None = None
        """How long all files together may be. A write that reaches this is short; the next one raises ENOSPC."""
        self._used_bytes = 0
        self._lock = threading.Lock()
        self._files: _Entries = {}
        self._durable_files: _Entries = {}
        self._pending: dict[Path, list[_DirectoryChange]] = {}
        """Changes since the last sync of each directory, in order."""
        self._handles: dict[int, _File] = {}
        self._use_count = 0
        self._next_handle = 3
        self._directories: dict[Path, None] = {Path("/"): None}

    def __repr__(self) -> str:
        return f"<MemoryFileSystem files={len(self._files)} handles={len(self._handles)}>"

    @property
    def used_bytes(self) -> int:
        """How long all files are together."""
        return self._used_bytes

    def open_file(self, path: Path, *, create: bool = False, writable: bool = True) -> int:
        """Open a file; with `create`, make it, and refuse one that is already there.

        Raises:
            FileExistsError: with `create`, it is there.
            FileNotFoundError: without `create`, it is not.
        """
        if self.on_operation is not None:
            self.on_operation("create" if create else "open", path, 0)
        with self._lock:
            if create:
                if path in self._files:
                    raise _error(errno.EEXIST, path)
                self._change(path.parent, _DirectoryChange(None, path, _File(path)))
            file = self._existing(path)
            handle, self._next_handle = self._next_handle, self._next_handle + 1
            self._handles[handle] = file
            return handle

    def close_file(self, handle: int) -> None:
        """Close the handle, and release its lock."""
        with self._lock:
            file = self._file(handle)
            if file.lock_handle == handle:
                file.lock_handle = None
            del self._handles[handle]

    def try_lock(self, handle: int) -> bool:
        """Take the exclusive lock of an open file; False if another handle has it."""
        with self._lock:
            file = self._file(handle)
            if file.lock_handle not in (None, handle):
                return False
            file.lock_handle = handle
            return True

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        """Read up to `length` bytes at `offset`."""
        if self.on_operation is not None:
            self.on_operation("pread", self._file(handle).path, length)
        with self._lock:
            return bytes(memoryview(self._file(handle).data)[offset : offset + length])

    def pread_into(self, handle: int, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from `offset` on and return how many bytes were read."""
        data = self.pread(handle, len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def pwrite(self, handle: int, data: WritableBytes, offset: int) -> int:
        """Write at `offset`; as much as `write_limit_bytes` and `capacity_bytes` allow.

        Raises:
            OSError: the disk is full (ENOSPC).
        """
        if self.on_operation is not None:
            self.on_operation("pwrite", self._file(handle).path, len(data))
        with self._lock:
            file = self._file(handle)
            if self.write_limit_bytes is not None:
                data = memoryview(data)[: self.write_limit_bytes]
            end = offset + len(data)
            growth = end - len(file.data)
            if growth > 0:
                lacking = self._lacking_bytes(growth)
                if lacking >= len(data) > 0:
                    raise _error(errno.ENOSPC, file.path)
                data = memoryview(data)[: len(data) - lacking]
                end -= lacking
                file.note_change(offset, end)
                self._resize(file, max(end, len(file.data)))
            else:
                file.note_change(offset, end)
            file.data[offset:end] = data
            return len(data)

    def file_length(self, handle: int) -> int:
        """Return the length of the file in bytes."""
        with self._lock:
            return len(self._file(handle).data)

    def set_length(self, handle: int, length: int) -> None:
        """Cut or extend (with zeros) the file to `length` bytes.

        Raises:
            OSError: the disk is full (ENOSPC).
        """
        if self.on_operation is not None:
            self.on_operation("set_length", self._file(handle).path, length)
        with self._lock:
            file = self._file(handle)
            if self._lacking_bytes(length - len(file.data)):
                raise _error(errno.ENOSPC, file.path)
            self._resize(file, length)

    def sync_data(self, handle: int) -> None:
        """Make the content of the file durable."""
        if self.on_operation is not None:
            self.on_operation("sync", self._file(handle).path, 0)
        with self._lock:
            self._file(handle).sync()

    sync_file = sync_data

    def evict(self, handle: int, offset: int, length: int) -> None:
        """Do nothing: this disk is memory. Nor is this an operation that a disk could fail."""

    def sync_directory(self, path: Path) -> None:
        """Make the names in the directory durable."""
        if self.on_operation is not None:
            self.on_operation("sync_directory", path, 0)
        with self._lock:
            for change in self._pending.pop(path, ()):
                change.apply(self._durable_files)

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents, durably."""
        with self._lock:
            self._directories.update(dict.fromkeys((path, *path.parents)))

    def list_directory(self, path: Path) -> list[str]:
        """Return the names of files and directories in a directory, sorted.

        Raises:
            FileNotFoundError: there is no such directory.
        """
        with self._lock:
            if path not in self._directories:
                raise _error(errno.ENOENT, path)
            paths = (*self._files, *(each for each in self._directories if each != path))
            return sorted(each.name for each in paths if each.parent == path)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or directory in one step, replacing a target that is a file; both lie in one directory.

        Raises:
            FileNotFoundError: there is no such file or directory.
            OSError: the directories differ (EXDEV); a directory would take the place of something else (ENOTEMPTY).
        """
        if self.on_operation is not None:
            self.on_operation("rename", source, 0)
        with self._lock:
            if source in self._directories:
                self._rename_directory(source, target)
                return
            file = self._existing(source)
            if source.parent != target.parent:
                raise _error(errno.EXDEV, target)
            replaced = self._files.get(target)
            if replaced is not None and replaced is not file:
                self._used_bytes -= len(replaced.data)
            self._change(target.parent, _DirectoryChange(source, target, file))
            file.path = target

    def remove(self, path: Path) -> None:
        """Remove a file."""
        if self.on_operation is not None:
            self.on_operation("remove", path, 0)
        with self._lock:
            file = self._existing(path)
            self._used_bytes -= len(file.data)
            self._change(path.parent, _DirectoryChange(path, None, file))

    def mark_used(self, path: Path) -> bool:
        """Count a use of a file; False if it is not there."""
        with self._lock:
            file = self._files.get(path)
            if file is not None:
                self._use_count += 1
                file.used = self._use_count
            return file is not None

    def list_used(self, directory: Path) -> list[UsedFile]:
        """Return the files in a directory, from the one that was used longest ago on."""
        with self._lock:
            files = [(path, file) for path, file in self._files.items() if path.parent == directory]
            return sorted(UsedFile(file.used, len(file.data), path) for path, file in files)

    def restrict_access(self, directory: Path, *, with_files: bool) -> tuple[int, list[str]]:
        """Change nothing: there is no other user."""
        return 0, []

    def disk_space(self, path: Path) -> DiskSpace:
        """Return how much all files together may hold, and how much more."""
        size_bytes = 1 << 62 if self.capacity_bytes is None else self.capacity_bytes
        return DiskSpace(free_bytes=max(0, size_bytes - self._used_bytes), size_bytes=size_bytes)

    def crash(self, keep: Callable[[], bool] = lambda: False) -> None:
        """Lose power: every handle is gone, and of what was not synced only what `keep` says survives."""
        with self._lock:
            self._drop_handles()
            for changes in self._pending.values():
                for change in changes:
                    if not keep():
                        break
                    change.apply(self._durable_files)
            self._pending.clear()
            self._files = dict(self._durable_files)
            for path in sorted(self._files):
                file = self._files[path]
                file.path = path
                file.lose_power(keep)
            self._used_bytes = sum(len(file.data) for file in self._files.values())

    def crash_process(self) -> None:
        """End the process that has files open: handles and locks are gone, what was written stays."""
        with self._lock:
            self._drop_handles()

    def content(self, path: Path) -> bytes:
        """Return what reads of the file see."""
        with self._lock:
            return bytes(self._existing(path).data)

    def durable_as_visible(self, path: Path, length: int, offset: int) -> bytes:
        """Return what a read of the file sees if a power loss would leave just that; b"" otherwise."""
        with self._lock:
            file = self._files.get(path)
            if file is None or self._durable_files.get(path) is not file:
                return b""
            seen = bytes(memoryview(file.data)[offset : offset + length])
            if not file.undo and offset + length <= file.durable_length:
                return seen
            return seen if seen == file.durable_read(length, offset) else b""

    def durable_read(self, path: Path, length: int, offset: int) -> bytes:
        """Return what would survive a power loss now, up to `length` bytes at `offset`; b"" where no name would."""
        with self._lock:
            file = self._durable_files.get(path)
            return b"" if file is None else file.durable_read(length, offset)

    def damage(self, path: Path, offset: int, data: bytes) -> None:
        """Change bytes within a file behind everybody's back, durably: what a failing disk does."""
        with self._lock:
            file = self._existing(path)
            data = data[: max(0, len(file.data) - offset)]
            file.data[offset : offset + len(data)] = data
            for sector, durable in file.undo.items():
                begin = max(offset, sector * SECTOR_LENGTH_BYTES)
                end = min(offset + len(data), sector * SECTOR_LENGTH_BYTES + len(durable))
                if begin < end:
                    changed = bytearray(durable)
                    at = begin - sector * SECTOR_LENGTH_BYTES
                    changed[at : at + end - begin] = data[begin - offset : end - offset]
                    file.undo[sector] = bytes(changed)

    def drop_unsynced(self, path: Path) -> None:
        """Give up what was written to a file since its last sync: what a kernel may do when a sync fails.

        From here on reads see what is durable, and a sync succeeds.
        """
        with self._lock:
            file = self._existing(path)
            self._used_bytes -= len(file.data)
            file.lose_power(lambda: False)
            self._used_bytes += len(file.data)

    def _drop_handles(self) -> None:
        for file in self._handles.values():
            file.lock_handle = None
        self._handles.clear()

    def _resize(self, file: _File, length: int) -> None:
        if self._files.get(file.path) is file:
            self._used_bytes += length - len(file.data)
        file.resize(length)

    def _lacking_bytes(self, growth: int) -> int:
        """How many of `growth` more bytes there is no room for."""
        if self.capacity_bytes is None:
            return 0
        return max(0, growth - max(0, self.capacity_bytes - self._used_bytes))

    def _change(self, directory: Path, change: _DirectoryChange) -> None:
        if directory not in self._directories:
            raise _error(errno.ENOENT, directory)
        change.apply(self._files)
        self._pending.setdefault(directory, []).append(change)

    def _rename_directory(self, source: Path, target: Path) -> None:
        """Move all that lies below; durably, as if the journal of the file system were written just now."""
        if source.parent != target.parent:
            raise _error(errno.EXDEV, target)
        if target in self._directories or target in self._files:
            raise _error(errno.ENOTEMPTY, target)

        def moved(path: Path) -> Path:
            return target / path.relative_to(source) if path.is_relative_to(source) else path

        self._directories = {moved(path): None for path in self._directories}
        self._files = {moved(path): file for path, file in self._files.items()}
        self._durable_files = {moved(path): file for path, file in self._durable_files.items()}
        self._pending = {
            moved(directory): [change.renamed(moved) for change in changes]
            for directory, changes in self._pending.items()
        }
        for path, file in self._files.items():
            file.path = path

    def _existing(self, path: Path) -> _File:
        file = self._files.get(path)
        if file is None:
            raise _error(errno.ENOENT, path)
        return file

    def _file(self, handle: int) -> _File:
        file = self._handles.get(handle)
        if file is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return file


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
