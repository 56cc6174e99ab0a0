"""The file `recording.log`: applies the changes that `recording_log` decided, in order, durably.

After a power loss any subset of the unsynced sectors may be there. An entry of 64 bytes lies in one sector, so it is
old or new; and where a change touches more than one sector, each is synced before the next is written. So the file
holds a beginning of the changes, as after a kill between two writes.

Every function here may block. A failed write or sync is final: what is on the disk is no longer known, so the
file refuses everything after it and the node stops.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

from ....archive.disk.file_system import (
    FileSystem,
    OsFileSystem,
    ReadableFileSystem,
    open_or_create,
    read_file,
    read_fully,
    sync_at_level,
    write_fully,
)
from ....archive.errors import REFILL_ADVICE
from ....service_api.errors import ClusterError, RemoteProtocolError
from ....service_api.wire.log.recording_log import (
    RECORDING_LOG_FILE_NAME,
    slots_without_checksum,
    with_checksum,
)
from ...core.log.recording_log import RecordingLog

_NEW_FILE_NAME: Final = RECORDING_LOG_FILE_NAME + ".new"
"""A recording log that is to take the place of the other, until it is whole."""

_SECTOR_LENGTH: Final = 512


class DamagedRecordingLogError(ClusterError):
    """The file holds what cannot be a recording log; what is wrong is named."""


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

        An entry that was cut short by a crash was never acknowledged: it is cut off. Slots that Aeron wrote get their
        checksums: each slot is valid with and without, so a crash between them changes nothing.

        Raises:
            DamagedRecordingLogError: the file holds what cannot be a recording log; the entry is named.
            OSError: the disk refused.
        """
        disk = OsFileSystem() if file_system is None else file_system
        path = directory / RECORDING_LOG_FILE_NAME
        handle = open_or_create(disk, path)
        try:
            if file_sync_level > 0:
                # Also one that was there: a process that died may have left it with the kernel only.
                disk.sync_file(handle)
                disk.sync_directory(directory)
            data = read_fully(disk, handle, disk.file_length(handle), 0)
            recording_log = RecordingLog.parse(data)
            if len(data) > recording_log.end_position:
                disk.set_length(handle, recording_log.end_position)
                sync_at_level(disk, handle, file_sync_level)
            if slots := list(slots_without_checksum(data)):
                for file_position, slot in slots:
                    write_fully(disk, handle, slot, file_position)
                sync_at_level(disk, handle, file_sync_level)
        except RemoteProtocolError as error:
            disk.close_file(handle)
            advice = f"restore this member's directory from a copy, or {REFILL_ADVICE}"
            raise DamagedRecordingLogError(f"damaged recording log: path={path}: {error}; {advice}") from error
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
            sector: int | None = None
            for write in writes:
                if sector not in (None, write.file_position // _SECTOR_LENGTH):
                    sync_at_level(self._file_system, self._handle, self._file_sync_level)
                write_fully(
                    self._file_system, self._handle, with_checksum(write.data, write.file_position), write.file_position
                )
                sector = (write.file_position + len(write.data) - 1) // _SECTOR_LENGTH
            sync_at_level(self._file_system, self._handle, self._file_sync_level)
        except OSError as error:
            self._failure = error
            raise

    def replace(self, recording_log: RecordingLog) -> None:
        """Put another recording log in the place of this one, in one step: after a crash the file holds one or other.

        Raises:
            ClusterError: an earlier call failed.
            OSError: this one did.
        """
        if self._failure is not None:
            raise ClusterError(f"path={self._path}: an earlier write failed") from self._failure
        disk, new_path = self._file_system, self._path.with_name(_NEW_FILE_NAME)
        try:
            if _NEW_FILE_NAME in disk.list_directory(self._path.parent):
                disk.remove(new_path)
            handle = disk.open_file(new_path, create=True)
            try:
                for write in recording_log.take_writes():
                    write_fully(disk, handle, with_checksum(write.data, write.file_position), write.file_position)
                if self._file_sync_level > 0:
                    disk.sync_file(handle)
                disk.rename(new_path, self._path)
                if self._file_sync_level > 0:
                    disk.sync_directory(self._path.parent)
            except BaseException:
                disk.close_file(handle)
                raise
        except OSError as error:
            self._failure = error
            raise
        disk.close_file(self._handle)
        self._handle, self.recording_log = handle, recording_log

    def close(self) -> None:
        """Close the file. Changes that were not persisted are lost."""
        self._file_system.close_file(self._handle)


def read_recording_log(path: Path, file_system: ReadableFileSystem | None = None) -> RecordingLog:
    """Read the file of a member without changing it, whether the member runs or not; without a system, of a disk.

    Raises:
        ClusterError: the file holds what cannot be a recording log; the entry is named.
        OSError: the disk refused.
    """
    data = path.read_bytes() if file_system is None else read_file(file_system, path)
    try:
        recording_log = RecordingLog.parse(data)
    except RemoteProtocolError as error:
        raise ClusterError(f"damaged recording log: path={path}: {error}") from error
    return recording_log
