"""The iterators of a client: what the service sent, and what happened to the connections.

Both belong to the event loop of their client, and say so when they are used elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from ..service_api.errors import LocalProtocolError, SessionClosedError
from .conductor import ClientConductor
from .connection_events import ConnectionEvent
from .egress import EgressMessage
from .protocol.client_state import ClientState
from .protocol.protocol import CLOSED_BY_CLIENT
from .reopening import Reopening


class EgressIterator:
    """Iterates over a client's egress queue; one task at a time may wait for it."""

    __slots__ = ("_check_loop", "_conductor", "_messages", "_protocol", "_queue", "_reopening")

    def __init__(
        self, conductor: ClientConductor, check_loop: Callable[[], None], reopening: Reopening | None = None
    ) -> None:
        """Read the queue of a session, and with a `reopening` those of the sessions after it."""
        self._check_loop = check_loop
        self._reopening = reopening
        self._bind(conductor)

    def _bind(self, conductor: ClientConductor) -> None:
        queue = conductor.egress_queue
        assert queue is not None
        self._conductor = conductor
        self._protocol = conductor.protocol
        self._queue = queue
        self._messages = queue.messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EgressMessage:
        self._check_loop()
        if not self._messages:
            await self._wait()
        message = self._messages.popleft()
        if not self._protocol.is_reading:
            self._conductor.on_room()
        return message

    def take_ready(self, limit: int) -> list[EgressMessage]:
        """Take what is there, without waiting, up to a limit."""
        self._check_loop()
        messages = self._messages
        taken = [messages.popleft() for _ in range(min(limit, len(messages)))]
        if not self._protocol.is_reading:
            self._conductor.on_room()
        return taken

    async def _wait(self) -> None:
        while not self._messages:
            await self._wait_in_session()
            if self._messages:
                return
            reopening = self._reopening
            if self._protocol.close_reason == CLOSED_BY_CLIENT:
                raise StopAsyncIteration
            if reopening is None:
                raise self._protocol.closed_error()
            try:
                self._bind(await reopening.follow(self._conductor))
            except SessionClosedError:
                raise StopAsyncIteration from None

    async def _wait_in_session(self) -> None:
        queue = self._queue
        if queue.is_awaited:
            raise LocalProtocolError(
                "another task already waits for the egress of this client: read it in one task; clients of services"
                " that wait for events need a session each, such as `SharedConnection.open_client` opens"
            )
        queue.is_awaited = True
        try:
            await self._conductor.wait_until(self._is_ready)
        finally:
            queue.is_awaited = False

    def _is_ready(self) -> bool:
        return bool(self._messages) or self._protocol.state is ClientState.CLOSED


class ConnectionEvents:
    """Iterates over what happened to a client's connections, from the oldest event that is kept.

    Any number of them may be read at once. The iteration ends after `SessionClosed`, unless another session follows.
    """

    __slots__ = ("_check_loop", "_conductor", "_log", "_number", "_reopening", "dropped_count")

    def __init__(
        self, conductor: ClientConductor, check_loop: Callable[[], None], reopening: Reopening | None = None
    ) -> None:
        """Read the events of a session, and with a `reopening` those of the sessions after it."""
        self._reopening = reopening
        self._bind(conductor)
        self._check_loop = check_loop
        self.dropped_count = 0
        """Events that this reader missed, because more than `connection_event_limit` came before it read on."""

    def __aiter__(self) -> Self:
        return self

    def _bind(self, conductor: ClientConductor) -> None:
        self._conductor = conductor
        self._log = conductor.protocol.events
        self._number = self._log.first_number

    async def __anext__(self) -> ConnectionEvent:
        self._check_loop()
        while True:
            await self._conductor.wait_until(self._is_ready)
            event = self.take_ready()
            if event is not None:
                return event
            if self._reopening is None:
                raise StopAsyncIteration
            try:
                self._bind(await self._reopening.follow(self._conductor))
            except SessionClosedError:
                raise StopAsyncIteration from None

    def take_ready(self) -> ConnectionEvent | None:
        """Take the next event if it has happened."""
        log = self._log
        if self._number == log.total_count:
            return None
        if self._number < log.first_number:
            self.dropped_count += log.first_number - self._number
            self._number = log.first_number
        event = log.event(self._number)
        self._number += 1
        return event

    def _is_ready(self) -> bool:
        return self._number < self._log.total_count or self._conductor.protocol.state is ClientState.CLOSED
