"""A replay that a connection requested, on the archive's side: start it, bound it, stop it, report how it ended."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from ....service_api.types import NULL_VALUE
from ....service_api.wire.link_frames import StatusFrame
from ...errors import ArchiveError, ArchiveErrorCode, is_damage
from ...format import messages
from ...format.descriptor import RecordingDescriptor
from ...store.conductor import Archive
from ...store.recording import Recording
from ...store.replay import REPLAY_BUFFER_BYTES, ReplayLimit, ReplaySession
from ..control import announce
from .control_session import ControlSession, Stream

_log = structlog.get_logger(__name__)


class ServedReplay(Stream):
    """One replay, as what its connection carries."""

    def __init__(
        self,
        session: ControlSession,
        archive: Archive,
        replay: ReplaySession,
        descriptor: RecordingDescriptor,
        *,
        replay_session_id: int,
        correlation_id: int,
        limit: ReplayLimit | None,
        limit_recording_id: int | None,
        replays: dict[int, ServedReplay],
    ) -> None:
        self.session: Final = session
        self.recording_id: Final = replay.recording_id
        self.replay_session_id: Final = replay_session_id
        self._archive = archive
        self._replay = replay
        self._correlation_id = correlation_id
        self._limit = limit
        self._limit_recording_id = limit_recording_id
        """`NULL_VALUE`: the reader moves the limit; None: the archive's owner does."""
        self._replays = replays
        """Every replay of the server by its id: this one is among them until it ends."""
        self._setup = announce(descriptor, replay.position, replay_session_id)
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<ServedReplay id={self.replay_session_id} {self._replay!r}>"

    def begin(self) -> None:
        """Send the setup frame, then the replay."""
        self.session.limit_buffer(REPLAY_BUFFER_BYTES)
        self.session.write(self._setup.encode())
        self._replays[self.replay_session_id] = self
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

    def on_status(self, status: StatusFrame) -> None:
        """Move the limit, where it is the reader's to move."""
        if self._limit is not None and self._limit_recording_id == NULL_VALUE:
            setup = self._setup
            self._limit.advance(
                status.position(initial_term_id=setup.initial_term_id, term_length_bytes=setup.term_length_bytes)
            )

    async def aclose(self) -> None:
        """The reader is gone."""
        await self.stop()

    async def _run(self) -> None:
        following: asyncio.Task[None] | None = None
        bounding_id = self._limit_recording_id
        if self._limit is not None and bounding_id is not None and bounding_id != NULL_VALUE:
            following = self.session.create_task(self._follow(self._limit, bounding_id))
        try:
            await self._replay.run()
        except ArchiveError as error:
            # Damage is told by the archive, which knows how often it has been met: any reader may try again and again.
            log = _log.debug if is_damage(error) else _log.warning
            log("replay.failed", replay=repr(self), reason=str(error))
            self._forget()
            self.session.refuse(error, self._correlation_id)
            return
        finally:
            if following is not None:
                following.cancel()
        self._forget()
        signal = messages.RecordingSignal
        self.session.signal(
            signal.SYNC if self._replay.is_complete else signal.STOP,
            recording_id=self.recording_id,
            position=self._replay.position,
            subscription_id=self.replay_session_id,
            correlation_id=self._correlation_id,
        )

    async def _follow(self, limit: ReplayLimit, recording_id: int) -> None:
        """Let the limit be what another recording has come to, for as long as that grows."""
        archive = self._archive
        recording: Recording | None = None
        try:
            while True:
                limit.advance(archive.recorded_position(recording_id))
                recording = archive.active_recording(recording_id)
                if recording is None:
                    return
                await recording.wait_recorded(limit.position + 1)
        except ArchiveError:  # it was stopped, has failed, or was purged
            if recording is not None:
                limit.advance(recording.recorded_position)

    def _forget(self) -> None:
        self._replays.pop(self.replay_session_id, None)
        if self.session.stream is self:
            self.session.stream = None
