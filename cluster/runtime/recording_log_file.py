"""The file `recording.log`: applies the changes that `cluster.core.recording_log` decided, in order, durably.

Every function here may block. A failed write or sync is final: what is on the disk is no longer known, so the
file refuses everything after it and the node stops.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

from archive.file_system import FileSystem, OsFileSystem, read_fully, write_fully
from service_api.errors import ClusterError, RemoteProtocolError

from ..core.recording_log import RecordingLog

RECORDING_LOG_FILE_NAME: Final = "recording.log"


class RecordingLogFile:
    """The recording log of one member and its file, held open.

    `recording_log` is the value; `persist` brings the file up to it.
    """

    __slots__ = ("_failure", "_file_sync_level", "_file_system", "_handle", "_path", "recording_log")

    def __init__(
        self,
        path: Path,
        handle: int,
        recording_log: RecordingLog,
        *,
        file_sync_level: int,
        file_system: FileSystem,
    ) -> None:
        self.recording_log = recording_log
        self._path = path
        self._handle = handle
        self._file_sync_level = file_sync_level
        self._file_system = file_system
        self._failure: OSError | None = None

    def __repr__(self) -> str:
        return f"<RecordingLogFile path={self._path} recording_log={self.recording_log!r}>"

    @classmethod
    def open(cls, directory: Path, *, file_sync_level: int = 1, file_system: FileSystem | None = None) -> Self:
        """Open the file in `directory`, making it if it is missing.

        An entry that was cut short by a crash was never acknowledged: it is cut off.

        Raises:
            ClusterError: the file holds what cannot be a recording log; the entry is named.
            OSError: the disk refused.
        """
        disk = OsFileSystem() if file_system is None else file_system
        path = directory / RECORDING_LOG_FILE_NAME
        try:
            handle = disk.open_file(path)
        except FileNotFoundError:
            handle = disk.open_file(path, create=True)
        try:
            if file_sync_level > 0:
                # Also one that was there: a process that died may have left it with the kernel only.
                disk.sync_file(handle)
                disk.sync_directory(directory)
            data = read_fully(disk, handle, disk.file_length(handle), 0)
            recording_log = RecordingLog.parse(data)
            if len(data) > recording_log.end_position:
                disk.set_length(handle, recording_log.end_position)
                _sync(disk, handle, file_sync_level)
        except RemoteProtocolError as error:
            disk.close_file(handle)
            raise ClusterError(f"path={path}: {error}") from error
        except BaseException:
            disk.close_file(handle)
            raise
        return cls(path, handle, recording_log, file_sync_level=file_sync_level, file_system=disk)

    def persist(self) -> None:
        """Write what changed in the recording log since the last call, durably unless the level is 0.

        Raises:
            ClusterError: an earlier call failed.
            OSError: this one did.
        """
        if self._failure is not None:
            raise ClusterError(f"path={self._path}: an earlier write failed") from self._failure
        writes = self.recording_log.take_writes()
        if not writes:
            return
        try:
            for write in writes:
                write_fully(self._file_system, self._handle, write.data, write.file_position)
            _sync(self._file_system, self._handle, self._file_sync_level)
        except OSError as error:
            self._failure = error
            raise

    def close(self) -> None:
        """Give the file back. What was not persisted is not written."""
        self._file_system.close_file(self._handle)


def _sync(file_system: FileSystem, handle: int, file_sync_level: int) -> None:
    if file_sync_level == 1:
        file_system.sync_data(handle)
    elif file_sync_level > 1:
        file_system.sync_file(handle)
