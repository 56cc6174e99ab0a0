"""The archive's end of a replay that a connection asked for: begin it, bound it, stop it, say how it ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from trimaran.service_api.types import NULL_POSITION, NULL_VALUE
from trimaran.service_api.wire.frame import StatusFrame

from ...errors import ArchiveError, ArchiveErrorCode
from ...format import messages
from ...format.descriptor import RecordingDescriptor
from ...store.replay import CHUNK_LENGTH_BYTES, REPLAY_BUFFER_BYTES, ReplayLimit, ReplaySession
from ..control import ALL_LENGTH, CONTROL_STREAM_IDS, FOLLOW_LENGTH, announce
from .recording_session import refuse_frames

if TYPE_CHECKING:
    from .control_session import ControlSession

SHORTEST_CHUNK_BYTES: Final = 4 << 10

_log = structlog.get_logger(__name__)


class ServedReplay:
    """One replay, as what its connection carries."""

    def __init__(
        self,
        session: ControlSession,
        replay: ReplaySession,
        descriptor: RecordingDescriptor,
        *,
        replay_session_id: int,
        correlation_id: int,
        limit: ReplayLimit | None,
        limit_recording_id: int,
    ) -> None:
        self.session: Final = session
        self.recording_id: Final = replay.recording_id
        self.replay_session_id: Final = replay_session_id
        self._replay = replay
        self._correlation_id = correlation_id
        self._limit = limit
        self._limit_recording_id = limit_recording_id
        self._setup = announce(descriptor, replay.position, replay_session_id)
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<ServedReplay id={self.replay_session_id} {self._replay!r}>"

    def begin(self) -> None:
        """Say what follows, and let it follow."""
        self.session.limit_buffer(REPLAY_BUFFER_BYTES)
        self.session.write(self._setup.encode())
        self.session.server.replays[self.replay_session_id] = self
        self._task = self.session.create_task(self._run())

    async def stop(self) -> None:
        """End it before its end."""
        task, self._task = self._task, None
        self._forget()
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def stop_from_elsewhere(self) -> None:
        """End it because another session asked for that; its reader is told."""
        await self.stop()
        stopped = ArchiveError(
            "replay was stopped",
            code=ArchiveErrorCode.UNKNOWN_REPLAY,
            recording_id=self.recording_id,
            position=self._replay.position,
        )
        self.session.refuse(stopped, self._correlation_id)

    def take(self, buffer: bytearray) -> bool:
        """Nothing but requests may come.

        Raises:
            RemoteProtocolError: something else has come.
        """
        refuse_frames(buffer)
        return False

    async def wait_for_room(self) -> None:
        """Nothing is held here."""

    def on_status(self, status: StatusFrame) -> None:
        """Move the limit, where it is the reader's to move."""
        if self._limit is not None and self._limit_recording_id == NULL_VALUE:
            setup = self._setup
            self._limit.advance(
                status.position(initial_term_id=setup.initial_term_id, term_length_bytes=setup.term_length_bytes)
            )

    def on_keep_alive(self) -> None:
        """The reader is there, and may be as slow as it likes."""

    async def aclose(self) -> None:
        """The reader is gone."""
        await self.stop()

    async def _run(self) -> None:
        try:
            if self._limit is not None and self._limit_recording_id != NULL_VALUE:
                async with asyncio.TaskGroup() as group:
                    following = group.create_task(self._follow(self._limit))
                    await self._replay.run()
                    following.cancel()
            else:
                await self._replay.run()
        except ArchiveError as error:
            _log.warning("replay.failed", replay=repr(self), reason=str(error))
            self._forget()
            self.session.refuse(error, self._correlation_id)
            return
        self._forget()
        signal = messages.RecordingSignal
        self.session.signal(
            signal.SYNC if self._replay.is_complete else signal.STOP,
            recording_id=self.recording_id,
            position=self._replay.position,
            subscription_id=self.replay_session_id,
            correlation_id=self._correlation_id,
        )

    async def _follow(self, limit: ReplayLimit) -> None:
        """Let the limit be what another recording has come to, for as long as that grows."""
        archive = self.session.archive
        while True:
            limit.advance(archive.recorded_position(self._limit_recording_id))
            recording = archive.active_recording(self._limit_recording_id)
            if recording is None:
                return
            try:
                await recording.wait_recorded(limit.position + 1)
            except ArchiveError:
                limit.advance(recording.recorded_position)
                return

    def _forget(self) -> None:
        self.session.server.replays.pop(self.replay_session_id, None)
        if self.session.stream is self:
            self.session.stream = None


