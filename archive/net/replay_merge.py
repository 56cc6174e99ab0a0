"""Replay, then live: follows a recording from any position without a gap or a duplicate, across broken links.

The recording is replayed until the reader is near its end. Then the live stream is joined on a second connection, and
the replay goes on until it has come to where the live stream began; from there on the live stream is read, and the
replay is left. Frames say where they belong, so the two merge by one rule: take what begins where the last one ended.

    REPLAY             reading the replay, which follows the recording
    ATTEMPT_LIVE_JOIN  the live stream is held on its connection; the replay has yet to come to where it begins
    MERGED             reading the live stream

A live stream that ends early, because this reader was too slow for it or a connection broke, leads back to REPLAY, from
the position that was reached. A recording that is active and not published there just now is followed by its replay.
Source: Aeron `ReplayMerge`, `PersistentSubscription`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final, Protocol

from ...service_api.errors import ClusterError, ClusterTimeoutError, invariant
from ...service_api.types import NULL_POSITION, RecordingId
from ...service_api.wire.frame_rules import FrameRules
from ..errors import ArchiveError, ArchiveErrorCode
from ..format import messages
from .connection import ArchiveConnection
from .frame_stream import FrameStream, open_live, open_replay

JOIN_DISTANCE_BYTES: Final = 1 << 20
"""How near to the end of the recording the live stream is joined: what it brings meanwhile is held."""

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0

Dial = Callable[[], Awaitable[ArchiveConnection]]
"""Opens one more connection to the same archive."""


class ChunkSource(Protocol):
    """Where chunks of whole, checked frames come from."""

    position: int
    """Where the next chunk begins; NULL_POSITION before that is known."""

    @property
    def is_live(self) -> bool:
        """Whether what comes is the live stream."""

    @property
    def rules(self) -> FrameRules:
        """What the frames are like; known once a chunk was read."""

    async def read(self) -> bytes:
        """Return the next chunk; b"" at the end."""

    def close(self) -> None:
        """Read no more."""


class MergeState(Enum):
    """Where the next chunk comes from."""

    REPLAY = "replay"
    ATTEMPT_LIVE_JOIN = "attempt live join"
    MERGED = "merged"
    CLOSED = "closed"


class ReplayMerge:
    """A recording from a position on, followed live.

    `on_live(position)` is called whenever the live stream is what is read from `position` on; after a live stream was
    lost it may be called again. Connections that break are dialled again until nothing new has come for
    `reconnect_timeout_s`. `on_state(state, reason)` is called before each change of `state`: nothing is logged here,
    since clients' programs read recordings, too.
    """

    def __init__(
        self,
        dial: Dial,
        recording_id: int,
        *,
        position: int | None = None,
        on_live: Callable[[int], None] | None = None,
        reconnect_timeout_s: float = 30.0,
        rules: FrameRules | None = None,
        on_state: Callable[[MergeState, str], None] = lambda state, reason: None,
    ) -> None:
        self.recording_id: Final = recording_id
        self.position = NULL_POSITION if position is None else position
        self.state = MergeState.REPLAY
        self._dial = dial
        self._on_live = on_live
        self._on_state = on_state
        self._reconnect_timeout_s = reconnect_timeout_s
        self._rules = rules
        self._control: ArchiveConnection | None = None
        """Asked about the recording; carries the live stream later."""
        self._replay: FrameStream | None = None
        self._live: FrameStream | None = None
        self._known_end_position = NULL_POSITION
        self._is_live_possible = True
        self._pause_s = FIRST_PAUSE_S
        self._progress_s: float | None = None
        """When something last came, on the loop's clock."""

    def __repr__(self) -> str:
        return f"<ReplayMerge recording={self.recording_id} {self.state.name} position={self.position}>"

    @property
    def is_live(self) -> bool:
        """Whether the live stream is what is read."""
        return self.state is MergeState.MERGED

    @property
    def rules(self) -> FrameRules:
        """What the frames are like; known once a chunk was read."""
        assert self._rules is not None
        return self._rules

    async def read(self) -> bytes:
        """Return the next chunk, which begins where the last one ended; b"" where the recording has stopped.

        Raises:
            ArchiveError: what the archive answered; or it could not be reached for `reconnect_timeout_s`.
            RemoteProtocolError: a frame is not valid; everything before it was given.
        """
        loop = asyncio.get_running_loop()
        while self.state is not MergeState.CLOSED:
            if self._progress_s is None:
                self._progress_s = loop.time()
            try:
                chunk = await self._next()
            except (ArchiveError, ClusterTimeoutError) as error:
                await self._recover(error)
                continue
            if chunk is None:
                continue
            self._pause_s, self._progress_s = FIRST_PAUSE_S, loop.time()
            return chunk
        return b""

    def close(self) -> None:
        """Leave every stream."""
        self._enter(MergeState.CLOSED, "closed")

    async def _next(self) -> bytes | None:
        """Take one step: give a chunk, b"" at the end, None when there is more to do first."""
        if self.state is MergeState.MERGED:
            return await self._next_live()
        if self._replay is None:
            await self._begin_replay()
            return None
        if self._live is None and self._is_live_possible and self._is_near_end():
            await self._try_to_join()
        if self._live is not None and self.position >= self._begin_of(self._live):
            self._leave_replay()
            return None
        return await self._next_replayed(self._replay)

    # --- replaying

    async def _begin_replay(self) -> None:
        replay = await open_replay(
            await self._dial(),
            self.recording_id,
            position=None if self.position == NULL_POSITION else self.position,
            stop_position=None,
            follow=True,
            rules=self._rules,
            timeout_s=self._reconnect_timeout_s or None,
        )
        self._replay, self.position, self._rules = replay, replay.position, replay.rules

    async def _next_replayed(self, replay: FrameStream) -> bytes:
        chunk = await replay.read()
        invariant(
            replay.position == self.position + len(chunk), "replay has no gap", at=replay.position, after=self.position
        )
        self.position = replay.position
        if not chunk:
            self._enter(MergeState.CLOSED, "recording has stopped")
        return chunk

    # --- joining

    def _is_near_end(self) -> bool:
        return self.position + JOIN_DISTANCE_BYTES >= self._known_end_position

    async def _try_to_join(self) -> None:
        """Join the live stream, unless the end turns out to be further away, or there is no such stream."""
        recording_id = RecordingId(self.recording_id)
        if self._control is None:
            self._control = await self._dial()
        control = self._control
        response = await control.ask(messages.MaxRecordedPositionRequest, recording_id=recording_id)
        self._known_end_position = response.relevant_id
        if not self._is_near_end():
            return
        (descriptor,) = await control.ask_rows(
            messages.ListRecordingRequest, 1, is_range=False, recording_id=recording_id
        )
        assert isinstance(descriptor, messages.RecordingDescriptorRow)
        if descriptor.stop_position != NULL_POSITION:
            self._is_live_possible = False
            return
        try:
            self._live = await open_live(control, descriptor, timeout_s=self._reconnect_timeout_s or None)
        except ArchiveError as error:
            if error.code is not ArchiveErrorCode.UNKNOWN_SUBSCRIPTION:
                raise
            self._is_live_possible, self._control = False, None
            return
        self._enter(MergeState.ATTEMPT_LIVE_JOIN, f"live stream begins at {self._begin_of(self._live)}")

    def _leave_replay(self) -> None:
        assert self._replay is not None
        self._replay.connection.abort()
        self._replay = None
        self._enter(MergeState.MERGED, "replay has come to the live stream")
        if self._on_live is not None:
            self._on_live(self.position)

    @staticmethod
    def _begin_of(live: FrameStream) -> int:
        assert live.setup is not None
        return live.setup.position

    # --- live

    async def _next_live(self) -> bytes | None:
        """Return what the live stream brings beyond `position`: its beginning may have been replayed already."""
        assert self._live is not None
        begin_position = self._live.position
        chunk = await self._live.read()
        if not chunk:
            if self._live.position == self.position:
                self._enter(MergeState.CLOSED, "recording has stopped")
                return b""
            self._fall_back("the live stream ended at another position")
            return None
        if begin_position > self.position:
            self._fall_back(f"live stream has a gap: position={begin_position}")
            return None
        known = self.position - begin_position
        self.position = max(self.position, self._live.position)
        return chunk[known:] or None

    # --- what breaks

    async def _recover(self, error: ClusterError) -> None:
        """Go back to replaying after a break; raise what cannot be helped, or has lasted for too long."""
        was_left_behind = isinstance(error, ArchiveError) and error.code is ArchiveErrorCode.UNKNOWN_SUBSCRIPTION
        self._fall_back(str(error))
        if was_left_behind:
            return
        if not is_connection_failure(error):
            self.close()
            raise error
        assert self._progress_s is not None
        if asyncio.get_running_loop().time() - self._progress_s >= self._reconnect_timeout_s:
            self.close()
            raise error
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _fall_back(self, reason: str) -> None:
        self._enter(MergeState.REPLAY, reason)
        self._is_live_possible, self._known_end_position = True, NULL_POSITION

    def _enter(self, state: MergeState, reason: str) -> None:
        if state in (MergeState.REPLAY, MergeState.CLOSED):
            streams = (stream for stream in (self._replay, self._live) if stream is not None)
            for connection in (self._control, *(stream.connection for stream in streams)):
                if connection is not None:
                    connection.abort()
            self._control = self._live = self._replay = None
        self._on_state(state, reason)
        self.state = state


def is_connection_failure(error: BaseException) -> bool:
    """Whether another try may help: the archive is silent, or gone for now."""
    return isinstance(error, ClusterTimeoutError) or (
        isinstance(error, ArchiveError) and error.code is ArchiveErrorCode.REPLICATION_CONNECTION_FAILURE
    )
