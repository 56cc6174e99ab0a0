"""The progress of a watch, without I/O, and the watches of a client.

Pushed changes may be lost, come twice or come late. A watch takes a push only if it has seen everything before it;
otherwise, and when nothing came for a while, it reads what it lacks from the history.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from typing import Final, Self

from ...service_api.errors import ClusterTimeoutError
from ...service_api.ready_made.kv import ChangePage, EndWatch, KvChange, KvChanges, ReadChanges, WatchKeys
from ..typed import TypedClient
from .ending_calls import EndingCalls
from .event_mailboxes import EventMailboxes

POLL_S: Final = 1.0
"""After how much silence a watch asks whether it lost a push."""


class WatchProgress:
    """Which changes of a range were seen: each is given once, in order."""

    def __init__(self, watch_id: int, begin: bytes, end: bytes, from_revision: int | None) -> None:
        self.watch_id = watch_id
        self._begin = begin
        self._end = end
        self._seen_revision = None if from_revision is None else from_revision - 1
        self.is_behind = from_revision is not None
        """Whether the history is to be read."""

    def __repr__(self) -> str:
        return f"<WatchProgress id={self.watch_id} seen={self._seen_revision} behind={self.is_behind}>"

    def begin_command(self) -> WatchKeys:
        """Give what begins the watch."""
        return WatchKeys(self.watch_id, self._begin, self._end)

    def on_begun(self, revision: int) -> None:
        """The watch has begun: without `from_revision` it goes on from here."""
        if self._seen_revision is None:
            self._seen_revision = revision

    def missing_query(self) -> ReadChanges:
        """Give what asks for the changes that were not seen."""
        return ReadChanges(self._begin, self._end, self._seen_revision or 0)

    def take_page(self, page: ChangePage) -> list[KvChange]:
        """Take the answer to `missing_query`."""
        self._seen_revision = page.through_revision
        self.is_behind = page.through_revision < page.revision
        return page.changes

    def take_push(self, event: KvChanges) -> list[KvChange]:
        """Take what was pushed; nothing if something before it was not seen."""
        seen_revision = self._seen_revision or 0
        if event.watches[self.watch_id] > seen_revision:
            self.is_behind = True
            return []
        changes = [change for change in event.changes if change.revision > seen_revision]
        if changes:
            self._seen_revision = changes[-1].revision
        return changes


class WatchHub(EventMailboxes[KvChanges]):
    """The watches of one client."""

    def __init__(self) -> None:
        super().__init__(KvChanges, lambda event: event.watches)
        self._ids = itertools.count(1)

    def open_next(self) -> int:
        """Give the number of a new watch. A full mailbox makes a gap, so the watch reads the history."""
        watch_id = next(self._ids)
        self.open(watch_id)
        return watch_id


class KvWatch:
    """The changes of a range, each once and in order: `KvClient.watch` gives it.

    async with kv.watch(prefix="jobs/") as changes:
        async for change in changes:
            print(change.revision, change.key, change.value)

    Without `async with` the watch begins when you first wait for a change, and ends with the session. If the client
    reopens sessions, the watch goes on in the next one.
    """

    def __init__(self, client: TypedClient, hub: WatchHub, begin: bytes, end: bytes, from_revision: int | None) -> None:
        self._client = client
        self._hub = hub
        self._progress = WatchProgress(hub.open_next(), begin, end, from_revision)
        self._ready: deque[KvChange] = deque()
        self._session_id: int | None = None
        """The session in which it has begun."""
        self._ending = EndingCalls()

    def __repr__(self) -> str:
        return f"<KvWatch {self._progress!r}>"

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is asyncio.CancelledError:
            await self._ending.wait_briefly(self.aclose())
        else:
            await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> KvChange:
        """Wait for the next change.

        Raises:
            CompactedError: what comes next is not in the history any more.
            SessionClosedError: the session has ended; a new one goes on from the last revision you saw, plus 1.
        """
        progress = self._progress
        while not self._ready:
            await self._begin()
            if progress.is_behind:
                await self._catch_up()
                continue
            try:
                async with asyncio.timeout(POLL_S):
                    event = await self._hub.next_event(progress.watch_id, self._client.cluster.egress())
            except TimeoutError:
                progress.is_behind = True
                continue
            self._ready += progress.take_push(event)
        return self._ready.popleft()

    def take_ready(self, limit: int) -> list[KvChange]:
        """Take changes that have come already, up to a limit, without waiting."""
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    async def aclose(self) -> None:
        """End the watch, once there is a leader. The end of an `async with` waits a second at most after a cancel."""
        self._hub.close(self._progress.watch_id)
        if self._session_id is not None and not self._client.cluster.is_closed:
            await self._client.call(EndWatch(self._progress.watch_id), timeout_s=math.inf)

    async def _begin(self) -> None:
        while self._session_id != self._client.cluster.cluster_session_id:
            begun = await self._client.call(self._progress.begin_command())
            self._progress.is_behind |= self._session_id is not None  # what was pushed meanwhile went to nobody
            self._session_id = self._client.cluster.cluster_session_id
            self._progress.on_begun(begun.revision)

    async def _catch_up(self) -> None:
        try:
            page = await self._client.ask(self._progress.missing_query())
        except ClusterTimeoutError:
            return  # no leader answers; the next round asks again, and a session that ends raises
        self._ready += self._progress.take_page(page)
