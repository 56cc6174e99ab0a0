"""Subscriptions on a cluster in memory, while members die, restart, prune and refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from trimaran import ClientSession, ClusteredService, ConfigurationError, SnapshotPublication
from trimaran.cluster.subscriptions import (
    EntryKind,
    LogEntry,
    NoEntryAtPositionError,
    PositionBeyondEndError,
    PositionPrunedError,
    ServedBy,
    Start,
    Subscription,
    SubscriptionRefusedError,
    SubscriptionTimeoutError,
    subscribe,
)
from trimaran.cluster.testing import MemoryCluster, memory_cluster
from trimaran.cluster.testing.memory_cluster import _MTU_LENGTH_BYTES
from trimaran.cluster.testing.simulation.cluster import Settings
from trimaran.service_api.access.identity import STRANGER
from trimaran.service_api.errors import LocalProtocolError


class Echo(ClusteredService):
    """Answers a request with itself."""

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        return bytes(payload)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        pass

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await snapshot.offer(b"none")


@contextmanager
def made(**settings: Any) -> Iterator[MemoryCluster]:
    with MemoryCluster(Echo, **settings) as cluster:
        cluster.run(cluster.wait_for_leader())
        yield cluster


@pytest.fixture
def memory() -> Iterator[MemoryCluster]:
    with made() as cluster:
        yield cluster


async def request_many(memory: MemoryCluster, first: int, count: int, *, length: int = 8) -> None:
    client = await memory.connect()
    for number in range(first, first + count):
        await client.request(b"%0*d" % (length, number))
    await client.aclose()


async def take(entries: Subscription, count: int) -> list[LogEntry]:
    return [await anext(entries) for _ in range(count)]


def numbers(entries: list[LogEntry]) -> list[int]:
    return [int(entry.payload) for entry in entries if entry.kind is EntryKind.REQUEST]


def test_every_entry_comes_once_in_order_with_what_it_is(memory: MemoryCluster) -> None:
    async def test() -> None:
        await request_many(memory, 0, 3)
        async with memory.subscribe() as entries:
            found = await take(entries, 7)

        kinds = [entry.kind for entry in found]
        assert kinds == ["term", "membership", "session-open", "request", "request", "request", "session-close"]
        assert numbers(found) == [0, 1, 2]
        assert all(first.end_position <= second.position for first, second in pairwise(found))
        sessions = {entry.cluster_session_id for entry in found[2:]}
        assert len(sessions) == 1
        assert found[0].cluster_session_id is None
        assert all(entry.leadership_term_id is not None and entry.timestamp for entry in found)

    memory.run(test())


def test_new_entries_come_as_they_are_committed(memory: MemoryCluster) -> None:
    async def test() -> None:
        async with memory.subscribe(from_position=Start.LATEST, kinds=["request"]) as entries:
            reading = asyncio.create_task(take(entries, 2))
            await memory.advance(1)
            assert entries.position is not None

            await request_many(memory, 7, 2)

            assert numbers(await reading) == [7, 8]

    memory.run(test())


def test_a_follower_serves_unless_the_leader_is_asked_for(memory: MemoryCluster) -> None:
    async def test() -> None:
        for served_by, is_leader in ((ServedBy.FOLLOWER, False), (ServedBy.LEADER, True)):
            async with memory.subscribe(served_by=served_by) as entries:
                await anext(entries)
                assert (entries.served_by_member_id == memory.leader) is is_leader

    memory.run(test())


def test_a_subscription_goes_on_at_other_members_without_gap_or_duplicate(memory: MemoryCluster) -> None:
    async def test() -> None:
        async with memory.subscribe(kinds=["request"]) as entries:
            found: list[LogEntry] = []
            for round_number in range(4):
                await request_many(memory, 5 * round_number, 5)
                found += await take(entries, 3)
                served_by = entries.served_by_member_id
                assert served_by is not None
                memory.kill(served_by)
                found += await take(entries, 2)
                await memory.restart(served_by)
            assert numbers(found) == [*range(20)]

    memory.run(test())


def test_a_subscription_of_the_leader_survives_its_death_while_requests_go_on(memory: MemoryCluster) -> None:
    async def test() -> None:
        async with memory.subscribe(kinds=["request"], served_by=ServedBy.LEADER) as entries:
            reading = asyncio.create_task(take(entries, 60))
            client = await memory.connect()
            for number in range(60):
                if number in (20, 40):
                    dead = memory.kill_leader()
                await client.request(b"%d" % number)
                if number in (25, 45):
                    await memory.restart(dead)
            found = await reading

        # A request that is sent again after a fail-over may be in the log twice: each at a position of its own.
        assert [*dict.fromkeys(numbers(found))] == [*range(max(numbers(found)) + 1)]
        positions = [entry.position for entry in found]
        assert positions == sorted(set(positions))

    memory.run(test())


def test_the_end_position_of_any_entry_is_where_another_subscription_goes_on(memory: MemoryCluster) -> None:
    async def test() -> None:
        await request_many(memory, 0, 4, length=9000)  # in fragments
        async with memory.subscribe() as entries:
            whole = await take(entries, 8)
        for index, entry in enumerate(whole[:-1]):
            async with memory.subscribe(from_position=entry.end_position) as entries:
                assert await take(entries, len(whole) - index - 1) == whole[index + 1 :]

    memory.run(test())


def test_what_only_an_isolated_leader_has_recorded_is_never_handed_out() -> None:
    with made() as memory:

        async def test() -> None:
            client = await memory.connect()
            await client.request(b"1")
            old = memory.leader
            assert old is not None
            others = [number for number in range(3) if number != old]
            memory.partition([old, "client"], others)
            await client.offer(b"never committed")
            async with memory.subscribe(kinds=["request", "message"], served_by=ServedBy.LEADER) as entries:
                assert numbers(await take(entries, 1)) == [1]
                reading = asyncio.create_task(anext(entries))
                await memory.advance(0.2)
                assert not reading.done()
                memory.heal()
                await request_many(memory, 2, 1)
                following = await reading
                assert following.payload in (b"2", b"00000002", b"never committed")
                if following.payload == b"never committed":  # it was offered again by the client's own session
                    following = await anext(entries)
                assert int(following.payload) == 2
                await memory.assert_identical()

        memory.run(test())


def test_positions_that_are_none_are_refused_and_say_what_is_expected(memory: MemoryCluster) -> None:
    async def test() -> None:
        await request_many(memory, 0, 1, length=9000)
        async with memory.subscribe() as entries:
            found = await take(entries, 4)
        for position in (7, -32):
            with pytest.raises(NoEntryAtPositionError, match=rf"position={position}.*multiple of 32"):
                memory.subscribe(from_position=position)
        with pytest.raises(NoEntryAtPositionError, match=r"no entry.*position="):
            await anext(memory.subscribe(from_position=found[0].position + 32))
        second_fragment = found[3].position + _MTU_LENGTH_BYTES
        with pytest.raises(NoEntryAtPositionError, match="goes on"):
            await anext(memory.subscribe(from_position=second_fragment))
        with pytest.raises(PositionBeyondEndError, match=r"position=1048576.*commit_position=") as caught:
            await anext(memory.subscribe(from_position=1 << 20))
        assert caught.value.commit_position >= found[-1].end_position

    memory.run(test())


@pytest.fixture
def pruning(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryCluster]:
    """A cluster that removes its log below the newest snapshot."""
    monkeypatch.setattr(memory_cluster, "Settings", partial(Settings, keep_all=False, keep_snapshots=1))
    with made(term_length_bytes=64 << 10) as memory:
        yield memory


def test_below_what_is_kept_the_first_position_is_named_and_works(pruning: MemoryCluster) -> None:
    async def test() -> None:
        for number in range(2):
            await request_many(pruning, 100 * number, 30, length=4000)
            await pruning.snapshot()
        await pruning.advance(60)
        with pytest.raises(PositionPrunedError) as caught:
            await anext(pruning.subscribe(from_position=0))
        first_position = caught.value.first_position
        assert first_position > 0
        assert f"first_position={first_position}" in str(caught.value)
        async with pruning.subscribe(from_position=Start.EARLIEST) as entries:
            assert (await anext(entries)).position >= first_position

    pruning.run(test())


def test_a_subscriber_that_stops_reading_delays_pruning_and_does_not_stop_it(pruning: MemoryCluster) -> None:
    async def test() -> None:
        await request_many(pruning, 0, 30, length=4000)
        async with pruning.subscribe() as entries:
            await anext(entries)
            await request_many(pruning, 100, 1500, length=4000)
            for _ in range(2):
                await pruning.snapshot()
                await pruning.advance(120)
            with pytest.raises(PositionPrunedError):
                await take(entries, 1600)

    pruning.run(test())


def test_a_stranger_is_refused_by_the_table_of_roles(memory: MemoryCluster) -> None:
    async def test() -> None:
        await request_many(memory, 0, 1)
        memory._cluster.network.identify("client", STRANGER)
        with pytest.raises(SubscriptionRefusedError, match="role observer"):
            await anext(memory.subscribe())

    memory.run(test())


def test_without_members_the_subscription_ends_in_time_and_says_why(memory: MemoryCluster) -> None:
    async def test() -> None:
        memory.kill(0, 1, 2)
        with pytest.raises(SubscriptionTimeoutError, match=r"within 3 s: .*refused"):
            await anext(memory.subscribe(reconnect_timeout_s=3))

    memory.run(test())


def test_a_read_that_is_cancelled_loses_nothing(memory: MemoryCluster) -> None:
    async def test() -> None:
        async with memory.subscribe(from_position=Start.LATEST, kinds=["request"]) as entries:
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.003):
                        await anext(entries)
            await memory.advance(1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await anext(entries)
            await request_many(memory, 3, 2)
            assert numbers(await take(entries, 2)) == [3, 4]

    memory.run(test())


def test_filters_choose_by_kind_session_and_template(memory: MemoryCluster) -> None:
    async def test() -> None:
        clients = [await memory.connect() for _ in range(2)]
        for client in clients:
            await client.request(b"\x08\x00\x05\x00rest")
            await client.request(b"\x08\x00\x06\x00rest")
        session_id = clients[1].cluster_session_id
        async with memory.subscribe(cluster_session_ids=[session_id], template_ids=[6]) as entries:
            found = await take(entries, 1)
            await clients[0].request(b"not wanted")
            reading = asyncio.create_task(anext(entries))
            await memory.advance(1)
            assert entries.position is not None
            assert entries.position > found[0].end_position, "what is passed over counts as handled"
            reading.cancel()
        assert [(entry.cluster_session_id, entry.payload[2]) for entry in found] == [(session_id, 6)]

    memory.run(test())


def test_one_task_reads_a_subscription(memory: MemoryCluster) -> None:
    async def test() -> None:
        async with memory.subscribe(from_position=Start.LATEST) as entries:
            reading = asyncio.create_task(anext(entries))
            await memory.advance(1)
            with pytest.raises(LocalProtocolError, match="one task"):
                await anext(entries)
            reading.cancel()
        with pytest.raises(StopAsyncIteration):
            await anext(entries)

    memory.run(test())


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ConfigurationError, match="endpoints="):
        subscribe([])
    with pytest.raises(ConfigurationError, match="nowhere"):
        subscribe(["nowhere"])
    with pytest.raises(ConfigurationError, match=r"kinds=.*'wish'.*message, request"):
        subscribe(["localhost:1"], kinds=["wish"])
