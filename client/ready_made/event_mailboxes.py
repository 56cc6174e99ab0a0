"""Hands the events of one session to the tasks that wait for them, by a number."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final, Generic, TypeVar

from ...service_api.typed import Event
from ..cluster_client import ClusterClient
from ..streams import EgressIterator
from ..typed.exchange import EventReader

_MAILBOX_LIMIT: Final = 1_024
E = TypeVar("E", bound=Event)


class EventMailboxes(Generic[E]):
    """The mailboxes of one client. Whichever waits for its next event reads the session's messages for all of them."""

    def __init__(self, kind: type[E], numbers_of: Callable[[E], Iterable[int]]) -> None:
        self._boxes: dict[int, deque[E]] = {}
        self._numbers_of = numbers_of
        self._reader = EventReader((kind,))
        self._reading = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<EventMailboxes count={len(self._boxes)}>"

    def open(self, number: int) -> None:
        """Begin to keep events. A full mailbox drops its oldest one: who waits must notice, and ask."""
        self._boxes[number] = deque(maxlen=_MAILBOX_LIMIT)

    def close(self, number: int) -> None:
        """Forget a mailbox."""
        self._boxes.pop(number, None)

    def take_ready(self, cluster: ClusterClient) -> None:
        """Take what has arrived, so that a mailbox that nobody reads does not keep answers from a client.

        Another task that waits for a message takes it itself.
        """
        if self._boxes and not self._reading.locked():
            egress = cluster.egress()
            assert isinstance(egress, EgressIterator)
            for message in egress.take_ready(_MAILBOX_LIMIT):
                self._take(message.payload)

    async def next_event(self, number: int, egress: AsyncIterator[Any]) -> E:
        """Wait for the next event of a number.

        Raises:
            StopAsyncIteration: the client is closed.
            SessionClosedError: the session has ended otherwise.
        """
        box = self._boxes[number]
        while not box:
            async with self._reading:
                if not box:
                    self._take((await anext(egress)).payload)
        return box.popleft()

    def _take(self, payload: bytes | memoryview) -> None:
        event: E | None = self._reader.read(payload)
        if event is None:
            return
        for number in self._numbers_of(event):
            if number in self._boxes:
                self._boxes[number].append(event)
