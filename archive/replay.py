"""Replaying a range of a recording into a sink, following the live end while the recording grows.

Whole frames, exactly as recorded, in chunks that never cross a segment. Only durable bytes are replayed, and only
frames that check out: the replay ends with a CorruptionError in front of the first that does not. The
sink's `drain` is the flow control: a slow reader slows its own replay and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from .conductor import Archive
from .errors import ArchiveError, ArchiveErrorCode, behind_oldest

CHUNK_LENGTH_BYTES: Final = 64 << 10
LIMIT_POLL_INTERVAL_S: Final = 0.01
"""How long a replay held back by its limit waits, unless `wake` is called."""


class ReplaySink(Protocol):
    """Where a replay goes; an `asyncio.StreamWriter` is one."""

    def write(self, data: bytes) -> None:
        """Take a chunk of whole frames."""

    async def drain(self) -> None:
        """Return when there is room for more."""


class ReplaySession:
    """One replay of [position, stop_position) of a recording; without a stop position, to its end as it
    grows.

    `limit`, where given, is asked for a position the replay may not pass just now: a bounded replay.
    """

    def __init__(
        self,
        archive: Archive,
        recording_id: int,
        *,
        position: int,
        stop_position: int | None,
        sink: ReplaySink,
        limit: Callable[[], int] | None = None,
    ) -> None:
        descriptor = archive.present_descriptor(recording_id)
        end_position = archive.recorded_position(recording_id)
        beyond_end = position > end_position and archive.active_recording(recording_id) is None
        if position < descriptor.start_position:
            raise behind_oldest(recording_id, position=position, oldest_position=descriptor.start_position)
        if position % 32 or beyond_end:
            raise ArchiveError(
                f"cannot replay: start_position={descriptor.start_position} end_position={end_position}",
                code=ArchiveErrorCode.INVALID_POSITION,
                recording_id=recording_id,
                position=position,
            )
        self.recording_id: Final = recording_id
        self.position = position
        self._archive = archive
        self._stop_position = stop_position
        self._sink = sink
        self._limit = limit
        self._woken = asyncio.Event()

    def __repr__(self) -> str:
        return f"<ReplaySession recording={self.recording_id} position={self.position} stop={self._stop_position}>"

    def wake(self) -> None:
        """Look at the limit again now: it has moved."""
        self._woken.set()

    async def run(self) -> int:
        """Pump frames until the stop position, or the end of a recording that has stopped; return where it
        ended.

        Raises:
            ArchiveError: the recording failed, or cannot be read. What the sink raises is passed on.
            CorruptionError: the frame at `position` is not what was recorded; everything before it was sent.
        """
        with self._archive.reading(self.recording_id, lambda: self.position):
            while True:
                end_position = self._available_position()
                if self.position < end_position:
                    await self._pump(end_position)
                    continue
                reached = self._stop_position is not None and self.position >= self._stop_position
                if reached or not await self._wait_for_more():
                    return self.position

    def _available_position(self) -> int:
        end_position = self._archive.recorded_position(self.recording_id)
        if self._stop_position is not None:
            end_position = min(end_position, self._stop_position)
        if self._limit is not None:
            end_position = min(end_position, self._limit())
        return end_position

    async def _pump(self, end_position: int) -> None:
        """Write what there is up to `end_position`, letting the loop run between chunks."""
        while self.position < end_position:
            chunk = self._archive.read(self.recording_id, self.position, CHUNK_LENGTH_BYTES, stop_position=end_position)
            self._sink.write(chunk)
            self.position += len(chunk)
            await self._sink.drain()
            await asyncio.sleep(0)

    async def _wait_for_more(self) -> bool:
        """Wait until there may be more; False when the recording has stopped and all of it was replayed."""
        recording = self._archive.active_recording(self.recording_id)
        if self.position < self._archive.recorded_position(self.recording_id):
            self._woken.clear()
            try:
                async with asyncio.timeout(LIMIT_POLL_INTERVAL_S):
                    await self._woken.wait()
            except TimeoutError:
                pass
            return True
        if recording is None:
            return False
        try:
            await recording.wait_recorded(self.position + 1)
        except ArchiveError as error:
            if error.code is not ArchiveErrorCode.CLOSED:
                raise
            return self.position < recording.recorded_position
        return True
