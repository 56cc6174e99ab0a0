"""How the blocking client of a session receives: what comes is shared by the threads that ask for it.

Nothing here is queued twice: offers wait in the client's window, answers in its queue, and at their bounds `offer`
blocks and sockets are not read. What one look at the queue found is handed over at once, at most 1024 messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol, Self

from ...service_api.errors import ClusterTimeoutError, SessionClosedError
from ..cluster_client import ClusterClient
from ..connection_events import ConnectionEvent
from ..egress import EgressMessage
from ..errors import RequestIndeterminateError
from ..protocol.protocol import CLOSED_BY_CLIENT
from ..streams import EgressIterator
from .facade import BATCH_LIMIT, BlockingClient, LoopOwner


class SyncOverClient(Protocol):
    """A blocking client over a session, such as a typed one."""

    @classmethod
    def over(cls, cluster: Any) -> Self:  # Any: a blocking client of a session
        """Make a client over a session that is open."""


class BlockingSession(BlockingClient):
    """The calls that the blocking client of a session has in a form of its own."""

    _target: ClusterClient

    def _take(self, target: Any, owner: LoopOwner) -> None:  # Any: as `Blocking`
        super()._take(target, owner)
        self._fetching = asyncio.Lock()
        self._received: deque[EgressMessage] = deque()
        """Handed over, and not taken by a caller: a caller that is interrupted loses none."""

    @property
    def is_closed(self) -> bool:
        """True once the session has ended."""
        return self._owner.thread.is_ending or self._target.is_closed

    def resolve(self, error: RequestIndeterminateError, timeout_s: float | None = None) -> bytes:
        """Wait until the outcome of a request is known after all, and give the reply.

            except RequestIndeterminateError as error:
                reply = cluster.resolve(error, timeout_s=30)

        Raises:
            ClusterTimeoutError: it is not known in time.
            ClusterError: see `RequestIndeterminateError.resolve`.
        """
        reply: bytes = self._run(error.resolve, timeout_s)
        return reply

    def receive(self, timeout_s: float | None = None) -> EgressMessage:
        """Wait for the next message that the service sends to this session.

            total = int(cluster.receive(timeout_s=5).payload)

        Raises:
            ClusterTimeoutError: none came in time.
            SessionClosedError: the session has ended, perhaps while waiting; says why.
            LocalProtocolError: this is a fork, or the client's own thread.
        """
        message = self._next(timeout_s)
        if message is None:
            if self.is_closed:
                raise SessionClosedError(CLOSED_BY_CLIENT)
            raise ClusterTimeoutError(f"no message came: timeout_s={timeout_s}")
        return message

    def egress(self, timeout_s: float | None = None) -> Iterator[EgressMessage]:
        """Iterate over the messages that the service sends to this session.

            for message in cluster.egress(timeout_s=1):
                print(message.timestamp, message.payload)

        The iteration ends when none has come for `timeout_s`, which says nothing about later ones; or when this
        client is closed. It raises SessionClosedError when the session ended otherwise, after the messages that came
        before. What is not read when the client is closed is lost.

        Raises:
            SessionClosedError: this client is closed.
            LocalProtocolError: this is a fork, or the client's own thread.
        """
        self._owner.thread.check_caller()
        if self._owner.thread.is_ending:
            raise SessionClosedError(CLOSED_BY_CLIENT)
        return iter(lambda: self._next(timeout_s, is_iterating=True), None)

    def connection_events(self, timeout_s: float | None = None) -> Iterator[ConnectionEvent]:
        """Iterate over what happens to the connections and the session, from the beginning.

            for event in cluster.connection_events(timeout_s=0):
                print(event)  # what has happened up to now

        The iteration ends when nothing has happened for `timeout_s`, and after `SessionClosed`, which can be read when
        this client is closed, too. See `ClusterClient.connection_events`.

        Raises:
            LocalProtocolError: this is a fork, or the client's own thread.
        """
        self._owner.thread.check_caller()
        return self._iterate_events(timeout_s)

    def _next(self, timeout_s: float | None, *, is_iterating: bool = False) -> EgressMessage | None:
        """Take a message; None when none came in time, or the client is closed."""
        while True:
            self._owner.thread.check_caller()
            try:
                return self._received.popleft()
            except IndexError:
                pass
            try:
                self._run(self._fetch, timeout_s)
            except (ClusterTimeoutError, StopAsyncIteration):
                return None
            except SessionClosedError as error:
                if is_iterating and error.reason == CLOSED_BY_CLIENT:
                    return None
                raise

    async def _fetch(self) -> None:
        """Wait until there is something in `_received`."""
        async with self._fetching:
            if self._received:
                return
            egress = self._target.egress()
            assert isinstance(egress, EgressIterator)
            self._received.extend(egress.take_ready(BATCH_LIMIT))
            if not self._received:
                self._received.append(await anext(egress))
                self._received.extend(egress.take_ready(BATCH_LIMIT - 1))

    def _iterate_events(self, timeout_s: float | None) -> Iterator[ConnectionEvent]:
        events = self._target._events()
        try:
            while True:
                event: ConnectionEvent = self._run(events.__anext__, timeout_s)
                yield event
        except (ClusterTimeoutError, StopAsyncIteration):
            return
        except SessionClosedError:
            self._owner.thread.end()  # what is left to read does not change any more, and needs no loop
            while (left := events.take_ready()) is not None:
                yield left
