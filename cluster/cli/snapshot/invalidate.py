"""`trimaran snapshot invalidate`: a stopped member forgets its newest valid snapshot."""

from __future__ import annotations

import typer

from ....service_api import ConfigurationError
from ...runtime.files.mark_file import offline_member
from ...runtime.files.recording_log_file import RecordingLogFile
from ...runtime.ground.system_clock import SystemClock
from .snapshot_files import DirectoryArgument


def invalidate(directory: DirectoryArgument) -> None:
    """Mark the newest valid snapshot of a stopped member invalid.

    The member then starts from the previous one, or from its log.
    """
    cluster_directory = directory / "cluster"
    with offline_member(cluster_directory, now_ms=SystemClock().epoch_time()):
        file = RecordingLogFile.open(cluster_directory, file_sync_level=2)
        try:
            newest = file.recording_log.newest_set()
            if not newest:
                raise ConfigurationError(f"no valid snapshot: directory={directory}")
            file.recording_log.invalidate_latest_snapshot()
            file.persist()
        finally:
            file.close()
    typer.echo(f"snapshot invalidated: log_position={newest[0].log_position}")
