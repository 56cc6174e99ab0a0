"""Messages of typed clients and services in a subscription: by name and field, wherever it begins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trimaran.client.typed import TypedClient
from trimaran.cluster.subscriptions import LogEntry, Start
from trimaran.cluster.subscriptions.redis_stream import _fields_of
from trimaran.cluster.subscriptions.rows import as_row
from trimaran.cluster.testing import MemoryCluster
from trimaran.service_api.typed import Command, Context, Event, TypedService, handles


class Paid(Event):
    account: str


class Pay(Command[int]):
    account: str
    amount: int


class Till(TypedService):
    events = (Paid,)

    @handles(Pay)
    def pay(self, ctx: Context, message: Pay) -> int:
        ctx.publish("paid", Paid(message.account))
        return message.amount


async def pay(cluster: MemoryCluster, *amounts: int) -> None:
    client = TypedClient(await cluster.connect())
    for amount in amounts:
        await client.call(Pay("ann", amount))


async def take(cluster: MemoryCluster, count: int, **settings: Any) -> list[LogEntry]:
    async with cluster.subscribe(kinds=["request", "topic"], typed=True, **settings) as entries:
        return [await anext(entries) for _ in range(count)]


def shown(entries: list[LogEntry]) -> list[tuple[Any, Any]]:
    return [(entry.typed["message"], entry.typed.get("values")) for entry in entries if entry.typed]


def test_entries_have_the_messages_by_name_and_field() -> None:
    with MemoryCluster(Till) as cluster:
        cluster.run(pay(cluster, 1, 2))
        found = cluster.run(take(cluster, 6))

    assert shown(found) == [
        ("Pay", None),
        ("Pay", {"account": "ann", "amount": 1}),
        ("Paid", None),
        ("Paid", {"account": "ann"}),
        ("Pay", {"account": "ann", "amount": 2}),
        ("Paid", {"account": "ann"}),
    ]
    row = as_row(found[1])
    assert row["typed"] == {"service_id": 0, "message": "Pay", "values": {"account": "ann", "amount": 1}}
    assert b'{"service_id": 0, "message": "Pay", "values": {"account": "ann", "amount": 1}}' in _fields_of(found[1])


@pytest.mark.parametrize("topics", [(), ["paid"]])
def test_a_subscription_that_begins_later_reads_the_schemas_before_its_position_once(topics: list[str]) -> None:
    with MemoryCluster(Till) as cluster:
        cluster.run(pay(cluster, 1, 2, 3))
        position = cluster.run(take(cluster, 6))[3].end_position
        found = cluster.run(take(cluster, 2, from_position=position, topics=topics))

    names = ["Paid", "Paid"] if topics else ["Pay", "Paid"]
    assert [name for name, values in shown(found) if values] == names


def test_a_subscription_from_the_end_shows_what_comes() -> None:
    async def run(cluster: MemoryCluster) -> list[LogEntry]:
        await pay(cluster, 1)
        async with cluster.subscribe(from_position=Start.LATEST, typed=True, topics=["paid"]) as entries:
            reading = asyncio.ensure_future(anext(entries))
            while entries.position is None:
                await cluster.advance(0.01)
            await pay(cluster, 2)
            return [await reading]

    with MemoryCluster(Till) as cluster:
        assert shown(cluster.run(run(cluster))) == [("Paid", {"account": "ann"})]


def test_entries_of_untyped_messages_and_of_other_subscriptions_are_as_they_were() -> None:
    async def run(cluster: MemoryCluster) -> list[LogEntry]:
        await pay(cluster, 1)
        async with cluster.subscribe(kinds=["request"]) as entries:
            return [await anext(entries) for _ in range(2)]

    with MemoryCluster(Till) as cluster:
        found = cluster.run(run(cluster))

    assert [entry.typed for entry in found] == [None, None]
    assert "typed" not in as_row(found[0])
