"""Many sessions over one connection to each member: a cluster in memory, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.unit.cluster.testing.counting import Counter
from trimaran.client import ClusterClient, ConnectRejectedError, PasswordCredentials, SharedConnection
from trimaran.cluster.testing import MemoryCluster
from trimaran.service_api import LocalProtocolError, SessionClosedError
from trimaran.service_api.types import MemberId


@contextmanager
def made() -> Iterator[MemoryCluster]:
    with MemoryCluster(Counter) as cluster:
        cluster.run(cluster.wait_for_leader())
        yield cluster


async def opened(shared: SharedConnection, count: int) -> list[ClusterClient]:
    return [*await asyncio.gather(*(shared.open_session() for _ in range(count)))]


def connection_counts(memory: MemoryCluster) -> list[int]:
    """How many clients' connections each member has."""
    members = memory._cluster.members.values()
    return [len(member.node.parts.links.ingress.connections) for member in members if member.node is not None]


def session_count(memory: MemoryCluster) -> int:
    """How many sessions the leader has."""
    leader = memory.leader
    assert leader is not None
    node = memory._cluster.members[MemberId(leader)].node
    assert node is not None
    return len(node.module.sessions.sessions)


def test_sessions_share_one_connection_to_each_member_and_nothing_else() -> None:
    async def test() -> None:
        async with memory.share() as shared:
            clients = await opened(shared, 40)
            replies = await asyncio.gather(*(client.request(b"1") for client in clients))
            assert sorted(map(int, replies)) == [*range(1, 41)]
            assert len({client.cluster_session_id for client in clients}) == 40
            assert connection_counts(memory) == [1, 1, 1]
            assert (shared.session_count, session_count(memory)) == (40, 40)
        assert shared.session_count == 0
        await asyncio.sleep(1)
        assert (session_count(memory), connection_counts(memory)) == (0, [0, 0, 0])

    with made() as memory:
        memory.run(test())


def test_each_session_gets_its_own_egress() -> None:
    async def test() -> None:
        async with memory.share() as shared:
            clients = await opened(shared, 5)
            totals = []
            for number, client in enumerate(clients):
                await client.offer(b"%d" % 10**number)
                totals.append((await anext(aiter(client.egress()))).payload)
            assert totals == [b"1", b"11", b"111", b"1111", b"11111"]
            assert sum(client.dropped_egress_count for client in clients) == 0

    with made() as memory:
        memory.run(test())


def test_requests_run_once_though_the_leader_dies() -> None:
    async def test() -> None:
        async with memory.share() as shared:
            clients = await opened(shared, 30)
            tasks = [asyncio.create_task(client.request(b"1")) for client in clients for _ in range(5)]
            await asyncio.sleep(0)
            dead = memory.kill_leader()
            replies = await asyncio.gather(*tasks)
            assert sorted(map(int, replies)) == [*range(1, 151)]
            assert connection_counts(memory) == [1, 1]
            assert all(not client.is_closed for client in clients)
            await memory.restart(dead)
            assert await clients[0].request(b"1") == b"151"
            await memory.assert_identical()

    with made() as memory:
        memory.run(test())


def test_idle_sessions_live_by_one_keep_alive() -> None:
    async def test() -> None:
        async with memory.share() as shared:
            clients = await opened(shared, 10)
            await asyncio.sleep(60)
            assert [client.is_closed for client in clients] == [False] * 10
            assert int(await clients[9].request(b"1")) == 1

    with made() as memory:
        memory.run(test())


def test_sessions_of_a_connection_that_is_gone_time_out() -> None:
    """Not when they are closed one by one, but when the whole process is away."""

    async def test() -> None:
        shared = memory.share()
        clients = await opened(shared, 10)
        for link in [*shared._links.values()]:
            assert link._connection is not None
            link._connection.abort()
            link.on_lost(0, "cut")
            link._is_closed = True
        for client in clients:
            client._conductor.protocol.abort()
        await asyncio.sleep(15)
        assert session_count(memory) == 0

    with made() as memory:
        memory.run(test())


def test_a_session_that_is_dropped_without_a_word_is_closed() -> None:
    """The connection stays, and the cluster would think it alive for ever."""

    async def test() -> None:
        async with memory.share() as shared:
            first, second = await opened(shared, 2)
            first._conductor.abort()
            await asyncio.sleep(1)
            assert (session_count(memory), shared.session_count) == (1, 1)
            assert await second.request(b"1") == b"1"

    with made() as memory:
        memory.run(test())


@pytest.mark.parametrize("after_s", [0, 0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01])
def test_a_session_whose_connect_was_given_up_is_closed(after_s: float) -> None:
    async def test() -> None:
        async with memory.share() as shared:
            first = await shared.open_session()
            impatient = asyncio.ensure_future(_entered(shared))
            await asyncio.sleep(after_s)
            if not impatient.cancel():
                await (await impatient).aclose()
            await asyncio.sleep(2)
            assert session_count(memory) == 1
            assert await first.request(b"1") == b"1"

    with made() as memory:
        memory.run(test())


async def _entered(shared: SharedConnection) -> ClusterClient:
    return await shared.open_session()


