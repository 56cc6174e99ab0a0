"""Topics: what services publish comes to subscribers once, in order, across fail-overs, snapshots and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from trimaran import ClientSession, Cluster, ClusteredService, SnapshotImage, SnapshotPublication
from trimaran.client import RequestFailedError
from trimaran.cluster.subscriptions import EntryKind, Subscription
from trimaran.cluster.testing import MemoryCluster, ServiceHarness
from trimaran.service_api.errors import LocalProtocolError
from trimaran.service_api.wire.topics import (
    TOPIC_MARK,
    TOPIC_NAME_LIMIT_BYTES,
    TopicMessage,
    decode_topic_message,
    encode_topic_message,
    is_topic_message,
)


class Newsroom(ClusteredService):
    """Publishes the number of each request: to `odd` or `even`, and to `all` as the sum so far."""

    def __init__(self) -> None:
        self.total = 0
        self.received: list[bytes] = []

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot is not None:
            async for message in snapshot:
                self.total = int(message)

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await snapshot.offer(b"%d" % self.total)

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        if bytes(payload).startswith(b"offer "):
            self.cluster.offer(bytes(payload[6:]))
            return b""
        number = int(payload)
        self.total += number
        self.cluster.publish("odd" if number % 2 else "even", payload)
        self.cluster.publish("all", b"%d" % self.total)
        return b""

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        self.received.append(bytes(payload))


@pytest.fixture
def memory() -> Iterator[MemoryCluster]:
    with MemoryCluster(Newsroom) as cluster:
        cluster.run(cluster.wait_for_leader())
        yield cluster


async def take_payloads(entries: Subscription, count: int) -> list[int]:
    return [int((await anext(entries)).payload) for _ in range(count)]


def test_a_subscriber_gets_its_topics_and_services_get_none(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = await memory.connect()
        for number in range(6):
            await client.request(b"%d" % number)
        async with memory.subscribe(topics=["odd"]) as odd, memory.subscribe(topics=["all", "even"]) as others:
            assert await take_payloads(odd, 3) == [1, 3, 5]
            found = [await anext(others) for _ in range(9)]
        assert {entry.kind for entry in found} == {EntryKind.TOPIC}
        by_topic = {topic: [int(entry.payload) for entry in found if entry.topic == topic] for topic in ("all", "even")}
        assert by_topic == {"all": [0, 1, 3, 6, 10, 15], "even": [0, 2, 4]}
        assert [service.received for service in memory.services.values()] == [[], [], []]

    memory.run(test())


def test_events_come_once_while_leaders_die_and_snapshots_are_loaded(memory: MemoryCluster) -> None:
    async def test() -> None:
        async with memory.subscribe(topics=["all"]) as entries:
            reading = asyncio.create_task(take_payloads(entries, 45))
            client = await memory.connect()
            for number in range(45):
                if number % 10 == 5:
                    dead = memory.kill_leader()
                await client.request(b"1")
                if number % 10 == 7:
                    await memory.restart(dead)
                if number in (19, 39):
                    await memory.snapshot()
            assert await reading == [*range(1, 46)]
        await memory.snapshot_and_restart()
        client = await memory.connect()
        await client.request(b"1")
        async with memory.subscribe(topics=["all"]) as entries:
            assert await take_payloads(entries, 46) == [*range(1, 47)]

    memory.run(test())


def test_no_offer_can_pass_for_an_event(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = await memory.connect()
        with pytest.raises(RequestFailedError, match="use publish"):
            await client.request(b"offer " + encode_topic_message("all", b"99"))
        await client.request(b"offer " + TOPIC_MARK[:-1])
        await client.request(b"1")
        async with memory.subscribe(kinds=["topic", "service-message"]) as entries:
            found = [await anext(entries) for _ in range(3)]
        assert [(entry.kind, entry.topic) for entry in found] == [
            ("service-message", None),
            ("topic", "odd"),
            ("topic", "all"),
        ]

    memory.run(test())


@pytest.mark.parametrize("topic", ["", "x" * 256, "é" * 128, "two\nlines", "\ud800", 7, None, b"all"])
def test_a_name_that_is_none_is_refused(topic: object) -> None:
    with pytest.raises(LocalProtocolError, match=r"topic=.*1 to 255"):
        encode_topic_message(topic, b"")


@pytest.mark.parametrize("topic", ["a", "orders/new", "é", "x" * TOPIC_NAME_LIMIT_BYTES])
@pytest.mark.parametrize("payload", [b"", b"x", bytes(1000)])
def test_a_topic_message_says_what_was_published(topic: str, payload: bytes) -> None:
    encoded = encode_topic_message(topic, payload)

    assert decode_topic_message(encoded) == TopicMessage(topic, payload)
    assert is_topic_message(memoryview(encoded))
    for length in range(len(encoded) - len(payload)):
        assert decode_topic_message(encoded[:length]) is None


def test_the_harness_shows_what_was_published() -> None:
    harness = ServiceHarness(Newsroom)

    harness.request(b"3")

    assert harness.published == [TopicMessage("odd", b"3"), TopicMessage("all", b"3")]
    assert harness.service.received == []
    assert harness.offered == []