async def on_replay(session: ControlSession, request: messages.ReplayRequest | messages.BoundedReplayRequest) -> None:
    """Begin a replay on this connection."""
    server, archive = session.server, session.archive
    if session.stream is not None:
        raise ArchiveError("one stream a connection", code=ArchiveErrorCode.MAX_REPLAYS)
    if len(server.replays) >= server.replay_limit:
        raise ArchiveError(f"too many replays: limit={server.replay_limit}", code=ArchiveErrorCode.MAX_REPLAYS)
    descriptor = archive.present_descriptor(request.recording_id)
    if descriptor.stream_id in CONTROL_STREAM_IDS:
        raise ArchiveError(f"not replayed here: stream_id={descriptor.stream_id}", recording_id=request.recording_id)
    position = descriptor.start_position if request.position == NULL_POSITION else request.position
    limit, limit_recording_id = None, NULL_VALUE
    if isinstance(request, messages.BoundedReplayRequest):
        limit, limit_recording_id = ReplayLimit(position), request.limit_counter_id
        if limit_recording_id != NULL_VALUE:
            archive.present_descriptor(limit_recording_id)
    largest = request.file_io_max_length or CHUNK_LENGTH_BYTES
    replay = ReplaySession(
        archive,
        request.recording_id,
        position=position,
        stop_position=_stop_position_of(session, request, position),
        sink=session,
        limit=limit,
        rate_limit_bytes_per_s=server.replay_rate_limit_bytes_per_s,
        chunk_length_bytes=min(max(largest, SHORTEST_CHUNK_BYTES), CHUNK_LENGTH_BYTES),
        is_frame_boundary=False,
    )
    replay_session_id = next(server.ids)
    served = ServedReplay(
        session,
        replay,
        descriptor,
        replay_session_id=replay_session_id,
        correlation_id=request.correlation_id,
        limit=limit,
        limit_recording_id=limit_recording_id,
    )
    session.respond(request.correlation_id, replay_session_id)
    session.stream = served
    served.begin()


def _stop_position_of(
    session: ControlSession, request: messages.ReplayRequest | messages.BoundedReplayRequest, position: int
) -> int | None:
    if request.length == FOLLOW_LENGTH:
        return None
    if request.length == ALL_LENGTH:
        return max(position, session.archive.recorded_position(request.recording_id))
    if request.length < 0 or request.length % 32:
        raise ArchiveError(
            f"length impossible: length={request.length} expected -2, -1 or a multiple of 32",
            recording_id=request.recording_id,
        )
    return position + request.length


async def on_stop_replay(session: ControlSession, request: messages.StopReplayRequest) -> None:
    """Stop one replay: the own one, or, where editing is allowed, any."""
    replay = session.server.replays.get(request.replay_session_id)
    if replay is not None and replay.session is not session and not session.may(messages.StopAllReplaysRequest):
        replay = None
    if replay is None:
        raise ArchiveError(
            f"replay unknown: replay_session_id={request.replay_session_id}", code=ArchiveErrorCode.UNKNOWN_REPLAY
        )
    await (replay.stop() if replay.session is session else replay.stop_from_elsewhere())
    session.respond(request.correlation_id, request.replay_session_id)


async def on_stop_all_replays(session: ControlSession, request: messages.StopAllReplaysRequest) -> None:
    """Stop every replay of a recording, or of all (-1)."""
    replays = [r for r in session.server.replays.values() if request.recording_id in (NULL_VALUE, r.recording_id)]
    for replay in replays:
        await (replay.stop() if replay.session is session else replay.stop_from_elsewhere())
    session.respond(request.correlation_id, len(replays))
