"""A client process of the key-value store: sessions, and in each so many operations in flight, in a closed loop.

Run as a module with the JSON of `KvClientParameters`; it prints one line of JSON. It does what an application does:
`await kv.put(key, value)` and `await kv.get(key)` in tasks.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Final

import uvloop

from trimaran.client import ClusterClient
from trimaran.client.ready_made.kv import KvClient
from trimaran.service_api.errors import ClusterError, first_leaf

from ..load.sessions import CONNECTING_LIMIT
from ..machine.environment import tune_garbage_collector
from .load_process import print_measured, run_load_process
from .peer import Measured, StoreOperation

TIME_LIMIT_S: Final = 120.0
_KEY: Final = b"trimaran-benchmark"


@dataclass(slots=True, frozen=True, kw_only=True)
class KvClientParameters:
    """What one load is."""

    endpoints: list[str]
    operation: StoreOperation
    sessions: int
    inflight: int
    """Operations in flight in each session."""
    operations: int
    payload: int


class _Load:
    """Does operations until all are done; each worker has one in flight."""

    def __init__(self, parameters: KvClientParameters) -> None:
        self._value = b"x" * parameters.payload
        self._operation = parameters.operation
        self._left = parameters.operations
        self.latencies_ns = array("q")

    async def work(self, client: KvClient) -> None:
        """Do one operation after the other.

        Raises:
            ClusterError: an answer is wrong.
        """
        operate = self._choose(client)
        while self._left > 0:
            self._left -= 1
            begin_ns = time.perf_counter_ns()
            await operate()
            self.latencies_ns.append(time.perf_counter_ns() - begin_ns)

    def _choose(self, client: KvClient) -> Callable[[], Awaitable[object]]:
        if self._operation is StoreOperation.PUT:
            return lambda: client.put(_KEY, self._value)

        async def get() -> None:
            found = await client.get(_KEY)
            if found != self._value:
                raise ClusterError(f"got {found!r} expected {len(self._value)} bytes of x")

        return get


async def _run(parameters: KvClientParameters) -> None:
    load = _Load(parameters)
    async with asyncio.timeout(TIME_LIMIT_S), _connected(parameters) as clients:
        await clients[0].put(_KEY, b"x" * parameters.payload)
        tune_garbage_collector()
        before, begin_ns = os.times(), time.perf_counter_ns()
        async with asyncio.TaskGroup() as workers:
            for client in clients:
                for _ in range(parameters.inflight):
                    workers.create_task(load.work(client))
        end_ns, after = time.perf_counter_ns(), os.times()
    print_measured(
        load.latencies_ns, count=parameters.operations, took_ns=end_ns - begin_ns, before=before, after=after
    )


@asynccontextmanager
async def _connected(parameters: KvClientParameters) -> AsyncIterator[list[KvClient]]:
    """Open the sessions, and close them in the end, some at a time."""
    gate = asyncio.Semaphore(CONNECTING_LIMIT)
    clients: list[KvClient] = []

    async def connect() -> None:
        async with gate:
            clients.append(KvClient(await ClusterClient.connect(parameters.endpoints, connect_timeout_s=TIME_LIMIT_S)))

    async def close(client: KvClient) -> None:
        async with gate:
            await client.cluster.aclose()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(parameters.sessions):
                group.create_task(connect())
        yield clients
    finally:
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(close(client))


def run_kv_client(parameters: KvClientParameters) -> Measured:
    """Run the load in a process of its own.

    Raises:
        ClusterError: it failed; the error says what it printed last.
    """
    return run_load_process("kv_client", asdict(parameters), timeout_s=TIME_LIMIT_S + 60, what="the key-value store")


def main() -> None:
    """Run the process; a failure is one line on standard error and exit status 1."""
    parameters = json.loads(sys.argv[1])
    try:
        uvloop.run(_run(KvClientParameters(**parameters | {"operation": StoreOperation(parameters["operation"])})))
    except (ClusterError, TimeoutError, BaseExceptionGroup) as error:
        print(f"client of the key-value store: {first_leaf(error)!r}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