def test_who_does_not_read_egress_loses_its_own_session_alone() -> None:
    async def test() -> None:
        async with memory.share(egress_queue_limit=4) as shared:
            deaf, other = await opened(shared, 2)
            for _ in range(10):
                await deaf.offer(b"1")
            await asyncio.sleep(1)
            with pytest.raises(SessionClosedError, match=r"egress\(\).*egress_queue_limit=4"):
                await deaf.request(b"1")
            assert int(await other.request(b"1")) >= 10
            assert session_count(memory) == 1

    with made() as memory:
        memory.run(test())


def test_a_session_that_the_service_closes_harms_no_other() -> None:
    async def test() -> None:
        async with memory.share() as shared:
            first, second = await opened(shared, 2)
            await first.offer(b"bye")
            with pytest.raises(SessionClosedError):
                await anext(aiter(first.egress()))
            assert await second.request(b"1") == b"1"

    with made() as memory:
        memory.run(test())


def test_a_connection_carries_so_many_sessions_and_no_more() -> None:
    async def test() -> None:
        async with memory.share() as shared:
            clients = await opened(shared, 3)
            with pytest.raises(ConnectRejectedError, match="sessions=3 limit=3"):
                await shared.open_session()
            await clients[0].aclose()
            again = await shared.open_session()
            assert await again.request(b"1") == b"1"
            assert await clients[2].request(b"1") == b"2"

    with made() as memory:
        for member in memory._cluster.members.values():
            assert member.node is not None
            ctx = member.node.module.ctx
            ctx.config = replace(ctx.config, connection_session_limit=3)
        memory.run(test())


def test_a_greedy_session_does_not_starve_a_modest_one() -> None:
    """It has megabytes to send; the other's request waits for a turn, not for all of that."""

    async def test() -> None:
        async with memory.share() as shared:
            greedy, modest = await opened(shared, 2)
            waiting = [asyncio.create_task(greedy.request(b"%0900d" % 1)) for _ in range(4_000)]
            await asyncio.sleep(0)
            total = int(await modest.request(b"0"))
            assert total < 2_000
            assert len(await asyncio.gather(*waiting)) == 4_000

    with made() as memory:
        memory.run(test())


def test_who_a_session_is_goes_with_the_session() -> None:
    async def test() -> None:
        async with memory.share() as shared:
            async with shared.open_session(credentials=b"anybody", client_info="one") as client:
                assert await client.request(b"1") == b"1"
            async with shared.open_session(credentials=PasswordCredentials("ops", "secret")) as client:
                assert await client.request(b"1") == b"2"

    with made() as memory:
        memory.run(test())


def test_a_closed_connection_opens_no_session_and_one_loop_owns_it() -> None:
    async def test() -> None:
        shared = memory.share()
        await shared.open_session()
        await shared.aclose()
        await shared.aclose()
        with pytest.raises(LocalProtocolError, match=r"shared connection.*closed"):
            await shared.open_session()

    with made() as memory:
        memory.run(test())


def test_who_waits_for_a_session_when_the_connection_is_closed_is_told_so() -> None:
    """The caller did nothing wrong: somebody else has closed it, meanwhile."""

    async def test() -> None:
        for member_id in (0, 1):
            memory.kill(member_id)
        shared = memory.share(connect_timeout_s=60.0)
        waiting = [asyncio.ensure_future(shared.open_session()) for _ in range(3)]
        await asyncio.sleep(0.1)

        await shared.aclose()

        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in found] == [SessionClosedError] * 3, found
        assert all("closed" in str(each) for each in found)

    with made() as memory:
        memory.run(test())


def test_queries_and_snapshots_work_over_it() -> None:
    async def test() -> None:
        async with memory.share() as shared:
            clients = await opened(shared, 3)
            await clients[1].request(b"7")
            answers = [await client.query(b"") for client in clients]
            stale = [
                await client.query(b"", max_staleness_s=10, read_from=number) for number, client in enumerate(clients)
            ]
            assert {answer.payload for answer in answers} == {b"7"}
            assert {answer.member_id for answer in stale} == {0, 1, 2}

    with made() as memory:
        memory.run(test())


def test_a_drain_waits_for_requests_whose_callers_were_cancelled() -> None:
    """It has an outcome all the same: the service runs it."""

    async def test() -> None:
        async with memory.share() as shared:
            first, second = await opened(shared, 2)
            before, during = (asyncio.ensure_future(first.request(b"1")) for _ in range(2))
            await asyncio.sleep(0)
            before.cancel()
            await asyncio.sleep(0)
            draining = asyncio.ensure_future(first.drain())
            await asyncio.sleep(0)
            during.cancel()
            await asyncio.sleep(0.0001)
            assert not draining.done()
            await draining
            assert (await second.query(b"", max_staleness_s=0, read_from=memory.leader)).payload == b"2"

    with made() as memory:
        memory.run(test())


def test_a_drain_does_not_wait_for_cancelled_requests_that_were_never_sent() -> None:
    async def test() -> None:
        async with memory.share() as shared:
            (client,) = await opened(shared, 1)
            memory.partition(["client"], [0, 1, 2])
            await memory.advance(8)
            assert not client.has_leader
            unsent = asyncio.ensure_future(client.request(b"1"))
            await asyncio.sleep(0)
            draining = asyncio.ensure_future(client.drain())
            await asyncio.sleep(0)
            unsent.cancel()
            memory.heal()
            await draining
            assert await client.request(b"0") == b"0"

    with made() as memory:
        memory.run(test())
