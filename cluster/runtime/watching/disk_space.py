"""Looks now and then how much room the disk of a member's directory has left, and for how long that lasts.

A percentage comes too late where much is written, and too early on a large disk that stands still. So the readings of
the last minutes say how fast the room gets less, whatever writes there, and when nothing is left if that goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import aiofiles.os
import structlog

from ....archive.disk.file_system import DiskSpace, FileSystem

LOOK_INTERVAL_S: Final = 10.0
"""A disk of a gigabyte that fills at 100 MB/s is seen to fill; statvfs takes some microseconds."""

_WINDOW_NS: Final = 600_000_000_000
_LEAST_WINDOW_NS: Final = 300_000_000_000
"""Readings of less time say nothing: a member that starts prepares segments, and a snapshot comes at once."""
_READING_LIMIT: Final = 64

logger = structlog.get_logger()


class FillRate:
    """How fast a disk fills, by its readings of the last ten minutes."""

    def __init__(self) -> None:
        self._readings: deque[tuple[int, int]] = deque(maxlen=_READING_LIMIT)
        """When each was taken, and the free bytes."""

    def __repr__(self) -> str:
        return f"<FillRate readings={len(self._readings)}>"

    def note(self, now_ns: int, free_bytes: int) -> None:
        """Take in a reading."""
        self._readings.append((now_ns, free_bytes))
        while now_ns - self._readings[0][0] > _WINDOW_NS:
            self._readings.popleft()

    def find_full_in_s(self) -> float | None:
        """Return in how many seconds the disk is full if it fills on like this; None if it does not fill.

        None also before there are readings of five minutes.
        """
        if not self._readings:
            return None
        (begin_ns, before_bytes), (end_ns, free_bytes) = self._readings[0], self._readings[-1]
        filled_bytes = before_bytes - free_bytes
        if end_ns - begin_ns < _LEAST_WINDOW_NS or filled_bytes <= 0:
            return None
        return free_bytes * (end_ns - begin_ns) / filled_bytes / 1e9


class DiskSpaceWatch:
    """Keeps the newest reading. It is taken in a thread, because a file system of a network may not answer.

    It logs once that the disk will be full within `notice_s`, until that is no longer so.
    """

    def __init__(
        self, file_system: FileSystem, directory: Path, *, monotonic_ns: Callable[[], int], notice_s: float
    ) -> None:
        self.newest: DiskSpace | None = None
        """None before the first reading, and while the file system refuses."""
        self.full_in_s: float | None = None
        """As `FillRate.find_full_in_s`, at the newest reading."""
        self._file_system = file_system
        self._directory = directory
        self._monotonic_ns = monotonic_ns
        self._notice_s = notice_s
        self._rate = FillRate()
        self._is_told = False

    def __repr__(self) -> str:
        return f"<DiskSpaceWatch directory={str(self._directory)!r} newest={self.newest} full_in_s={self.full_in_s}>"

    async def run(self) -> None:
        """Look for ever."""
        while True:
            try:
                self._note(await aiofiles.os.wrap(self._file_system.disk_space)(self._directory))
            except OSError:
                self.newest = self.full_in_s = None
            await asyncio.sleep(LOOK_INTERVAL_S)

    def _note(self, space: DiskSpace) -> None:
        self.newest = space
        self._rate.note(self._monotonic_ns(), space.free_bytes)
        self.full_in_s = self._rate.find_full_in_s()
        is_near = self.full_in_s is not None and self.full_in_s < self._notice_s
        if is_near and not self._is_told:
            logger.warning(
                "disk.fills",
                directory=str(self._directory),
                free_bytes=space.free_bytes,
                full_in_s=round(self.full_in_s or 0),
            )
        self._is_told = is_near
