"""The disk of an archive as one interface, and the real disk behind it.

The interface is small on purpose: positioned reads and writes on handles, syncs, and the few directory
operations. A simulated disk (`trimaran.archive.disk.memory_file_system`) implements the same and can lose what was not
synced. Who only reads asks for `ReadableFileSystem`, which an object store offers, too
(`remote_file_system`). Every method may raise OSError. Methods may be called from more than one thread,
on different handles or offsets.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from ...service_api.operating_system import optional_flag, optional_function, optional_module
from ...service_api.synced_files import sync_data, sync_directory, sync_file
from ..disk_errors import explain_error, explain_error_on_handle, explaining

fcntl: Final = optional_module("fcntl")

WritableBytes = bytes | bytearray | memoryview


class DiskSpace(NamedTuple):
    """The space of one file system, in bytes."""

    free_bytes: int
    size_bytes: int


class UsedFile(NamedTuple):
    """A file, and when it was used last: what that is counted in only orders files."""

    used: int
    length: int
    path: Path


class ReadableFileSystem(Protocol):
    """What readers ask of a disk: files by path, open files by handle (a small int)."""

    def open_file(self, path: Path, *, create: bool = False, writable: bool = True) -> int:
        """Open a file for positioned access; with `create`, make it, and refuse one that is already there."""

    def close_file(self, handle: int) -> None:
        """Close the handle."""

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        """Read up to `length` bytes at `offset`; fewer only at the end of the file."""

    def pread_into(self, handle: int, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from `offset` on and return how many bytes were read; fewer only at the end of the file."""

    def file_length(self, handle: int) -> int:
        """Return the length of the file in bytes."""

    def list_directory(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""


class FileSystem(ReadableFileSystem, Protocol):
    """A disk that can be written, too."""

    def pwrite(self, handle: int, data: WritableBytes, offset: int) -> int:
        """Write at `offset` and return how many bytes were taken, which may be fewer than given."""

    def set_length(self, handle: int, length: int) -> None:
        """Cut or extend (with zeros) the file to `length` bytes."""

    def sync_data(self, handle: int) -> None:
        """Return once the data of the file can be read again after a crash (fdatasync)."""

    def sync_file(self, handle: int) -> None:
        """Return once data and all metadata of the file are durable (fsync)."""

    def evict(self, handle: int, offset: int, length: int) -> None:
        """Drop a durable range of the file from the page cache; it is not going to be read soon."""

    def sync_directory(self, path: Path) -> None:
        """Return once creations, renames and removals in the directory are durable."""

    def make_directory(self, path: Path) -> None:
        """Make a directory and its missing parents; one that is there is fine."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file in one step, replacing the target."""

    def remove(self, path: Path) -> None:
        """Remove a file."""

    def mark_used(self, path: Path) -> bool:
        """Note that a file was used just now; False if it is not there."""

    def list_used(self, directory: Path) -> list[UsedFile]:
        """Return the files in a directory, from the one that was used longest ago on; none if it is not there."""

    def disk_space(self, path: Path) -> DiskSpace:
        """Return how large the disk is that a directory is on, and how much more may be written to it."""

    def restrict_access(self, directory: Path, *, with_files: bool) -> tuple[int, list[str]]:
        """Take a directory, and the files in it, from everybody but their owner.

        Returns how many had to be changed, and the paths that cannot be, for they belong to another user.
        """

    def try_lock(self, handle: int) -> bool:
        """Take the exclusive lock of an open file; False if another holder has it. It goes with the handle."""


def try_flock(handle: int) -> bool:
    """Take the exclusive lock of an open file; False if another holder has it. It ends with the process.

    Raises:
        OSError: this system has no such locks.
    """
    if fcntl is None:
        raise OSError(errno.ENOTSUP, "this system has no locks of files that end with a process: it can only read")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_OPEN_FLAGS: Final = optional_flag("O_CLOEXEC") | optional_flag("O_BINARY")
"""Windows would take bytes for text."""

_at_position: Final = threading.Lock()
"""Held where the system moves to a position and reads or writes there in two calls."""


def _seek_and_read(handle: int, length: int, offset: int, /) -> bytes:
    with _at_position:
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, length)


def _seek_and_write(handle: int, data: WritableBytes, offset: int, /) -> int:
    with _at_position:
        os.lseek(handle, offset, os.SEEK_SET)
        return os.write(handle, data)


_pread: Final[Callable[[int, int, int], bytes]] = optional_function("pread") or _seek_and_read
_pwrite: Final[Callable[[int, WritableBytes, int], int]] = optional_function("pwrite") or _seek_and_write
"""Windows has neither."""


DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
"""Of what is made here, whatever the umask: a log holds what clients sent, and secrets among it."""

_OTHERS_MODE: Final = 0o077


