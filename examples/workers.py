"""Workers on the ready-made services: no service of one's own, and each order is counted once, though processes die.

    trimaran up queue kv locks &
    python examples/workers.py 127.0.0.1:9000 &     # as many as you like; kill any of them
    python examples/workers.py 127.0.0.1:9000

One worker plans: the one that holds the lock. If it dies, another one goes on, and sends again what may have been sent:
the key of a message makes that nothing. Each worker takes jobs. A job may be delivered twice, if its worker dies at the
wrong moment, so its effect and its number are written in one transaction, which a second delivery finds done.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Final

from trimaran.client.ready_made import KvClient, LocksClient, QueueClient, QueueJob
from trimaran.service_api.ready_made.kv import KvConflictError

ORDER_COUNT: Final = 100
QUEUE: Final = "orders"


class Worker:
    """One process: it works, and plans while it holds the lock."""

    def __init__(self, queues: QueueClient, kv: KvClient, locks: LocksClient) -> None:
        """Take clients with a session each: two of them wait for events of their own."""
        self._queues, self._kv, self._locks = queues, kv, locks

    async def run(self) -> int:
        """Work until every order is counted; returns the sum of all orders."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            planning = tasks.create_task(self._plan())
            working = tasks.create_task(self._queues.work(QUEUE, self._count, concurrency=4, lease_s=5, stop=stop))
            await self._wait_for_all()
            stop.set()
            await working
            planning.cancel()
        return await self._number("sum")

    async def _plan(self) -> None:
        """Send the orders, as long as this is the worker that plans."""
        async with self._locks.lock("planner", lease_s=3) as held:
            for number in range(1, ORDER_COUNT + 1):
                if held.lost.is_set():
                    return
                await self._queues.send(QUEUE, str(number), key=f"order-{number}")

    async def _count(self, job: QueueJob) -> None:
        """Add an order to the sum. Any other error than a conflict has the queue deliver the job again, later."""
        while True:
            with suppress(KvConflictError):  # another worker has counted meanwhile
                return await self._add(int(job.body))

    async def _add(self, order: int) -> None:
        async with self._kv.transaction() as change:
            if await change.get(f"done/{order}") is not None:
                return
            for key, amount in (("sum", order), ("count", 1)):
                change.put(key, str(int(await change.get(key) or 0) + amount))
            change.put(f"done/{order}", "")

    async def _wait_for_all(self) -> None:
        async with self._kv.watch("count") as changes:
            if await self._number("count") < ORDER_COUNT:
                async for change in changes:
                    if int(change.value or 0) == ORDER_COUNT:
                        return

    async def _number(self, key: str) -> int:
        return int(await self._kv.get(key) or 0)


async def main(endpoints: list[str]) -> None:
    """Run one worker."""
    async with (
        QueueClient.connect(endpoints) as queues,
        KvClient.connect(endpoints) as kv,
        LocksClient.connect(endpoints) as locks,
    ):
        print("sum of all orders:", await Worker(queues, kv, locks).run())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["127.0.0.1:9000"]))
