"""The file `archive-mark.dat`: which process runs on an archive directory, and a lock that lets only one in.

The header is Aeron's, so that its tools open our directories and its archive does not start on one of ours that runs.
Aeron knows a live owner by the age of a timestamp, which makes everybody wait for one that has crashed. Ours hold an
exclusive `flock` besides, which the system drops the moment the process dies, however it dies. `marks` decides whether
a process runs, by the mark files of all versions of Aeron, too.

    0       8-byte SBE header and `MarkFileHeader`, in an area of 8192 bytes
    8192    error log of 1 MiB, Aeron's; kept as it is

Nothing here is synced: after a power loss nobody runs. Source: Aeron `ArchiveMarkFile`; samples set A README §9.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ...service_api.errors import RemoteProtocolError
from ...service_api.types import NULL_VALUE
from ...service_api.wire.message import MESSAGE_HEADER_LENGTH
from ..disk.file_system import FileSystem, OsFileSystem, open_or_create, read_fully, write_fully
from ..errors import ArchiveError
from ..format.messages import ArchiveMarkFileHeader
from .marks import (
    ARCHIVE_MARKS,
    MARK_FILE_ERROR_LOG_LENGTH,
    MARK_FILE_HEADER_LENGTH,
    MarkOwner,
    decode_mark,
    find_owner,
    judge_mark,
    remove_links,
)

MARK_FILE_NAME: Final = ARCHIVE_MARKS.file_name
MARK_FILE_VERSION: Final = 0x0003_0100
"""3.1.0 as major << 16 | minor << 8 | patch."""

ACTIVITY_INTERVAL_S: Final = 1.0
_CONTROL_STREAM_ID: Final = 10
_EVENTS_STREAM_ID: Final = 30
_ACTIVITY_TIMESTAMP: Final = struct.Struct("<q")
_ACTIVITY_TIMESTAMP_OFFSET: Final = MESSAGE_HEADER_LENGTH + 8
_CONTROL_CHANNEL: Final = "trimaran:tcp"


class ArchiveInUseError(ArchiveError):
    """Somebody runs on the archive directory, or nobody can tell.

    `pid` is its process id and `age_ms` how long ago it last said that it lives; None where that cannot be told.
    """

    def __init__(self, directory: Path, owner: MarkOwner) -> None:
        super().__init__(owner.describe("archive", directory))
        self.directory = directory
        self.pid = owner.pid
        self.age_ms = owner.age_ms


class ArchiveMarkFile:
    """The mark file of one archive, locked until `close`, `release` or the end of the process. Every method blocks."""

    def __init__(self, path: Path, handle: int, header: ArchiveMarkFileHeader, *, file_system: FileSystem) -> None:
        self.header: Final = header
        self._path = path
        self._handle = handle
        self._file_system = file_system

    def __repr__(self) -> str:
        return f"<ArchiveMarkFile path={self._path} pid={self.header.pid}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @classmethod
    def open(cls, directory: Path, *, now_ms: int, file_system: FileSystem | None = None) -> Self:
        """Lock an archive directory and say who runs there; the file is made if it is missing.

        Raises:
            ArchiveInUseError: a process runs there, ours or Aeron's, or a mark file there cannot be understood.
            OSError: the disk refused.
        """
        disk = OsFileSystem() if file_system is None else file_system
        path = directory / MARK_FILE_NAME
        _expect_no_other_owner(directory, now_ms, disk)
        handle = open_or_create(disk, path)  # if two processes make it at once, the lock decides
        try:
            _lock(directory, handle, now_ms, disk)
            found = _read(disk, handle)
            header = ArchiveMarkFileHeader(
                version=MARK_FILE_VERSION,
                activity_timestamp=now_ms,
                start_timestamp=now_ms,
                pid=os.getpid(),
                control_stream_id=_CONTROL_STREAM_ID,
                local_control_stream_id=_CONTROL_STREAM_ID,
                events_stream_id=_EVENTS_STREAM_ID,
                header_length=MARK_FILE_HEADER_LENGTH,
                error_buffer_length=MARK_FILE_ERROR_LOG_LENGTH,
                archive_id=NULL_VALUE if found is None else found.archive_id,
                control_channel=_CONTROL_CHANNEL,
            )
            write_fully(disk, handle, header.encode().ljust(MARK_FILE_HEADER_LENGTH, b"\0"), 0)
            file_length = MARK_FILE_HEADER_LENGTH + MARK_FILE_ERROR_LOG_LENGTH
            if disk.file_length(handle) != file_length:
                disk.set_length(handle, file_length)
            remove_links(directory, ARCHIVE_MARKS, disk)
        except BaseException:
            disk.close_file(handle)
            raise
        return cls(path, handle, header, file_system=disk)

    def update_activity(self, now_ms: int) -> None:
        """Write the activity timestamp; due about once a second. One write into the page cache."""
        data = _ACTIVITY_TIMESTAMP.pack(now_ms)
        write_fully(self._file_system, self._handle, data, _ACTIVITY_TIMESTAMP_OFFSET)

    def release(self) -> None:
        """Give up the lock as a crash would; a second call does nothing."""
        if self._handle >= 0:
            self._file_system.close_file(self._handle)
            self._handle = -1

    def close(self) -> None:
        """Record that the archive stopped in order (activity timestamp -1), and release the lock."""
        if self._handle < 0:
            return
        try:
            self.update_activity(NULL_VALUE)
        finally:
            self.release()


def expect_unused_archive(directory: Path, *, now_ms: int, file_system: FileSystem) -> None:
    """Check that no process runs on an archive directory, before anything there is changed; it need not be there.

    Raises:
        ArchiveInUseError: a process runs there, ours or Aeron's, or a mark file there cannot be understood.
        OSError: the disk refused.
    """
    _expect_no_other_owner(directory, now_ms, file_system)
    try:
        handle = file_system.open_file(directory / MARK_FILE_NAME)  # for writing: file systems that lock only such
    except FileNotFoundError:
        return
    try:
        _lock(directory, handle, now_ms, file_system)
    finally:
        file_system.close_file(handle)


def _expect_no_other_owner(directory: Path, now_ms: int, disk: FileSystem) -> None:
    """Refuse a directory by every mark file but the one that is going to be locked."""
    path = directory / MARK_FILE_NAME
    owner = find_owner(directory, ARCHIVE_MARKS, now_ms=now_ms, file_system=disk, besides=path)
    if owner is not None:
        raise ArchiveInUseError(directory, owner)


def _lock(directory: Path, handle: int, now_ms: int, disk: FileSystem) -> None:
    path, is_free = directory / MARK_FILE_NAME, disk.try_lock(handle)
    owner = judge_mark(path, handle, ARCHIVE_MARKS, now_ms=now_ms, file_system=disk, is_free=is_free)
    if owner is not None:
        raise ArchiveInUseError(directory, owner)


def _read(disk: FileSystem, handle: int) -> ArchiveMarkFileHeader | None:
    """Read the header; None where there is none, as in a file that was just made."""
    try:
        return decode_mark(read_fully(disk, handle, MARK_FILE_HEADER_LENGTH, 0), ARCHIVE_MARKS)
    except RemoteProtocolError:
        return None