class OsFileSystem:
    """The real disk. Every error names the operation, the file and the place, and says what to do (`disk_errors`).

    A read or a write is a function of `os` in a `try`, which costs 40 ns more than the function itself.
    """

    try_lock = staticmethod(try_flock)

    @staticmethod
    def pread(handle: int, length: int, offset: int) -> bytes:
        """Read up to `length` bytes at `offset`; fewer only at the end of the file."""
        try:
            return _pread(handle, length, offset)
        except OSError as error:
            raise explain_error_on_handle(error, "read", handle, offset=offset, length=length)  # noqa: B904

    @staticmethod
    def pwrite(handle: int, data: WritableBytes, offset: int) -> int:
        """Write at `offset` and return how many bytes were taken, which may be fewer than given."""
        try:
            return _pwrite(handle, data, offset)
        except OSError as error:
            raise explain_error_on_handle(error, "write", handle, offset=offset, length=len(data))  # noqa: B904

    def pread_into(self, handle: int, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from `offset` on and return how many bytes were read."""
        try:
            if hasattr(os, "preadv"):  # Linux, and macOS since 11
                count: int = os.preadv(handle, [buffer], offset)
                return count
            data = _pread(handle, len(buffer), offset)
        except OSError as error:
            raise explain_error_on_handle(error, "read", handle, offset=offset, length=len(buffer))  # noqa: B904
        buffer[: len(data)] = data
        return len(data)

    def open_file(self, path: Path, *, create: bool = False, writable: bool = True) -> int:
        """Open a file for positioned access; with `create`, make it, and refuse one that is already there."""
        flags = (os.O_RDWR if writable else os.O_RDONLY) | _OPEN_FLAGS
        try:
            if not create:
                return os.open(path, flags)
            handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, FILE_MODE)
        except OSError as error:
            raise explain_error(error, "create" if create else "open", file=path)  # noqa: B904
        with _explaining_on_handle("set the permissions", handle):
            if hasattr(os, "fchmod"):
                os.fchmod(handle, FILE_MODE)  # the umask may have taken the owner's own
        return handle

    def close_file(self, handle: int) -> None:
        """Close the handle."""
        try:
            os.close(handle)
        except OSError as error:
            raise explain_error(error, "close", handle=handle)  # noqa: B904 - its path is known no more

    def set_length(self, handle: int, length: int) -> None:
        """Cut or extend (with zeros) the file to `length` bytes."""
        with _explaining_on_handle("truncate", handle, length=length):
            os.ftruncate(handle, length)

    def sync_data(self, handle: int) -> None:
        """Return once the data of the file can be read again after a crash (fdatasync)."""
        try:
            sync_data(handle)
        except OSError as error:
            raise explain_error_on_handle(error, "sync", handle)  # noqa: B904

    def sync_file(self, handle: int) -> None:
        """Return once data and all metadata of the file are durable (fsync)."""
        try:
            sync_file(handle)
        except OSError as error:
            raise explain_error_on_handle(error, "sync", handle)  # noqa: B904

    def file_length(self, handle: int) -> int:
        """Return the length of the file in bytes."""
        with _explaining_on_handle("find the length", handle):
            return os.fstat(handle).st_size

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file in one step, replacing the target."""
        try:
            os.replace(source, target)
        except OSError as error:
            raise explain_error(error, "rename", file=source, target=target)  # noqa: B904

    def remove(self, path: Path) -> None:
        """Remove a file."""
        with explaining("remove", path):
            os.unlink(path)

    def mark_used(self, path: Path) -> bool:
        """Set the times of a file to now; False if it is not there."""
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
        return True

    def list_used(self, directory: Path) -> list[UsedFile]:
        """Return the files in a directory by their time, without those that go away meanwhile."""
        found = list[UsedFile]()
        with suppress(FileNotFoundError):
            for entry in os.scandir(directory):
                with suppress(FileNotFoundError):
                    status = entry.stat()
                    found.append(UsedFile(status.st_mtime_ns, status.st_size, Path(entry.path)))
        return sorted(found)

    def evict(self, handle: int, offset: int, length: int) -> None:
        """Tell the kernel that the range need not stay in the page cache, where there is a way to tell it."""
        if hasattr(os, "posix_fadvise"):  # Linux and most of Unix, but not macOS
            with suppress(OSError):  # it was only meant well
                os.posix_fadvise(handle, offset, length, optional_flag("POSIX_FADV_DONTNEED"))

    def sync_directory(self, path: Path) -> None:
        """Return once creations, renames and removals in the directory are durable."""
        with explaining("sync the directory", path):
            sync_directory(path)

    def make_directory(self, path: Path) -> None:
        """Make a directory and its missing parents, durably; one that is there is fine."""
        path = path.absolute()
        with explaining("make the directory", path):
            missing = [path, *path.parents]
            missing = missing[: next(index for index, parent in enumerate(missing) if parent.exists())]
            for made in reversed(missing):
                with suppress(FileExistsError):
                    made.mkdir(DIRECTORY_MODE)
                    made.chmod(DIRECTORY_MODE)  # the umask may have taken the owner's own
            if not path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        for made in missing:
            self.sync_directory(made.parent)

    def list_directory(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        with explaining("list the directory", path):
            return sorted(os.listdir(path))

    def disk_space(self, path: Path) -> DiskSpace:
        """Return the size of the disk of a directory, and what is free there for a process without privileges."""
        with explaining("find the free space", path):
            if not hasattr(os, "statvfs"):
                usage = shutil.disk_usage(path)
                return DiskSpace(free_bytes=usage.free, size_bytes=usage.total)
            found = os.statvfs(path)
        return DiskSpace(free_bytes=found.f_bavail * found.f_frsize, size_bytes=found.f_blocks * found.f_frsize)

    def restrict_access(self, directory: Path, *, with_files: bool) -> tuple[int, list[str]]:
        """Take a directory, and the files in it, from everybody but their owner. Symbolic links are passed over."""
        changed_count, left = 0, list[str]()
        with explaining("list the directory", directory):
            files = [Path(entry) for entry in os.scandir(directory)] if with_files else []
        for path in (directory, *files):
            with suppress(FileNotFoundError):
                mode = (path.stat() if path is directory else path.lstat()).st_mode
                if not (path is directory or stat.S_ISREG(mode)) or not mode & _OTHERS_MODE:
                    continue
                try:
                    path.chmod(stat.S_IMODE(mode) & ~_OTHERS_MODE)
                    changed_count += 1
                except OSError:
                    left.append(str(path))
        return changed_count, left


@contextmanager
def _explaining_on_handle(doing: str, handle: int, **facts: object) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise explain_error_on_handle(error, doing, handle, **facts)  # noqa: B904 - it is the same error


def write_fully(file_system: FileSystem, handle: int, data: WritableBytes, offset: int) -> None:
    """Write all of `data` at `offset`, however many calls it takes.

    Raises:
        OSError: the disk refused, or took nothing.
    """
    view = memoryview(data)
    while view:
        written = file_system.pwrite(handle, view, offset)
        if written <= 0:
            raise OSError(
                f"write took nothing: offset={offset} length={len(view)}; see the kernel's log (dmesg) for the reason"
            )
        offset += written
        view = view[written:]


def read_fully(file_system: ReadableFileSystem, handle: int, length: int, offset: int) -> bytes:
    """Read `length` bytes at `offset`; fewer only at the end of the file."""
    data = file_system.pread(handle, length, offset)
    if len(data) == length or not data:
        return data
    parts = [data]
    got = len(data)
    while got < length and (more := file_system.pread(handle, length - got, offset + got)):
        parts.append(more)
        got += len(more)
    return b"".join(parts)


@contextmanager
def opened(file_system: ReadableFileSystem, path: Path) -> Iterator[int]:
    """Open a file for reading, and close it at the end of the block."""
    handle = file_system.open_file(path, writable=False)
    try:
        yield handle
    finally:
        file_system.close_file(handle)


def read_file(file_system: ReadableFileSystem, path: Path) -> bytes:
    """Read a whole file."""
    with opened(file_system, path) as handle:
        return read_fully(file_system, handle, file_system.file_length(handle), 0)


def sync_at_level(file_system: FileSystem, handle: int, sync_level: int) -> None:
    """Make what was written to a file durable: not at all at level 0, its data at 1, all of it above."""
    if sync_level == 1:
        file_system.sync_data(handle)
    elif sync_level > 1:
        file_system.sync_file(handle)


def write_new_file(
    file_system: FileSystem, path: Path, data: WritableBytes, *, length: int = 0, is_synced: bool
) -> None:
    """Make a file of at least `length` bytes, zeros after `data`; what a crash left under its name is removed."""
    try:
        handle = file_system.open_file(path, create=True)
    except FileExistsError:
        file_system.remove(path)
        handle = file_system.open_file(path, create=True)
    try:
        if length > len(data):
            file_system.set_length(handle, length)
        write_fully(file_system, handle, data, 0)
        if is_synced:
            file_system.sync_file(handle)
    finally:
        file_system.close_file(handle)


def replace_file(file_system: FileSystem, path: Path, data: WritableBytes) -> None:
    """Put a small file in place as a whole, durably: after a crash it is the one before, or this one.

    Raises:
        OSError: the disk refused; the file is as it was, unless only the sync of its directory failed.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    write_new_file(file_system, temporary, data, is_synced=True)
    file_system.rename(temporary, path)
    file_system.sync_directory(path.parent)


def open_or_create(file_system: FileSystem, path: Path) -> int:
    """Open a file for writing, and make it if it is missing, also where another process does the same."""
    try:
        return file_system.open_file(path)
    except FileNotFoundError:
        pass
    try:
        return file_system.open_file(path, create=True)
    except FileExistsError:
        return file_system.open_file(path)
