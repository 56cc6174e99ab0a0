"""`trimaran log tail`: what is committed, from whichever member serves it, also while the log grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from tests.unit.cluster.subscriptions.test_subscription import Echo, made, request_many
from trimaran.archive.files.reader import RecordedMessage
from trimaran.cluster.cli.shared.cluster_log import ClusterLog, tail_batches
from trimaran.cluster.subscriptions import PositionBeyondEndError, ServedBy, SubscriptionTimeoutError
from trimaran.cluster.subscriptions.log_source import Beginning
from trimaran.cluster.testing import MemoryCluster

SMALL_TERM_LENGTH = 64 << 10


def batches_of(
    memory: MemoryCluster, count: int, *, begin: int | None = None, is_followed: bool = False
) -> AsyncIterator[tuple[int, Iterable[RecordedMessage]]]:
    source = memory.subscribe(served_by=ServedBy.LEADER)._source

    def log_from(start: Beginning) -> ClusterLog:
        return ClusterLog(source, start, timeout_s=5, is_followed=is_followed)

    return tail_batches(log_from, count, begin=begin, is_followed=is_followed)


async def read(memory: MemoryCluster, count: int, *, begin: int | None = None) -> list[RecordedMessage]:
    return [entry async for _, batch in batches_of(memory, count, begin=begin) for entry in batch]


@pytest.mark.parametrize("count", [0, 1, 5, 100])
def test_the_last_committed_entries_are_given_whole(count: int) -> None:
    """Some are in one frame and some in many; more than one term buffer in all."""

    async def test() -> None:
        for length in (8, 8_000, 100, 5_000, 9):
            await request_many(memory, 0, 7, length=length)

        everything = await read(memory, 0, begin=0)

        assert everything[-1].end_position > SMALL_TERM_LENGTH
        last = await read(memory, count)
        assert last == (everything[-len(last) :] if last else [])
        assert len(last) == min(count, len(everything))

    with made(term_length_bytes=SMALL_TERM_LENGTH) as memory:
        memory.run(test())


def test_what_is_committed_later_is_given_later_and_once_also_when_the_leader_dies() -> None:
    async def test() -> None:
        await request_many(memory, 0, 3)
        before = await read(memory, 2)
        found = list[RecordedMessage]()

        async def follow() -> None:
            async for _, batch in batches_of(memory, 2, is_followed=True):
                found.extend(batch)

        following = asyncio.create_task(follow())
        await memory.advance(1)
        assert found == before
        await request_many(memory, 3, 3)
        memory.kill_leader()
        await memory.wait_for_leader()
        await request_many(memory, 6, 3)
        await memory.advance(5)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

        assert found == await read(memory, 0, begin=before[0].position)

    with made() as memory:
        memory.run(test())


def test_a_follower_serves_what_is_committed_while_there_is_no_leader() -> None:
    async def test() -> None:
        await request_many(memory, 0, 3)
        everything = await read(memory, 100)
        await memory.advance(5)
        leader = memory.leader
        assert leader is not None
        memory.kill(leader, (leader + 1) % 3)

        assert await read(memory, 100) == everything

        memory.kill((leader + 2) % 3)
        with pytest.raises(SubscriptionTimeoutError):
            await read(memory, 100)

    with made() as memory:
        memory.run(test())


def test_a_position_that_is_not_committed_is_refused() -> None:
    async def test() -> None:
        with pytest.raises(PositionBeyondEndError):
            await read(memory, 0, begin=1 << 20)

    with MemoryCluster(Echo) as memory:
        memory.run(memory.wait_for_leader())
        memory.run(test())
