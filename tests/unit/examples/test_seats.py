"""The example with two services: a whole cluster on virtual time, with a client that pays and one that does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.seats import HOLD_MS, BoxOffice, Ledger
from trimaran.cluster.testing import MemoryCluster

HOLD_S = HOLD_MS / 1_000


@pytest.fixture
def memory() -> Iterator[MemoryCluster]:
    with MemoryCluster([BoxOffice, Ledger]) as cluster:
        yield cluster


async def ask(cluster: MemoryCluster, *requests: bytes) -> list[bytes]:
    """Let a new client send requests, one after another."""
    async with await cluster.connect() as client:
        return [await client.request(request) for request in requests]


async def books(cluster: MemoryCluster) -> set[tuple[int, int]]:
    """What the ledgers of all members say."""
    await cluster.assert_identical()
    return {(ledger.takings, ledger.lapsed_count) for _, ledger in cluster.services.values()}


def test_what_is_paid_is_in_every_ledger_and_what_is_not_lapses(memory: MemoryCluster) -> None:
    async def test() -> None:
        assert await ask(memory, b"hold 7", b"hold 7", b"pay 7 30", b"hold 7", b"hold 8", b"pay 9 1", b"sit") == [
            b"held",
            b"taken",
            b"sold",
            b"taken",
            b"held",
            b"not held",
            b"expected: hold SEAT, or pay SEAT PRICE",
        ]
        assert await books(memory) == {(30, 0)}

        await memory.advance(HOLD_S + 1)

        assert await books(memory) == {(30, 1)}
        assert await ask(memory, b"hold 8", b"pay 8 12") == [b"held", b"sold"]
        assert await books(memory) == {(42, 1)}

    memory.run(test())


def test_both_services_go_on_from_a_snapshot_when_every_member_is_killed(memory: MemoryCluster) -> None:
    async def test() -> None:
        await ask(memory, b"hold 7", b"pay 7 30", b"hold 8")
        await memory.snapshot()
        await memory.restart()

        assert await books(memory) == {(30, 0)}
        assert await ask(memory, b"hold 7", b"hold 8", b"hold 9", b"pay 9 5") == [b"taken", b"taken", b"held", b"sold"]
        assert await books(memory) == {(35, 0)}
        await memory.advance(HOLD_S + 1)
        assert await books(memory) == {(35, 1)}

    memory.run(test())
