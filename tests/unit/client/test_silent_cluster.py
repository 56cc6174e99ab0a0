"""A cluster whose processes stand still and keep their connections, or without a leader: real members, virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

from trimaran import ClusterClient
from trimaran.client.ready_made import KvClient, LocksClient, QueueClient
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.testing import MemoryCluster
from trimaran.cluster.testing.simulation.world.quiet import quiet_log
from trimaran.service_api.errors import ClusterError, SessionClosedError
from trimaran.service_api.ready_made.kv import KvService
from trimaran.service_api.ready_made.locks import LockService
from trimaran.service_api.ready_made.queue import QueueService

END_S = 7.5 + 9.0 + 1.0
"""A leader's silence, the wait for another leader, and the next look."""


@pytest.fixture
def memory() -> Iterator[MemoryCluster]:
    with quiet_log(), MemoryCluster([KvService, LockService, QueueService]) as cluster:
        cluster.run(cluster.wait_for_leader())
        yield cluster


def pause(memory: MemoryCluster) -> None:
    """Stop every member's process as SIGSTOP does."""
    for member_id in [*memory._cluster.members]:
        memory._cluster.pause(member_id)


def resume(memory: MemoryCluster) -> None:
    for member_id in [*memory._cluster.members]:
        memory._cluster.resume(member_id)


async def connect(memory: MemoryCluster, is_shared: bool) -> ClusterClient:
    return await memory.share().connect() if is_shared else await memory.connect()


async def watch(client: ClusterClient) -> None:
    async with KvClient(client).watch() as changes:
        await anext(changes)


async def work(client: ClusterClient) -> None:
    await QueueClient(client).work("a", lambda job: asyncio.sleep(0))


async def hold(client: ClusterClient) -> None:
    held = await LocksClient(client).acquire("a")
    await held.lost.wait()
    raise SessionClosedError("lost")


async def call(client: ClusterClient) -> None:
    kv = KvClient(client)
    await kv.put("a", "b")
    await asyncio.sleep(1)
    await kv.put("a", "c")


WAITS: list[Callable[[ClusterClient], Coroutine[Any, Any, None]]] = [watch, work, hold, call]


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("is_shared", [False, True])
def test_what_waits_for_a_cluster_that_stands_still_ends(
    memory: MemoryCluster, wait: Callable[[ClusterClient], Coroutine[Any, Any, None]], is_shared: bool
) -> None:
    async def test() -> None:
        client = await connect(memory, is_shared)
        waiting = asyncio.ensure_future(wait(client))
        await asyncio.sleep(0.5)
        pause(memory)
        async with asyncio.timeout(END_S):
            with pytest.raises(ClusterError):
                await waiting
        resume(memory)

    memory.run(test())


@contextlib.asynccontextmanager
async def watching(client: ClusterClient) -> AsyncIterator[None]:
    async with KvClient(client).watch():
        yield


@contextlib.asynccontextmanager
async def locked(client: ClusterClient) -> AsyncIterator[None]:
    async with LocksClient(client).lock("a"):
        yield


@pytest.mark.parametrize("block", [watching, locked])
def test_a_block_of_a_cluster_that_stands_still_is_left_a_second_after_a_cancel(
    memory: MemoryCluster, block: Callable[[ClusterClient], contextlib.AbstractAsyncContextManager[None]]
) -> None:
    async def test() -> None:
        client = await memory.connect()

        async def stay() -> None:
            async with block(client):
                await asyncio.sleep(1_000)

        staying = asyncio.ensure_future(stay())
        await asyncio.sleep(0.5)
        pause(memory)
        staying.cancel()
        await asyncio.wait({staying}, timeout=1.1)
        assert staying.cancelled()
        resume(memory)
        async with asyncio.timeout(5), block(client):  # what was left goes on by itself
            pass

    memory.run(test())


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("duration_s", [1.0, 6.0, 12.0])
def test_a_session_goes_on_after_a_stop_that_is_short_enough(
    memory: MemoryCluster, is_shared: bool, duration_s: float
) -> None:
    async def test() -> None:
        client = await connect(memory, is_shared)
        kv = KvClient(client)
        await kv.put("a", "1")
        pause(memory)
        await asyncio.sleep(duration_s)
        resume(memory)
        assert await kv.get("a") == b"1"
        assert await kv.put("a", "2") == 2

    memory.run(test())


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_session_outlives_a_suspended_cluster(memory: MemoryCluster, is_shared: bool) -> None:
    """Its leader reads no client meanwhile, and says that it runs."""

    async def test() -> None:
        client = await connect(memory, is_shared)
        kv = KvClient(client)
        await kv.put("a", "1")
        memory._order(ControlToggle.SUSPEND)
        await memory.advance(60)
        assert client.has_leader
        memory._order(ControlToggle.RESUME)
        async with asyncio.timeout(5):
            assert await kv.put("a", "2") == 2

    memory.run(test())


def test_a_leader_that_has_lost_its_followers_is_no_leader_to_wait_for(memory: MemoryCluster) -> None:
    """It runs, and its connections stand."""

    async def test() -> None:
        client = await memory.connect()
        kv = KvClient(client)
        await kv.put("a", "1")
        followers = [number for number in memory.services if number != memory.leader]
        waiting = asyncio.ensure_future(watch(client))
        await asyncio.sleep(0.5)
        memory.kill(*followers)
        async with asyncio.timeout(END_S):
            with pytest.raises(SessionClosedError, match="no leader"):
                await waiting

    memory.run(test())
