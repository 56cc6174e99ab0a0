"""A client process of the store: sessions, and in each so many operations in flight, in a closed loop.

Run as a module with the JSON of `StoreClientParameters`; it talks to the harness in lines, as
`trimaran.benchmarks.load.client_process` does: "ready", then "go", then "result". It does what an application does, in
tasks: `store_works`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import uvloop

from ...client import ClusterClient
from ...service_api.errors import ClusterTimeoutError
from ..load.coordination import all_events, all_go, share, spawn_clients
from ..load.lines import ProcessParameters, emit, next_go, open_commands, run_process
from ..load.sessions import CONNECTING_LIMIT, SESSIONS_PER_PROCESS
from ..machine.environment import tune_garbage_collector
from ..rig.processes import ProcessGroup
from ..statistics.histogram import Histogram
from .peer import Measured, StoreOperation
from .store_works import Operation, make_work

TIME_LIMIT_S: Final = 120.0
_PROCESSES: Final = 2
"""That many sessions are shared out among."""


@dataclass(slots=True, frozen=True, kw_only=True)
class StoreClientParameters(ProcessParameters):
    """What one load is."""

    endpoints: list[str]
    operation: StoreOperation
    sessions: int
    inflight: int
    """Operations in flight in each session."""
    operations: int
    payload: int

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` returned."""
        found = json.loads(text)
        return cls(**found | {"operation": StoreOperation(found["operation"])})


class _Load:
    """Does operations until all are done; each worker has one in flight."""

    def __init__(self, operations: int) -> None:
        self._left = operations
        self.latencies_ns = array("q")

    async def run(self, operate: Operation) -> None:
        """Do one operation after the other.

        Raises:
            ClusterError: an answer is wrong.
        """
        while self._left > 0:
            self._left -= 1
            begin_ns = time.perf_counter_ns()
            await operate()
            self.latencies_ns.append(time.perf_counter_ns() - begin_ns)


async def _run(parameters: StoreClientParameters) -> None:
    work = make_work(parameters.operation, parameters.payload)
    load = _Load(parameters.operations)
    commands = await open_commands()
    async with asyncio.timeout(TIME_LIMIT_S), _connected(parameters) as (spare, *sessions), work.begun(spare):
        operations = [work.operation(session) for session in sessions]
        await _do_each(operations)
        tune_garbage_collector()
        emit("ready")
        await next_go(commands)
        before, begin_ns = os.times(), time.monotonic_ns()
        async with asyncio.TaskGroup() as workers:
            for operate in operations:
                for _ in range(parameters.inflight):
                    workers.create_task(load.run(operate))
        end_ns, after = time.monotonic_ns(), os.times()
        latencies = Histogram()
        latencies.record_all(load.latencies_ns)
        cpu_s = after.user + after.system - before.user - before.system
        emit("result", started_ns=begin_ns, ended_ns=end_ns, cpu_s=cpu_s, latencies=latencies.to_json())


async def _do_each(operations: Sequence[Operation]) -> None:
    """Do each once: the first call of a session asks for the schemas of the service, and is not measured."""

    async def do(operate: Operation) -> None:
        await operate()

    async with asyncio.TaskGroup() as group:
        for operate in operations:
            group.create_task(do(operate))


@asynccontextmanager
async def _connected(parameters: StoreClientParameters) -> AsyncIterator[list[ClusterClient]]:
    """Open the sessions and a spare one, which is the first, and close them in the end, some at a time."""
    gate = asyncio.Semaphore(CONNECTING_LIMIT)
    sessions: list[ClusterClient] = []

    async def connect() -> None:
        async with gate:
            sessions.append(await ClusterClient.connect(parameters.endpoints, connect_timeout_s=TIME_LIMIT_S))

    async def close(session: ClusterClient) -> None:
        async with gate:
            await session.aclose()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(parameters.sessions + 1):
                group.create_task(connect())
        yield sessions
    finally:
        async with asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(close(session))


def run_store_client(parameters: StoreClientParameters, directory: Path) -> Measured:
    """Run the load: one session in a process of its own, many in two, or as many as may open the files.

    Raises:
        ClusterError: it took too long. The errors of processes, which say what each printed last, come in a group.
    """
    return asyncio.run(_run_clients(parameters, directory))


async def _run_clients(parameters: StoreClientParameters, directory: Path) -> Measured:
    sessions = parameters.sessions
    count = min(sessions, max(_PROCESSES, -(-sessions // SESSIONS_PER_PROCESS)))
    shared = [
        replace(
            parameters,
            sessions=share(sessions, count, index),
            operations=share(parameters.operations, count, index),
        )
        for index in range(count)
    ]
    try:
        with ProcessGroup() as group:
            async with (
                asyncio.timeout(TIME_LIMIT_S + 60),
                spawn_clients(
                    group, shared, directory=directory, name="store-client", module="peers.store_client"
                ) as clients,
            ):
                await all_events(clients, "ready")
                all_go(clients)
                results = await all_events(clients, "result")
                for client in clients:
                    await asyncio.to_thread(client.process.popen.wait)
    except TimeoutError as error:
        raise ClusterTimeoutError(f"benchmark not done: time_limit_s={TIME_LIMIT_S + 60:g}") from error
    latencies = Histogram()
    for result in results:
        latencies.add(Histogram.from_json(result["latencies"]))
    took_ns = max(result["ended_ns"] for result in results) - min(result["started_ns"] for result in results)
    return Measured.of(latencies, took_ns / 1e9, client_s=sum(result["cpu_s"] for result in results))


def main() -> None:
    """Run the process."""
    run_process(lambda: uvloop.run(_run(StoreClientParameters.from_json(sys.argv[1]))))


if __name__ == "__main__":
    main()
