"""Looks now and then how much room the disk of a member's directory has left, for status and metrics."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import aiofiles.os

from ....archive.disk.file_system import DiskSpace, FileSystem

LOOK_INTERVAL_S: Final = 10.0
"""A disk of a gigabyte that fills at 100 MB/s is seen to fill; statvfs takes some microseconds."""


class DiskSpaceWatch:
    """Keeps the newest reading. It is taken in a thread, because a file system of a network may not answer."""

    def __init__(self, file_system: FileSystem, directory: Path) -> None:
        self.newest: DiskSpace | None = None
        """None before the first reading, and while the file system refuses."""
        self._file_system = file_system
        self._directory = directory

    def __repr__(self) -> str:
        return f"<DiskSpaceWatch directory={str(self._directory)!r} newest={self.newest}>"

    async def run(self) -> None:
        """Look for ever."""
        while True:
            try:
                self.newest = await aiofiles.os.wrap(self._file_system.disk_space)(self._directory)
            except OSError:
                self.newest = None
            await asyncio.sleep(LOOK_INTERVAL_S)
