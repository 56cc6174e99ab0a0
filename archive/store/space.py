"""Watches the free space on the disk of an archive.

A recording that runs goes on until the disk is full: what it records may be needed, and there may be room again. One
that is not begun loses nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog

from ..disk.file_system import FileSystem
from ..errors import ArchiveError, ArchiveErrorCode

_log = structlog.get_logger(__name__)


class SpaceWatch:
    """Compares what is free with a threshold, in bytes. Every method blocks, and may be called in any thread.

    Source: Aeron `Archive.Context.lowStorageSpaceThreshold`.
    """

    def __init__(self, file_system: FileSystem, directory: Path, threshold_bytes: int) -> None:
        self.threshold_bytes: Final = threshold_bytes
        self._file_system = file_system
        self._directory = directory
        self._warned: set[int] = set()

    def __repr__(self) -> str:
        return f"<SpaceWatch directory={str(self._directory)!r} threshold_bytes={self.threshold_bytes}>"

    def refuse_if_low(self, recording_id: int | None) -> None:
        """Refuse to begin a recording that there may soon be no room for.

        Raises:
            ArchiveError: STORAGE_SPACE.
            OSError: the disk refused.
        """
        free_bytes = self._file_system.disk_space(self._directory).free_bytes
        if free_bytes < self.threshold_bytes:
            raise ArchiveError(
                f"disk space is low: free_bytes={free_bytes} low_space_threshold_bytes={self.threshold_bytes} "
                f"directory={self._directory}; purge what is not needed, or give the archive another disk",
                code=ArchiveErrorCode.STORAGE_SPACE,
                recording_id=recording_id,
            )

    def warn_if_low(self, recording_id: int) -> None:
        """Warn about a recording that runs, once until there is room again.

        Raises:
            OSError: the disk refused.
        """
        free_bytes = self._file_system.disk_space(self._directory).free_bytes
        if free_bytes >= self.threshold_bytes:
            self._warned.discard(recording_id)
        elif recording_id not in self._warned:
            self._warned.add(recording_id)
            _log.warning(
                "recording.space_low",
                recording_id=recording_id,
                free_bytes=free_bytes,
                low_space_threshold_bytes=self.threshold_bytes,
            )
