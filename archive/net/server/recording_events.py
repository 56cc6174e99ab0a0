"""Sends recording events (started, progress, stopped) to the sessions that subscribed to them.

Starts and stops come in order, one event each. Progress is told with the newest position only: a session that reads
slowly is told less often. One that leaves `EVENT_LIMIT` events untaken is closed: it would miss some.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from ....service_api.errors import RemoteProtocolError
from ....service_api.types import RecordingId
from ....service_api.wire.frame import encode_frame
from ....service_api.wire.link_frames import StatusFrame
from ....service_api.wire.message import Message
from ...format import messages
from ...format.descriptor import RecordingDescriptor
from ..control import EVENTS_STREAM_ID
from .control_session import ControlSession, Stream

EVENT_LIMIT: Final = 4096


class RecordingEvents:
    """Everybody who wants to be told."""

    def __init__(self) -> None:
        self._sessions: dict[EventSession, None] = {}

    def __repr__(self) -> str:
        return f"<RecordingEvents sessions={len(self._sessions)}>"

    def join(self, session: ControlSession) -> EventSession:
        """Send events to a session from now on."""
        events = EventSession(self, session)
        self._sessions[events] = None
        events.begin()
        return events

    def leave(self, events: EventSession) -> None:
        """Send it no more events."""
        self._sessions.pop(events, None)

    def started(self, descriptor: RecordingDescriptor, position: int) -> None:
        """A recording begins, or goes on, at `position`."""
        if self._sessions:
            self._tell(
                messages.RecordingStarted(
                    recording_id=RecordingId(descriptor.recording_id),
                    start_position=position,
                    session_id=descriptor.session_id,
                    stream_id=descriptor.stream_id,
                    channel=descriptor.original_channel,
                    source_identity=descriptor.source_identity,
                )
            )

    def progress(self, descriptor: RecordingDescriptor, position: int) -> None:
        """A recording is durable up to `position`."""
        for session in self._sessions:
            session.note_progress(descriptor, position)

    def stopped(self, descriptor: RecordingDescriptor, position: int) -> None:
        """A recording ends at `position`."""
        if self._sessions:
            self._tell(
                messages.RecordingStopped(
                    recording_id=RecordingId(descriptor.recording_id),
                    start_position=descriptor.start_position,
                    stop_position=position,
                )
            )

    def _tell(self, event: Message) -> None:
        for session in [*self._sessions]:
            session.tell(event)


class EventSession(Stream):
    """One session that is told, as what its connection carries."""

    def __init__(self, events: RecordingEvents, session: ControlSession) -> None:
        self._events = events
        self._session = session
        self._queue: deque[Message] = deque()
        self._progress: dict[int, messages.RecordingProgress] = {}
        self._is_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<EventSession queued={len(self._queue)}>"

    def begin(self) -> None:
        """Start to send."""
        self._task = self._session.create_task(self._run())

    def tell(self, event: Message) -> None:
        """Send an event after the progress made before it."""
        self._queue.extend(self._progress.values())
        self._progress.clear()
        self._queue.append(event)
        if len(self._queue) > EVENT_LIMIT:
            self._session.abort()
        self._is_due.set()

    def note_progress(self, descriptor: RecordingDescriptor, position: int) -> None:
        """Send the newest position, some time."""
        self._progress[descriptor.recording_id] = messages.RecordingProgress(
            recording_id=RecordingId(descriptor.recording_id),
            start_position=descriptor.start_position,
            position=position,
        )
        self._is_due.set()

    def on_status(self, status: StatusFrame) -> None:
        """Events have no positions.

        Raises:
            RemoteProtocolError: always.
        """
        raise RemoteProtocolError("unexpected status frame: this connection only receives recording events")

    async def aclose(self) -> None:
        """Send it no more events."""
        self._events.leave(self)
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            events = [*self._queue, *self._progress.values()]
            self._queue.clear()
            self._progress.clear()
            self._session.write(b"".join(encode_frame(event.encode(), stream_id=EVENTS_STREAM_ID) for event in events))
            await self._session.drain()
