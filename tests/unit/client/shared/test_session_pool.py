"""A pool over one shared connection: a cluster in memory, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.unit.client.shared.test_shared_connection import connection_counts, session_count
from tests.unit.cluster.testing.counting import Counter
from trimaran import ClusterClient, ConnectTimeoutError, RejectedError, SessionPool
from trimaran.client.ready_made import CountersClient, ElectionClient, KvClient, LocksClient, QueueClient
from trimaran.cluster.testing import MemoryCluster
from trimaran.service_api.errors import ClusterTimeoutError, ConfigurationError, SessionClosedError
from trimaran.service_api.ready_made.counters import CounterService
from trimaran.service_api.ready_made.kv import KvService
from trimaran.service_api.ready_made.locks import LockService
from trimaran.service_api.ready_made.queue import QueueService


@pytest.fixture
def memory() -> Iterator[MemoryCluster]:
    with MemoryCluster(Counter) as cluster:
        cluster.run(cluster.wait_for_leader())
        yield cluster


@pytest.fixture(scope="module")
def ready() -> Iterator[MemoryCluster]:
    with MemoryCluster([KvService, LockService, QueueService, CounterService], members=1) as cluster:
        cluster.run(cluster.wait_for_leader())
        yield cluster


def run_with_pool(
    memory: MemoryCluster, test: Callable[[SessionPool], Awaitable[None]], *, size: int = 2, **settings: Any
) -> None:
    async def run() -> None:
        async with await memory.pool(size=size, **settings) as pool:
            await test(pool)

    memory.run(run())


# --- requests


def test_requests_of_all_callers_share_one_session_and_run_once(memory: MemoryCluster) -> None:
    async def test(pool: SessionPool) -> None:
        replies = await asyncio.gather(*(pool.request(b"1") for _ in range(64)))
        assert sorted(map(int, replies)) == [*range(1, 65)]
        assert (session_count(memory), connection_counts(memory)) == (1, [1, 1, 1])
        assert (await pool.query(b"")).payload == b"64"
        assert (await pool.query(b"", max_staleness_s=10, read_from=2)).member_id == 2

    run_with_pool(memory, test)


def test_requests_need_no_session_of_those_that_are_lent(memory: MemoryCluster) -> None:
    async def test(pool: SessionPool) -> None:
        async with pool.session(), pool.session():
            assert await pool.request(b"1") == b"1"

    run_with_pool(memory, test)


def test_a_session_that_has_ended_is_replaced(memory: MemoryCluster) -> None:
    async def test(pool: SessionPool) -> None:
        async with pool.session() as first:
            assert await first.request(b"1") == b"1"
        memory.partition(["client"], [0, 1, 2])
        await memory.advance(20)
        assert first.is_closed
        with pytest.raises(RejectedError, match="timeout_s=1"):
            await pool.request(b"1", timeout_s=1)
        memory.heal()
        assert await pool.request(b"1") == b"2"
        async with pool.session() as second:
            assert second.cluster_session_id != first.cluster_session_id
            assert await second.request(b"1") == b"3"

    run_with_pool(memory, test, new_leader_timeout_s=2.0)


def test_sessions_that_reopen_by_themselves_stay_in_the_pool(memory: MemoryCluster) -> None:
    async def test(pool: SessionPool) -> None:
        async with pool.session() as first:
            pass
        memory.partition(["client"], [0, 1, 2])
        await memory.advance(20)
        waiting = asyncio.ensure_future(pool.request(b"1"))
        await asyncio.sleep(1)
        memory.heal()
        assert await waiting == b"1"
        async with pool.session() as second:
            assert second is first
            assert await second.request(b"1") == b"2"

    run_with_pool(memory, test, reopen=True, new_leader_timeout_s=2.0)


def test_requests_run_once_though_the_leader_dies(memory: MemoryCluster) -> None:
    async def test(pool: SessionPool) -> None:
        asked = [asyncio.ensure_future(pool.request(b"1")) for _ in range(100)]
        await asyncio.sleep(0)
        dead = memory.kill_leader()
        assert sorted(map(int, await asyncio.gather(*asked))) == [*range(1, 101)]
        await memory.restart(dead)

    run_with_pool(memory, test)


# --- lending


def test_a_session_is_lent_to_one_caller_at_a_time_in_the_order_in_which_they_came(memory: MemoryCluster) -> None:
    async def test(pool: SessionPool) -> None:
        lent: list[tuple[int, ClusterClient]] = []
        in_use: list[ClusterClient] = []

        async def use(number: int) -> None:
            async with pool.session() as cluster:
                lent.append((number, cluster))
                assert cluster not in in_use
                in_use.append(cluster)
                await cluster.request(b"1")
                in_use.remove(cluster)

        await asyncio.gather(*(use(number) for number in range(10)))
        assert [number for number, _ in lent] == [*range(10)]
        assert len({cluster for _, cluster in lent}) == 2
        assert (pool.idle_count, session_count(memory)) == (2, 3)
        assert await pool.request(b"0") == b"10"

    run_with_pool(memory, test)


def test_a_session_is_lent_again_when_a_cancelled_request_has_its_outcome(memory: MemoryCluster) -> None:
    async def test(pool: SessionPool) -> None:
        async with pool.session() as cluster:
            asking = asyncio.ensure_future(cluster.request(b"1"))
            await asyncio.sleep(0)
            memory.kill_leader()
            asking.cancel()
            await asyncio.wait({asking})
            assert cluster.outstanding_request_count == 1
        assert pool.idle_count == 0
        with pytest.raises(ClusterTimeoutError, match=r"timeout_s=0\.001 size=1"):
            async with pool.session(timeout_s=0.001):
                pass
        async with pool.session() as cluster:
            assert cluster.outstanding_request_count == 0
            assert await cluster.request(b"1") == b"2"

    run_with_pool(memory, test, size=1)


def test_messages_for_the_caller_before_are_not_those_of_the_next(memory: MemoryCluster) -> None:
    async def test(pool: SessionPool) -> None:
        async with pool.session() as cluster:
            await cluster.offer(b"1")
        await asyncio.sleep(1)
        async with pool.session() as same:
            assert same is cluster
            await same.offer(b"10")
            assert (await anext(same.egress())).payload == b"11"

    run_with_pool(memory, test, size=1)


def test_a_session_that_somebody_still_reads_is_not_lent_again(memory: MemoryCluster) -> None:
    async def test(pool: SessionPool) -> None:
        async with pool.session() as first:
            reading = asyncio.ensure_future(anext(first.egress(), None))
            await asyncio.sleep(0)
        async with pool.session() as second:
            assert first.is_closed
            assert second is not first
            await second.offer(b"1")
            assert (await anext(second.egress())).payload == b"1"
        assert await reading is None

    run_with_pool(memory, test, size=1)


def test_a_session_that_a_caller_has_closed_leaves_its_place(memory: MemoryCluster) -> None:
    async def test(pool: SessionPool) -> None:
        for number in range(1, 4):
            async with pool.session() as cluster:
                assert await cluster.request(b"1") == b"%d" % number
                await cluster.aclose()
        assert (pool.idle_count, pool.shared.session_count) == (0, 1)

    run_with_pool(memory, test, size=1)


def test_a_caller_that_gives_up_takes_no_place(memory: MemoryCluster) -> None:
    async def test(pool: SessionPool) -> None:
        async with pool.session():
            impatient = asyncio.ensure_future(_enter(pool))
            await asyncio.sleep(0)
            impatient.cancel()
            await asyncio.wait({impatient})
        opening = asyncio.ensure_future(_enter(pool))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait({opening})
        async with pool.session(timeout_s=1) as cluster:
            assert await cluster.request(b"1") == b"1"

    run_with_pool(memory, test, size=1)


async def _enter(pool: SessionPool) -> None:
    async with pool.session():
        pass


# --- the pool itself


def test_closing_ends_who_has_and_who_waits_for_a_session(memory: MemoryCluster) -> None:
    async def test() -> None:
        pool = await memory.pool(size=1)
        async with pool.session() as cluster:
            waiting = [asyncio.ensure_future(_enter(pool)) for _ in range(3)]
            await asyncio.sleep(0)
            await pool.aclose()
            assert cluster.is_closed
            for each in waiting:
                with pytest.raises(SessionClosedError):
                    await each
        for call in (pool.request(b"1"), pool.query(b""), _enter(pool)):
            with pytest.raises(SessionClosedError):
                await call
        await pool.aclose()
        await asyncio.sleep(1)
        assert (session_count(memory), connection_counts(memory)) == (0, [0, 0, 0])

    memory.run(test())


def test_closing_waits_for_no_request_of_a_cancelled_caller(memory: MemoryCluster) -> None:
    async def test() -> None:
        pool = await memory.pool(size=1)
        async with pool.session() as cluster:
            memory.partition(["client"], [0, 1, 2])
            asked = asyncio.ensure_future(cluster.request(b"1"))
            await asyncio.sleep(0.01)
            asked.cancel()
            await asyncio.wait({asked})
        await pool.aclose()
        assert pool._settling == {}
        memory.heal()

    memory.run(test())


def test_a_connect_fails_as_that_of_every_client(memory: MemoryCluster) -> None:
    async def test() -> None:
        with pytest.raises(ConnectTimeoutError):
            await memory.pool(endpoints=("127.0.0.1:1",), connect_timeout_s=1.0)
        with pytest.raises(ConfigurationError, match="size=0"):
            SessionPool.connect("127.0.0.1:9000", size=0)

    memory.run(test())


# --- clients of services


def test_clients_of_every_service_share_one_connection(ready: MemoryCluster) -> None:
    """Each has its own session, so all may wait for events at once."""

    async def test() -> None:
        async with ready.share() as shared:
            async with (
                shared.open_client(KvClient) as kv,
                shared.open_client(LocksClient, client_info="locks") as locks,
                shared.open_client(ElectionClient) as elections,
                shared.open_client(QueueClient) as queues,
                shared.open_client(CountersClient) as counters,
                kv.watch(prefix="a") as changes,
            ):
                held = await locks.acquire("a")
                receiving = asyncio.ensure_future(queues.receive("mail", wait_s=5))
                changed = asyncio.ensure_future(anext(changes))
                campaigning = asyncio.ensure_future(elections.campaign("a"))
                await asyncio.sleep(0.01)
                await kv.put("a1", "1")
                await queues.send("mail", "hello")
                await held.release()
                assert (await changed).key == b"a1"
                assert [job.body for job in await receiving] == [b"hello"]
                assert (await campaigning).token > held.token
                assert await counters.add("visits") == 1
                assert (connection_counts(ready), shared.session_count) == ([1], 5)
            assert shared.session_count == 0

    ready.run(test())


def test_a_pool_lends_clients_of_every_service_over_one_session(ready: MemoryCluster) -> None:
    """One after the other, with nothing left of the one before."""

    async def test(pool: SessionPool) -> None:
        for number in range(2):
            async with pool.client(KvClient) as kv, kv.watch(prefix="b") as changes:
                await kv.put("b1", str(number))
                assert (await anext(changes)).value == str(number).encode()
                await kv.put("b1", "unread")
            async with pool.client(LocksClient) as locks, locks.lock("b") as lock:
                assert not lock.lost.is_set()
            async with pool.client(QueueClient) as queues:
                await queues.send("mail", "hello")
                (job,) = await queues.receive("mail", wait_s=5)
                await job.ack()
            async with pool.client(CountersClient) as counters:
                assert await counters.add("lent") == number + 1
        assert pool.shared.session_count == 2

    run_with_pool(ready, test, size=1)


def test_a_pool_finds_the_service_of_a_client_once_for_each_session(ready: MemoryCluster) -> None:
    async def test(pool: SessionPool) -> None:
        async with pool.client(CountersClient) as first:
            await first.add("found")
        async with pool.client(CountersClient) as second:
            assert second is first

    run_with_pool(ready, test, size=1)
