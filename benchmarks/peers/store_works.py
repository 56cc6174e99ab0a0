"""The operations that the workers of a store's client repeat: one of each kind, as an application writes it.

All are of the session that a worker has; its workers share one client of the service, as in an application. A spare
session of the process makes what there has to be before, and watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from itertools import count
from typing import Final, Protocol

from ...client import ClusterClient
from ...client.ready_made.kv import KvClient
from ...client.ready_made.kv_watching import KvWatch
from ...client.ready_made.locks import LocksClient
from ...client.ready_made.queue import QueueClient
from ...service_api.errors import ClusterError
from ...service_api.ready_made.kv import put_key
from .peer import SCANNED_KEYS, STORE_KEY, TRANSACTION_PUTS, StoreOperation

Operation = Callable[[], Awaitable[object]]

_PUTS_AT_ONCE: Final = 100
"""Keys that one transaction writes before a scan."""
_NAME: Final = "trimaran-benchmark"
"""Of the lock, and of the queue."""
_RECEIVE_LIMIT_S: Final = 60.0


class StoreWork(Protocol):
    """One kind of operation."""

    def begun(self, spare: ClusterClient) -> AbstractAsyncContextManager[None]:
        """Make what the operations need; it is there until the block ends."""

    def operation(self, session: ClusterClient) -> Operation:
        """Return what each worker of a session does over and over.

        An operation raises ClusterError if an answer is wrong.
        """


def make_work(operation: StoreOperation, payload: int) -> StoreWork:
    """Make the work of an operation, with values of some bytes."""
    return _WORKS[operation](b"x" * payload)


class _Work:
    """A work that needs nothing before it."""

    def __init__(self, value: bytes) -> None:
        self.value = value

    def begun(self, spare: ClusterClient) -> AbstractAsyncContextManager[None]:
        """Make nothing."""
        return nullcontext()


class _Put(_Work):
    def operation(self, session: ClusterClient) -> Operation:
        kv = KvClient(session)
        return lambda: kv.put(STORE_KEY, self.value)


class _Get(_Work):
    @asynccontextmanager
    async def begun(self, spare: ClusterClient) -> AsyncIterator[None]:
        """Write the key."""
        await KvClient(spare).put(STORE_KEY, self.value)
        yield

    def operation(self, session: ClusterClient) -> Operation:
        kv = KvClient(session)

        async def get() -> None:
            found = await kv.get(STORE_KEY)
            if found != self.value:
                raise ClusterError(f"got {found!r} expected {len(self.value)} bytes of x")

        return get


class _Transaction(_Work):
    def operation(self, session: ClusterClient) -> Operation:
        kv = KvClient(session)
        puts = [put_key(STORE_KEY + b"-%d" % number, self.value) for number in range(TRANSACTION_PUTS)]
        return lambda: kv.txn(success=puts)


class _Watch(_Work):
    """A put, until the spare session, which watches the key, has seen it."""

    def __init__(self, value: bytes) -> None:
        super().__init__(value)
        self._numbers = count()
        self._unseen: dict[bytes, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def begun(self, spare: ClusterClient) -> AsyncIterator[None]:
        """Watch the key."""
        async with KvClient(spare).watch(STORE_KEY) as changes, asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read(changes))
            yield
            reading.cancel()

    async def _read(self, changes: KvWatch) -> None:
        async for change in changes:
            seen = self._unseen.pop(change.value or b"", None)
            if seen is not None:
                seen.set_result(None)

    def operation(self, session: ClusterClient) -> Operation:
        kv, loop = KvClient(session), asyncio.get_running_loop()

        async def put_and_see() -> None:
            value = b"%d-" % next(self._numbers) + self.value
            seen = self._unseen[value] = loop.create_future()
            await kv.put(STORE_KEY, value)
            await seen

        return put_and_see


class _Scan(_Work):
    @asynccontextmanager
    async def begun(self, spare: ClusterClient) -> AsyncIterator[None]:
        """Write the keys."""
        kv = KvClient(spare)
        for first in range(0, SCANNED_KEYS, _PUTS_AT_ONCE):
            numbers = range(first, min(first + _PUTS_AT_ONCE, SCANNED_KEYS))
            await kv.txn(success=[put_key(b"scanned-%06d" % number, self.value) for number in numbers])
        yield

    def operation(self, session: ClusterClient) -> Operation:
        kv = KvClient(session)

        async def scan() -> None:
            found = 0
            async for _ in kv.scan("scanned-"):
                found += 1
            if found != SCANNED_KEYS:
                raise ClusterError(f"scanned {found} keys expected {SCANNED_KEYS}")

        return scan


class _Lock(_Work):
    """One lock for everybody: a session gives it back, and the next one that waits has it."""

    def operation(self, session: ClusterClient) -> Operation:
        locks = LocksClient(session)

        async def hold() -> None:
            async with locks.lock(_NAME) as held:
                if held.lost.is_set():
                    raise ClusterError("the lock was lost")

        return hold


class _Job(_Work):
    """A job is sent, the next one is received, which another worker may have sent, and acknowledged."""

    def operation(self, session: ClusterClient) -> Operation:
        queues = QueueClient(session)

        async def pass_on() -> None:
            await queues.send(_NAME, self.value)
            jobs = await queues.receive(_NAME, wait_s=_RECEIVE_LIMIT_S)
            if len(jobs) != 1:
                raise ClusterError(f"received {len(jobs)} jobs expected 1")
            await jobs[0].ack()

        return pass_on


_WORKS: Final[dict[StoreOperation, Callable[[bytes], StoreWork]]] = {
    StoreOperation.PUT: _Put,
    StoreOperation.GET: _Get,
    StoreOperation.TRANSACTION: _Transaction,
    StoreOperation.WATCH: _Watch,
    StoreOperation.SCAN: _Scan,
    StoreOperation.LOCK: _Lock,
    StoreOperation.JOB: _Job,
}
