"""A process that takes all it can get of one limit of the ready-made services, or of the cluster.

Run it with `python -m trimaran.benchmarks.load.greedy_process PARAMETERS`, the JSON of `GreedyLoad`. It talks to the
harness in lines, as `client_process` does. The end of standard input ends it.

    -> {"event": "ready"}          connected       <- go
       it takes, and asks for more where it is refused  <- go
    -> {"event": "measured", ...}  how often it was given something, how often refused, and why at first
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

import uvloop

from ...client import ClientConfig, ClusterClient
from ...client.ready_made import KvClient, LocksClient, QueueClient
from ...service_api.errors import ClusterError
from ...service_api.ready_made.kv import put_key
from ...service_api.typed import ServiceError
from ..machine.environment import tune_garbage_collector
from .lines import ProcessParameters, emit, next_go, open_commands, run_process

_CONNECT_TIMEOUT_S: Final = 30.0
_PAUSE_S: Final = 0.01
"""After a refusal, each task waits so long."""
_TTL_S: Final = 60.0
_OPERATIONS: Final = 120
_BODY: Final = b"z" * 100_000
_VALUE: Final = b"y" * 900_000

Take: TypeAlias = Callable[[int], Awaitable[object]]
"""Takes one more; each call has a number of its own."""


@dataclass(slots=True, frozen=True, kw_only=True)
class GreedyLoad(ProcessParameters):
    """The orders that the process is given."""

    endpoints: list[str]
    kind: str


class Greed:
    """The clients of one greedy process, and what they have got."""

    def __init__(self, endpoints: list[str], stack: AsyncExitStack) -> None:
        self._config = ClientConfig(
            endpoints=tuple(endpoints), connect_timeout_s=_CONNECT_TIMEOUT_S, client_info="benchmark"
        )
        self._stack = stack
        self._numbers = itertools.count(1)
        self.taken_count = self.refused_count = 0
        self.refusal = ""

    async def watches(self) -> Take:
        """Watch all keys, again and again."""
        kv = KvClient(await self._open())
        return lambda number: self._stack.enter_async_context(kv.watch(prefix=""))

    async def claims(self) -> Take:
        """Hold one lock more."""
        locks = LocksClient(await self._open())
        return lambda number: locks.acquire(f"lock-{number}")

    async def ttls(self) -> Take:
        """Put keys that expire, one by one, once it has as many as it gets."""
        kv = KvClient(await self._open())
        with suppress(ServiceError):
            while True:
                await self._put_many(kv, next(self._numbers))
                self.taken_count += _OPERATIONS
        return lambda number: kv.put(f"ttl/{number}", "x", ttl_s=_TTL_S)

    async def transactions(self) -> Take:
        """Put keys that expire, many in each transaction."""
        kv = KvClient(await self._open())
        return lambda number: self._put_many(kv, number)

    async def sessions(self) -> Take:
        """Open one session more."""
        return lambda number: self._open()

    async def queue(self) -> Take:
        """Fill queues that nobody receives from."""
        queue = QueueClient(await self._open())
        return lambda number: queue.send(f"queue-{number % 20}", _BODY)

    async def bulk(self) -> Take:
        """Write large values, as an honest client may."""
        kv = KvClient(await self._open())
        return lambda number: kv.put(f"bulk/{number % 64}", _VALUE)

    async def _put_many(self, kv: KvClient, number: int) -> None:
        await kv.txn([], [put_key(f"ttl/{number}/{each}", "x", ttl_s=_TTL_S) for each in range(_OPERATIONS)])

    async def repeat(self, take: Take) -> None:
        """Take without end; where that is refused, ask again a little later."""
        while True:
            try:
                await take(next(self._numbers))
                self.taken_count += 1
            except (ServiceError, ClusterError) as error:
                self.refused_count += 1
                self.refusal = self.refusal or str(error)
                await asyncio.sleep(_PAUSE_S)

    async def _open(self) -> ClusterClient:
        return await self._stack.enter_async_context(ClusterClient.connect(config=self._config))


GREEDS: Final[dict[str, tuple[Callable[[Greed], Awaitable[Take]], int]]] = {
    "watches": (Greed.watches, 1),
    "claims": (Greed.claims, 64),
    "ttls": (Greed.ttls, 64),
    "sessions": (Greed.sessions, 32),
    "transactions": (Greed.transactions, 16),
    "queue": (Greed.queue, 8),
    "bulk": (Greed.bulk, 4),
}
"""By kind: how it takes, and in how many tasks at once."""


async def run(load: GreedyLoad) -> None:
    """Connect, take until told to stop, and tell what came of it."""
    commands = await open_commands()
    tune_garbage_collector()
    make, task_count = GREEDS[load.kind]
    async with AsyncExitStack() as stack:
        greed = Greed(load.endpoints, stack)
        take = await make(greed)
        emit("ready")
        await next_go(commands)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(greed.repeat(take)) for _ in range(task_count)]
            await next_go(commands)
            for each in running:
                each.cancel()
        emit("measured", taken=greed.taken_count, refused=greed.refused_count, refusal=greed.refusal)
        await next_go(commands)


if __name__ == "__main__":
    run_process(lambda: uvloop.run(run(GreedyLoad.from_json(sys.argv[1]))))
