"""A process that opens many sessions, holds them, and asks once on each of them.

Run it with `python -m trimaran.benchmarks.load.opening_process PARAMETERS`, the JSON of `OpeningLoad`. It talks to the
harness in lines, as `client_process` does. The end of standard input ends it.

    -> {"event": "ready"}                      <- go
    -> {"event": "progress", "replies": n}     how many are open, now and then
    -> {"event": "opened", ...}                <- go
    -> {"event": "settled", ...}               <- go
    -> {"event": "rested", ...}                <- go NANOSECONDS    when the leader was killed, by the monotonic clock
    -> {"event": "answered", "latencies": ..., ...}   since then    <- go
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvloop

from ...client import ClientConfig, ClusterClient, PasswordCredentials, SharedConnection
from ..machine.environment import tune_garbage_collector
from ..statistics.histogram import Histogram
from .lines import ProcessParameters, emit, next_go, open_commands, run_process

_SESSIONS_PER_LINE = 250


@dataclass(slots=True, frozen=True, kw_only=True)
class OpeningLoad(ProcessParameters):
    """What one process is told."""

    endpoints: list[str]
    session_count: int
    at_once: int
    """Sessions that are being opened at a time."""
    connect_timeout_s: float
    is_shared: bool = False
    """Whether the sessions share one connection to each member."""
    principal: str = ""
    """Who all sessions are, where the cluster asks for passwords."""
    secret: str = ""


async def run(load: OpeningLoad) -> None:
    """Open the sessions, hold them, ask on each."""
    commands = await open_commands()
    tune_garbage_collector()
    emit("ready")
    await next_go(commands)
    begin_s = time.process_time()
    async with _opened(load) as clients:
        gc.freeze()  # as in a process that has tens of thousands of objects for good
        emit("opened", cpu_s=time.process_time() - begin_s, leader_member_id=clients[0].leader_member_id)
        await next_go(commands)
        emit("settled", cpu_s=time.process_time() - begin_s)
        await next_go(commands)
        emit("rested", cpu_s=time.process_time() - begin_s)
        killed_ns = int(await next_go(commands))
        asked_s = time.process_time()
        latencies = Histogram()

        async def ask(client: ClusterClient) -> None:
            await client.request(b"x" * 32)
            latencies.record_all([time.monotonic_ns() - killed_ns])

        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(ask(client))
        emit("answered", latencies=latencies.to_json(), cpu_s=time.process_time() - asked_s)
        await next_go(commands)


@asynccontextmanager
async def _opened(load: OpeningLoad) -> AsyncIterator[list[ClusterClient]]:
    """Open the sessions, and close them in the end, all side by side."""
    config = ClientConfig(
        endpoints=tuple(load.endpoints),
        connect_timeout_s=load.connect_timeout_s,
        client_info="benchmark",
        credentials=PasswordCredentials(load.principal, load.secret) if load.principal else b"",
    )
    gate, clients = asyncio.Semaphore(load.at_once), list[ClusterClient]()
    shared = SharedConnection(config)

    async def open_one() -> None:
        async with gate:
            clients.append(await (shared.open_session() if load.is_shared else ClusterClient.connect(config=config)))
            if not len(clients) % _SESSIONS_PER_LINE:
                emit("progress", replies=len(clients))

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(load.session_count):
                tasks.create_task(open_one())
        yield clients
    finally:
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(client.aclose())
        await shared.aclose()


if __name__ == "__main__":
    run_process(lambda: uvloop.run(run(OpeningLoad.from_json(sys.argv[1]))))
