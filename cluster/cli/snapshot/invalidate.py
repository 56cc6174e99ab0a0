"""`trimaran snapshot invalidate`: a stopped member forgets its newest valid snapshot."""

from __future__ import annotations

import typer

from ....archive.disk.file_system import OsFileSystem
from ....service_api import ConfigurationError
from ...runtime.files.mark_file import MARK_FILE_NAME, DirectoryInUseError
from ...runtime.files.recording_log_file import RecordingLogFile
from .snapshot_files import DirectoryArgument


def invalidate(directory: DirectoryArgument) -> None:
    """Mark the newest valid snapshot of a stopped member invalid.

    The member then starts from the previous one, or from its log.
    """
    cluster_directory = directory / "cluster"
    disk = OsFileSystem()
    try:
        lock = disk.open_file(cluster_directory / MARK_FILE_NAME, writable=False)
    except FileNotFoundError:
        raise ConfigurationError(f"no member's directory: file missing={cluster_directory / MARK_FILE_NAME}") from None
    try:
        if not disk.try_lock(lock):
            raise DirectoryInUseError(cluster_directory, None)
        file = RecordingLogFile.open(cluster_directory, file_sync_level=2)
        try:
            newest = file.recording_log.newest_set()
            if not newest:
                raise ConfigurationError(f"no valid snapshot: directory={directory}")
            file.recording_log.invalidate_latest_snapshot()
            file.persist()
        finally:
            file.close()
    finally:
        disk.close_file(lock)
    typer.echo(f"snapshot invalidated: log_position={newest[0].log_position}")
