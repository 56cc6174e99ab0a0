"""The file `archive-mark.dat`: which process runs on an archive directory, and a lock that lets only one in.

The header is Aeron's, so that its tools open our directories and its archive does not start on one of ours that runs.
Aeron knows a live owner by the age of a timestamp, which makes everybody wait for one that has crashed. Ours hold an
exclusive `flock` besides, which the system drops the moment the process dies, however it dies: so where the file was
last written by us only the lock counts, and where Aeron wrote it, its timestamp. Who wrote it, the control channel
says, which lies in one sector with the timestamp: a power loss leaves both or neither.

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
from ..disk.file_system import FileSystem, OsFileSystem, open_or_create, opened, read_fully, write_fully
from ..errors import ArchiveError
from ..format.messages import ArchiveMarkFileHeader

MARK_FILE_NAME: Final = "archive-mark.dat"
MARK_FILE_HEADER_LENGTH: Final = 8192
MARK_FILE_ERROR_LOG_LENGTH: Final = 1 << 20
MARK_FILE_VERSION: Final = 0x0003_0100
"""3.1.0 as major << 16 | minor << 8 | patch."""

ACTIVITY_INTERVAL_S: Final = 1.0
LIVENESS_TIMEOUT_MS: Final = 10_000
"""For how long after its last activity an Aeron archive counts as alive. Source: Aeron `MarkFile`."""

_CONTROL_STREAM_ID: Final = 10
_EVENTS_STREAM_ID: Final = 30
_ACTIVITY_TIMESTAMP: Final = struct.Struct("<q")
_ACTIVITY_TIMESTAMP_OFFSET: Final = MESSAGE_HEADER_LENGTH + 8
_CONTROL_CHANNEL: Final = "trimaran:tcp"


class ArchiveInUseError(ArchiveError):
    """Somebody runs on the archive directory.

    `pid` is its process id and `age_ms` how long ago it last said that it lives; None where that cannot be told.
    """

    def __init__(self, directory: Path, *, pid: int | None, age_ms: int | None, hint: str) -> None:
        super().__init__(f"archive directory in use: directory={directory} owner_pid={pid} age_ms={age_ms}; {hint}")
        self.directory = directory
        self.pid = pid
        self.age_ms = age_ms


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
            ArchiveInUseError: one of us has the lock, or Aeron was active in the last 10 s.
            OSError: the disk refused.
        """
        disk = OsFileSystem() if file_system is None else file_system
        path = directory / MARK_FILE_NAME
        handle = open_or_create(disk, path)  # if two processes make it at once, the lock decides
        try:
            is_free = disk.try_lock(handle)
            found = _read(disk, handle)
            if not is_free:
                raise _in_use(directory, found, now_ms, "stop it first")
            if found is not None and found.control_channel != _CONTROL_CHANNEL:
                age_ms = now_ms - found.activity_timestamp
                # Further ahead than that the clock was set back, and nobody has written the time since.
                if -LIVENESS_TIMEOUT_MS < age_ms < LIVENESS_TIMEOUT_MS:
                    left_ms = LIVENESS_TIMEOUT_MS - age_ms
                    raise _in_use(directory, found, now_ms, f"stop Aeron first; if it has died, wait {left_ms} ms")
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


def read_archive_mark_file(
    directory: Path, *, file_system: FileSystem | None = None
) -> tuple[ArchiveMarkFileHeader, bytes]:
    """Read the mark file of an archive directory, ours or Aeron's, without its lock: the header and the error log.

    Raises:
        ArchiveError: there is no header.
        OSError: there is no such file, or the disk refused.
    """
    disk = OsFileSystem() if file_system is None else file_system
    path = directory / MARK_FILE_NAME
    with opened(disk, path) as handle:
        header = _read(disk, handle)
        if header is None:
            raise ArchiveError(f"no mark file of an archive: path={path}")
        begin = header.header_length or MARK_FILE_HEADER_LENGTH
        length = header.error_buffer_length or MARK_FILE_ERROR_LOG_LENGTH
        if begin < 0 or length < 0:
            raise ArchiveError(
                f"damaged mark file: path={path} header_length={begin} error_buffer_length={length} expected from 0"
            )
        available = max(0, disk.file_length(handle) - begin)  # a disk would set aside what the header says
        return header, read_fully(disk, handle, min(length, available), begin)


def _read(disk: FileSystem, handle: int) -> ArchiveMarkFileHeader | None:
    """Read the header; None where there is none, as in a file that was just made."""
    try:
        return ArchiveMarkFileHeader.decode(read_fully(disk, handle, MARK_FILE_HEADER_LENGTH, 0))
    except RemoteProtocolError:
        return None


def _in_use(directory: Path, header: ArchiveMarkFileHeader | None, now_ms: int, hint: str) -> ArchiveInUseError:
    if header is None:  # the owner has the lock and has not written its header yet
        return ArchiveInUseError(directory, pid=None, age_ms=None, hint=hint)
    return ArchiveInUseError(directory, pid=header.pid, age_ms=now_ms - header.activity_timestamp, hint=hint)
