"""Replays a range of a recording into a sink, and follows the live end while the recording grows.

Whole frames, exactly as recorded, in chunks that never cross a segment. Only durable bytes are replayed, and only
frames that check out: the replay ends with a CorruptionError in front of the first that does not. The
sink's `drain` is the flow control: a slow reader slows its own replay and nothing else. A rate limit keeps replays from
taking the disk from those who record.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from ..errors import ArchiveError, ArchiveErrorCode, CorruptionError, below_oldest
from .cold_segments import SegmentColdError
from .conductor import Archive

CHUNK_LENGTH_BYTES: Final = 256 << 10
"""What is read, checked and written in one pass of the loop: 0.3 ms, beside which others go on.

On a busy loop a pass takes milliseconds, so what it does for a replay is what limits that.
"""

REPLAY_BUFFER_BYTES: Final = 2 * CHUNK_LENGTH_BYTES
"""What a sink should hold before its `drain` waits: with less, each chunk would wait for the one before to be sent."""

RATE_STEP_S: Final = 0.005
"""How far a replay may run ahead of its rate before it sleeps: short sleeps are not exact."""

_FETCH_LIMIT: Final = 5
"""How often one cold segment is fetched for one read, before other replays are said to need the whole cache."""


class ReplaySink(Protocol):
    """Where a replay goes; an `asyncio.StreamWriter` is one."""

    def write(self, data: bytes) -> None:
        """Take a chunk of whole frames."""

    async def drain(self) -> None:
        """Return when there is room for more."""


class ReplayLimit:
    """A moving position that bounded replays do not pass."""

    def __init__(self, position: int) -> None:
        self.position = position
        self._moved = asyncio.Event()
        self._waiting_count = 0

    def __repr__(self) -> str:
        return f"<ReplayLimit position={self.position}>"

    def advance(self, position: int) -> None:
        """Raise the limit of replays to `position`; it never goes back."""
        if position > self.position:
            self.position = position
            if self._waiting_count:
                self._moved.set()
                self._moved.clear()

    async def wait_beyond(self, position: int) -> None:
        """Return once the limit lies beyond `position`."""
        self._waiting_count += 1
        try:
            while self.position <= position:
                await self._moved.wait()
        finally:
            self._waiting_count -= 1


class ReplaySession:
    """One replay of [position, stop_position) of a recording; without a stop position, to its end as it
    grows.

    With a `limit` it is a bounded replay, which waits there. `rate_limit_bytes_per_s` is kept on average,
    `chunk_length_bytes` is what is read at once. With `is_frame_boundary=False` the position comes from a
    client. If no valid frame begins there, the segment is read from its start, and a position inside a frame is refused
    as INVALID_POSITION; otherwise the recording is damaged.
    """

    def __init__(
        self,
        archive: Archive,
        recording_id: int,
        *,
        position: int,
        stop_position: int | None,
        sink: ReplaySink,
        limit: ReplayLimit | None = None,
        rate_limit_bytes_per_s: int | None = None,
        chunk_length_bytes: int = CHUNK_LENGTH_BYTES,
        is_frame_boundary: bool = True,
    ) -> None:
        descriptor = archive.readable_descriptor(recording_id)
        end_position = archive.recorded_position(recording_id)
        beyond_end = position > end_position and archive.active_recording(recording_id) is None
        if position < descriptor.start_position:
            raise below_oldest(recording_id, position=position, oldest_position=descriptor.start_position)
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
        self._rate_limit = rate_limit_bytes_per_s
        self._chunk_length = chunk_length_bytes
        self._is_frame_boundary = is_frame_boundary or position == descriptor.start_position
        active = archive.active_recording(recording_id)
        self._pace = None if active is None else archive.make_replay_pace(active.append_position)
        self._paid_until_s = 0.0
        """When what was sent so far has taken its time, at the rate."""
        self._barrier_position = -1
        """Where this may go and the next frame does not end: there is nothing to send before more is allowed."""

    def __repr__(self) -> str:
        return f"<ReplaySession recording={self.recording_id} position={self.position} stop={self._stop_position}>"

    @property
    def is_complete(self) -> bool:
        """Whether it has come to its stop position, or to the last frame that ends before it."""
        stop_position = self._stop_position
        return stop_position is not None and (self.position >= stop_position or self._barrier_position >= stop_position)

    async def run(self) -> int:
        """Pump frames until the stop position, or the end of a recording that has stopped; return where it
        ended.

        Raises:
            ArchiveError: the recording failed, or cannot be read. What the sink raises is passed on.
            CorruptionError: the frame at `position` is not what was recorded; everything before it was sent.
        """
        with self._archive.reading(self.recording_id, lambda: self.position):
            if not self._is_frame_boundary:
                await self._check_frame_boundary()
            while True:
                end_position = self._available_position()
                if self.position < end_position and self._barrier_position < end_position:
                    await self._pump(end_position)
                    continue
                if self.is_complete or not await self._wait_for_more():
                    return self.position

    def _available_position(self) -> int:
        end_position = self._archive.recorded_position(self.recording_id)
        if self._stop_position is not None:
            end_position = min(end_position, self._stop_position)
        if self._limit is not None:
            end_position = min(end_position, self._limit.position)
        return end_position

    async def _check_frame_boundary(self) -> None:
        """Refuse a position that lies inside a frame. Its segment is walked only where no valid frame is found."""
        archive, recording_id, position = self._archive, self.recording_id, self.position
        durable_position = archive.recorded_position(recording_id)
        if position >= durable_position:
            return
        try:
            await self._read(position, 0, durable_position, is_frame_boundary=False)
            return
        except CorruptionError as error:
            fault = error
        descriptor = archive.readable_descriptor(recording_id)
        at = max(descriptor.start_position, descriptor.segment_base_position(position))
        while at < position:
            limit_bytes = min(CHUNK_LENGTH_BYTES, position - at)
            at += len(await self._read(at, limit_bytes, durable_position))
            await asyncio.sleep(0)
        if at > position:
            raise ArchiveError(
                "no frame begins there",
                code=ArchiveErrorCode.INVALID_POSITION,
                recording_id=recording_id,
                position=position,
            ) from fault

    async def _pump(self, end_position: int) -> None:
        """Write what there is up to `end_position`, letting the loop run between chunks."""
        while self.position < end_position:
            begin_ns = self._archive.monotonic_ns()
            limit_bytes = min(self._chunk_length, end_position - self.position)
            durable_position = self._archive.recorded_position(self.recording_id)
            chunk = await self._read(self.position, limit_bytes, durable_position)
            if self.position + len(chunk) > end_position:
                self._barrier_position = end_position
                return
            self._sink.write(chunk)
            self.position += len(chunk)
            end_ns = self._archive.monotonic_ns()
            await self._sink.drain()
            await asyncio.sleep(self._pause_s(len(chunk), begin_ns, end_ns))

    async def _read(
        self, position: int, limit_bytes: int, stop_position: int, *, is_frame_boundary: bool = True
    ) -> bytes:
        """Read as the archive does, after what is in cold storage was fetched."""
        archive, recording_id = self._archive, self.recording_id
        for _ in range(_FETCH_LIMIT):
            try:
                return archive.read(
                    recording_id,
                    position,
                    limit_bytes,
                    stop_position=stop_position,
                    is_frame_boundary=is_frame_boundary,
                )
            except SegmentColdError:
                assert archive.cold is not None
                await archive.cold.fetch(archive.present_descriptor(recording_id), position)
        raise ArchiveError(
            "a cold segment left the cache before it was read: raise cold_cache_bytes, or replay less at once",
            recording_id=recording_id,
            position=position,
        )

    def _pause_s(self, length: int, begin_ns: int, end_ns: int) -> float:
        """How long to wait after a chunk, for the rate's sake, and for those who record."""
        pause_s = self._rate_pause_s(length)
        recording = None if self._pace is None else self._archive.active_recording(self.recording_id)
        if self._pace is None or recording is None:
            return pause_s
        pause_ns = self._pace.pause_ns(length, recording.append_position, begin_ns=begin_ns, end_ns=end_ns)
        return max(pause_s, pause_ns / 1e9)

    def _rate_pause_s(self, length: int) -> float:
        if self._rate_limit is None:
            return 0
        now_s = asyncio.get_running_loop().time()
        self._paid_until_s = max(now_s, self._paid_until_s) + length / self._rate_limit
        ahead_s = self._paid_until_s - now_s
        return ahead_s if ahead_s > RATE_STEP_S else 0

    async def _wait_for_more(self) -> bool:
        """Wait until there may be more; False when the recording has stopped and all of it was replayed."""
        recording = self._archive.active_recording(self.recording_id)
        if self._limit is not None and self.position < self._archive.recorded_position(self.recording_id):
            await self._limit.wait_beyond(max(self.position, self._barrier_position))
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
