"""The signals that an archive sends to a client without a request, and the tasks that wait for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from ...service_api.errors import ClusterError
from ...service_api.wire.message import Message
from ..errors import ArchiveError
from ..format import messages
from .control import error_of

SIGNAL_LIMIT: Final = 256

RecordingEvent = messages.RecordingStarted | messages.RecordingProgress | messages.RecordingStopped


class SignalInbox:
    """Messages in the order in which they came: the last `limit` of them, or all until they are taken."""

    def __init__(self, limit: int | None = SIGNAL_LIMIT) -> None:
        self._limit = limit
        self._messages: deque[Message] = deque()
        self._first = 0
        """The number of the oldest message kept, counted from the first that ever came."""
        self._failure: ClusterError | None = None
        self._arrived = asyncio.Event()

    def __repr__(self) -> str:
        return f"<SignalInbox messages={len(self._messages)}>"

    def take(self, message: Message) -> None:
        """Keep a message, and wake who waits."""
        self._messages.append(message)
        if self._limit is not None and len(self._messages) > self._limit:
            self._messages.popleft()
            self._first += 1
        self._pulse()

    def fail(self, error: ClusterError) -> None:
        """Nothing comes any more."""
        self._failure = error
        self._pulse()

    async def follow(self) -> AsyncIterator[messages.RecordingSignalEvent]:
        """Yield the signals from now on."""
        async for message in self.messages(self._first + len(self._messages)):
            if isinstance(message, messages.RecordingSignalEvent):
                yield message

    async def follow_events(self) -> AsyncIterator[RecordingEvent]:
        """Yield the events, each once; for one reader."""
        number = self._first
        async for message in self.messages(number):
            self._messages.popleft()
            self._first += 1
            if isinstance(message, RecordingEvent):
                yield message

    async def messages(self, number: int) -> AsyncIterator[Message]:
        """Give everything that is kept from the `number`th message on, and what comes.

        Raises:
            ArchiveError: the connection or the archive failed; what came before is given first.
        """
        while True:
            number = max(number, self._first)
            if number < self._first + len(self._messages):
                message = self._messages[number - self._first]
                number += 1
                yield message
            elif self._failure is not None:
                raise self._failure
            else:
                await self._arrived.wait()

    def _pulse(self) -> None:
        self._arrived.set()
        self._arrived.clear()


class ReplicationCall:
    """A copy that an archive makes of another's recording, as far as the archive has told."""

    def __init__(self, inbox: SignalInbox, replication_id: int, correlation_id: int) -> None:
        self.replication_id: Final = replication_id
        self.recording_id: int | None = None
        """The recording that the copy is made in, once it is known."""
        self.position: int | None = None
        """Where the copy begins, then where it joined the live stream, then where it ends."""
        self.live_position: int | None = None
        """Where it joined the live stream, if it has."""
        self._inbox = inbox
        self._correlation_id = correlation_id
        self._error: ArchiveError | None = None
        self._is_over = False

    def __repr__(self) -> str:
        return f"<ReplicationCall id={self.replication_id} recording={self.recording_id} position={self.position}>"

    async def wait(self) -> int:
        """Return when the copy has ended, with the position where it ends; all of that is durable.

        Raises:
            ArchiveError: why it ended before its end; or the archive is gone, and goes on.
        """
        if not self._is_over:
            await self._follow(until_live=False)
        if self._error is not None:
            raise self._error
        assert self.position is not None
        return self.position

    async def wait_live(self) -> int:
        """Return when the copy has joined the live stream, with the position where it did.

        Raises:
            ArchiveError: it ended before; or the archive is gone, and goes on.
        """
        if not self._is_over:
            await self._follow(until_live=True)
        if self._error is not None:
            raise self._error
        if self.live_position is None:
            raise ArchiveError("replication ended before it was live", recording_id=self.recording_id)
        return self.live_position

    async def _follow(self, *, until_live: bool) -> None:
        async for message in self._inbox.messages(0):
            if getattr(message, "correlation_id", None) == self._correlation_id:
                self._take(message)
            if self._is_over or (until_live and self.live_position is not None):
                return

    def _take(self, message: Message) -> None:
        signal = messages.RecordingSignal
        if isinstance(message, messages.ControlResponse):
            self._error = error_of(message)
        elif isinstance(message, messages.RecordingSignalEvent):
            if message.recording_id >= 0:
                self.recording_id, self.position = message.recording_id, message.position
            if message.signal is signal.MERGE:
                self.live_position = message.position
            self._is_over = message.signal is signal.REPLICATE_END
