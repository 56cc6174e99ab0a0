"""Gets of the key-value store in a cluster on virtual time: how many rounds of the leader they take."""

from __future__ import annotations

import asyncio

import pytest

from trimaran.client.ready_made import KvClient
from trimaran.cluster.core.roles.leadership_probe import LeaderReads
from trimaran.cluster.testing import MemoryCluster
from trimaran.service_api.ready_made.kv import KvService

GETS = 100


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that each round of a leader is noted in, by the number of the probe."""
    begun: list[int] = []
    begin = LeaderReads._begin

    def noted(reads: LeaderReads) -> None:
        begin(reads)
        begun.append(reads._probe_count)

    monkeypatch.setattr(LeaderReads, "_begin", noted)
    return begun


def test_gets_that_wait_share_one_round_of_the_leader(rounds: list[int]) -> None:
    """One at a time, each takes a round. Of 300 at once, those that come first take one, and the others the next."""
    with MemoryCluster(KvService) as cluster:

        async def test() -> None:
            clients = [KvClient(await cluster.connect()) for _ in range(3)]
            await clients[0].put("a", "1")
            for client in clients:
                await client.get("a")  # asks for the schemas, too
            rounds.clear()

            for _ in range(5):
                assert await clients[0].get("a") == b"1"
            one_by_one = len(rounds)
            found = await asyncio.gather(*(client.get("a") for client in clients for _ in range(GETS)))

            assert found == [b"1"] * (3 * GETS)
            assert one_by_one == 5
            assert 1 <= len(rounds) - one_by_one <= 3

        cluster.run(test())


def test_a_get_that_comes_during_a_round_takes_the_next_and_sees_what_was_written_meanwhile(rounds: list[int]) -> None:
    with MemoryCluster(KvService) as cluster:

        async def count(kv: KvClient) -> None:
            for number in range(20):
                await kv.put("a", str(number))
                # Others read all the time: a round is nearly always under way.
                assert int(await kv.get("a") or -1) == number

        async def read(kv: KvClient, until: asyncio.Task[None]) -> None:
            newest = -1
            while not until.done():
                for value in await asyncio.gather(*(kv.get("a") for _ in range(10))):
                    assert int(value or -1) >= newest
                newest = max(newest, int(value or -1))

        async def test() -> None:
            writer, reader = KvClient(await cluster.connect()), KvClient(await cluster.connect())
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(count(writer))
                tasks.create_task(read(reader, writing))
            assert len(rounds) < 200

        cluster.run(test())
