"""Reads a replay as chunks, frames or messages, from any source of checked chunks.

A message whose beginning or end is missing, because the replay begins inside it or its publisher died within it, is
left out and counted, as `MessageJoiner` does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Final

from ...service_api.connecting import ClosedAtExit
from ...service_api.types import NULL_POSITION, NULL_VALUE
from ...service_api.wire.frame import HEADER_LENGTH, TYPE_DATA, iter_headers
from ...service_api.wire.frame_rules import FrameRules
from ..files.reader import Frame, MessageJoiner, RecordedMessage
from .frame_stream import FrameStream, open_replay
from .replay_merge import ChunkSource, Dial


class ReplayReader(ClosedAtExit):
    """A replay that begins when it is first read: `async for message in replay`, or `chunks()`, or `frames()`; once.

    Its connection ends with the iteration, with `aclose`, or with the client that it came from.
    """

    def __init__(self, source: ChunkSource) -> None:
        self.source: Final = source
        self.incomplete_message_count = 0

    def __repr__(self) -> str:
        return f"<ReplayReader {self.source!r}>"

    @property
    def position(self) -> int:
        """Where the next chunk begins; -1 before that is known."""
        return self.source.position

    @property
    def is_live(self) -> bool:
        """Whether what is read is the live stream."""
        return self.source.is_live

    async def chunks(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield runs of whole frames as recorded, each with the position where it begins.

        Raises:
            ArchiveError: what the archive said, or it is gone.
            RemoteProtocolError: a frame is not valid; everything before it was given.
        """
        try:
            while chunk := await self.source.read():
                yield self.source.position - len(chunk), chunk
        finally:
            self.source.close()

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield frame after frame, padding included."""
        async for position, chunk in self.chunks():
            for frame in split_frames(chunk, position):
                yield frame

    async def __aiter__(self) -> AsyncIterator[RecordedMessage]:
        joiner = MessageJoiner()
        async for position, chunk in self.chunks():
            for frame in split_frames(chunk, position):
                message = joiner.take(frame)
                self.incomplete_message_count = joiner.incomplete_message_count
                if message is not None:
                    yield message

    async def aclose(self) -> None:
        """Read no more."""
        self.source.close()


class SingleReplay:
    """The source of one replay, on a connection of its own."""

    is_live = False

    def __init__(
        self,
        dial: Dial,
        recording_id: int,
        *,
        position: int | None,
        stop_position: int | None,
        follow: bool,
        limit_recording_id: int | None,
        is_bounded: bool,
        timeout_s: float,
    ) -> None:
        self.recording_id: Final = recording_id
        self.position = NULL_POSITION if position is None else position
        self.replay_session_id = NULL_VALUE
        """What `ArchiveClient.stop_replay` takes; known once it has begun."""
        self._dial = dial
        self._begin_position = position
        self._stop_position = stop_position
        self._follow = follow
        self._limit_counter_id = limit_recording_id if limit_recording_id is not None or not is_bounded else NULL_VALUE
        self._limit_position = -1
        self._timeout_s = timeout_s
        self._stream: FrameStream | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<SingleReplay recording={self.recording_id} position={self.position}>"

    @property
    def rules(self) -> FrameRules:
        """What the frames are like; known once a chunk was read."""
        assert self._stream is not None
        return self._stream.rules

    async def read(self) -> bytes:
        """Return the next chunk; b"" at the end."""
        if self._is_closed:
            return b""
        if self._stream is None:
            self._stream = await self._begin()
        chunk = await self._stream.read()
        self.position = self._stream.position
        return chunk

    def limit(self, position: int) -> None:
        """Raise the limit of the replay to `position`."""
        self._limit_position = max(self._limit_position, position)
        if self._stream is not None and not self._is_closed:
            self._stream.limit(self._limit_position)

    def close(self) -> None:
        """Read no more."""
        self._is_closed = True
        if self._stream is not None:
            self._stream.connection.abort()

    async def _begin(self) -> FrameStream:
        connection = await self._dial()
        try:
            stream = await open_replay(
                connection,
                self.recording_id,
                position=self._begin_position,
                stop_position=self._stop_position,
                follow=self._follow,
                limit_counter_id=self._limit_counter_id,
                timeout_s=self._timeout_s,
            )
        except BaseException:
            connection.abort()
            raise
        assert stream.setup is not None
        self.replay_session_id = stream.setup.session_id
        if self._limit_position >= 0:
            stream.limit(self._limit_position)
        return stream


class BoundedReplay(ReplayReader):
    """A replay that never passes a position which its reader moves with `limit`."""

    def __init__(self, source: SingleReplay) -> None:
        super().__init__(source)
        self._single = source

    def limit(self, position: int) -> None:
        """Raise the limit of the replay to `position`, in bytes; it never goes back."""
        self._single.limit(position)


def split_frames(chunk: bytes, position: int) -> Iterator[Frame]:
    """Yield the frames of a chunk that begins at `position`, which were checked before."""
    for offset, header in iter_headers(chunk):
        payload = chunk[offset + HEADER_LENGTH : offset + header.frame_length] if header.type == TYPE_DATA else b""
        yield Frame(position + offset, *header, payload)
