"""The outbox: what a service wants done happens, whoever dies at whichever step, and each time with the same key."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trimaran import ClientSession
from trimaran.client import ClusterClient
from trimaran.client.outbox_worker import OutboxWorker
from trimaran.cluster.testing import MemoryCluster, ServiceHarness
from trimaran.service_api.errors import BackPressureError, LocalProtocolError, RemoteProtocolError
from trimaran.service_api.outbox.outbox import (
    ACK_MARK,
    ACKNOWLEDGED,
    ANSWER_LIMIT_BYTES,
    BEGINNING,
    QUERY_MARK,
    SNAPSHOT_MARK,
    Effect,
    EffectKey,
    Outbox,
    decode_effects,
    encode_acknowledgement,
    encode_question,
)

from .shop import Shop


@pytest.fixture
def memory() -> Iterator[MemoryCluster]:
    with MemoryCluster(Shop) as cluster:
        cluster.run(cluster.wait_for_leader())
        yield cluster


WANTED = ["deliver 0", "deliver 1", "invoice 1", "deliver 2", "deliver 3", "invoice 3"]


class Outside:
    """Where effects happen; a stumble at a step is what the test does there."""

    def __init__(self) -> None:
        self.done: list[Effect] = []

    async def handle(self, effect: Effect) -> None:
        self.done.append(effect)

    def check(self) -> None:
        """Every effect has happened, in order, and what happened twice had one key."""
        assert list(dict.fromkeys(effect.payload.decode() for effect in self.done)) == WANTED
        assert len({effect.key for effect in self.done}) == len(WANTED)


class StumblingClient:
    """A client that has something happen before or after a call."""

    def __init__(self, client: ClusterClient, step: str, stumble: Callable[[], object]) -> None:
        self._client, self._step, self._stumble = client, step, stumble

    async def query(self, payload: bytes, **settings: Any) -> Any:
        self._at("before the question")
        result = await self._client.query(payload, **settings)
        self._at("after the question")
        return result

    async def request(self, payload: bytes, **settings: Any) -> bytes:
        self._at("before the acknowledgement")
        asked = asyncio.ensure_future(self._client.request(payload, **settings))
        await asyncio.sleep(0)
        try:
            self._at("while it is acknowledged")
        except WorkerDied:
            asked.cancel()
            raise
        reply = await asked
        self._at("after the acknowledgement")
        return reply

    def _at(self, step: str) -> None:
        if step == self._step:
            self._step = ""
            self._stumble()


STEPS = (
    "before the question",
    "after the question",
    "before the acknowledgement",
    "while it is acknowledged",
    "after the acknowledgement",
)


async def order_all(memory: MemoryCluster) -> None:
    client = await memory.connect()
    for number in range(4):
        await client.request(b"%d" % number)


async def until_empty(memory: MemoryCluster, worker: OutboxWorker) -> None:
    """Have a worker run until nothing is pending on any member."""
    running = asyncio.create_task(worker.run())
    while any(service.outbox.pending for service in memory.services.values()):
        await memory.advance(0.5)
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("step", STEPS)
def test_an_effect_happens_when_the_leader_dies_at_a_step(memory: MemoryCluster, step: str) -> None:
    async def test() -> None:
        await order_all(memory)
        outside, client = Outside(), await memory.connect()
        stumbling: Any = StumblingClient(client, step, memory.kill_leader)
        await until_empty(memory, OutboxWorker(stumbling, outside.handle))
        outside.check()
        assert max(Counter(effect.key for effect in outside.done).values()) == 1, "the worker lived"

    memory.run(test())


class WorkerDied(BaseException):
    """The worker's process has ended."""


@pytest.mark.parametrize("step", STEPS)
def test_an_effect_happens_when_worker_and_leader_die_at_a_step(memory: MemoryCluster, step: str) -> None:
    async def test() -> None:
        await order_all(memory)
        outside, client = Outside(), await memory.connect()

        def die() -> None:
            memory.kill_leader()
            raise WorkerDied

        stumbling: Any = StumblingClient(client, step, die)
        with pytest.raises(WorkerDied):
            await OutboxWorker(stumbling, outside.handle).run_once()
        await client.aclose()
        await until_empty(memory, OutboxWorker(await memory.connect(), outside.handle))
        outside.check()

    memory.run(test())


def test_an_effect_happens_when_the_leader_dies_while_it_is_done(memory: MemoryCluster) -> None:
    async def test() -> None:
        await order_all(memory)
        outside = Outside()

        async def handle(effect: Effect) -> None:
            await outside.handle(effect)
            if len(outside.done) in (2, 4):
                await memory.restart(memory.kill_leader())

        await until_empty(memory, OutboxWorker(await memory.connect(), handle))
        outside.check()

    memory.run(test())


def test_effects_whose_handler_fails_are_done_later_and_those_before_are_acknowledged(memory: MemoryCluster) -> None:
    async def test() -> None:
        await order_all(memory)
        outside, failure_count = Outside(), 0

        async def handle(effect: Effect) -> None:
            nonlocal failure_count
            if effect.payload == b"invoice 1" and failure_count < 5:
                failure_count += 1
                raise ConnectionError("the receiver is down")
            await outside.handle(effect)

        await until_empty(memory, OutboxWorker(await memory.connect(), handle))
        assert failure_count == 5
        assert [effect.payload.decode() for effect in outside.done] == WANTED

    memory.run(test())


def test_pending_effects_survive_a_snapshot_and_a_restart_with_their_keys(memory: MemoryCluster) -> None:
    async def test() -> None:
        await order_all(memory)
        await memory.settle()
        before = [*memory.services[0].outbox.pending.items()]
        await memory.snapshot_and_restart()
        assert [*memory.services[0].outbox.pending.items()] == before
        outside = Outside()
        await until_empty(memory, OutboxWorker(await memory.connect(), outside.handle))
        outside.check()
        await memory.assert_identical()

    memory.run(test())


# The service's side, without a cluster


def test_an_acknowledgement_removes_what_it_names_once_and_twice() -> None:
    harness = ServiceHarness(Shop)
    harness.request(b"1")
    effects = decode_effects(harness.query(encode_question(BEGINNING)))

    for _ in range(2):
        assert harness.request(encode_acknowledgement([effects[0].key])) == ACKNOWLEDGED

    assert decode_effects(harness.query(encode_question(BEGINNING))) == effects[1:]
    assert decode_effects(harness.query(encode_question(effects[1].key))) == []
    assert [str(effect.key) for effect in effects] == [f"{effects[0].key.log_position}-{number}" for number in (0, 1)]


def test_keys_never_come_again() -> None:
    harness = ServiceHarness(Shop)
    keys = [harness.request(b"%d" % number) for number in range(50)]
    harness.restart()
    keys += [harness.request(b"%d" % number) for number in range(10)]

    assert len(set(keys)) == 60


def test_an_outbox_that_nobody_empties_refuses_more() -> None:
    harness = ServiceHarness(Shop)
    for number in range(0, 200, 2):
        harness.request(b"%d" % number)

    with pytest.raises(BackPressureError, match="effects pending=100 limit=100"):
        harness.request(b"2")


def test_an_answer_is_bounded_and_holds_one_effect_at_least() -> None:
    outbox = Outbox()
    for number, length in enumerate((5, ANSWER_LIMIT_BYTES, 7, 9)):
        outbox.pending[EffectKey(number, 0)] = bytes(length)

    lengths, after = [], BEGINNING
    for _ in range(3):
        answer = outbox.on_query(encode_question(after))
        assert answer is not None
        effects = decode_effects(answer)
        lengths.append([len(effect.payload) for effect in effects])
        after = effects[-1].key

    assert lengths == [[5], [ANSWER_LIMIT_BYTES], [7, 9]]


def test_what_is_none_of_its_messages_is_left_to_the_service_or_named() -> None:
    outbox = Outbox()

    assert outbox.on_request(b"5") is None
    assert outbox.on_query(b"5") is None
    assert outbox.load(b"5") is False
    with pytest.raises(RemoteProtocolError, match="acknowledgement: length=5"):
        outbox.on_request(ACK_MARK + bytes(5))
    with pytest.raises(RemoteProtocolError, match=r"question.*length=5"):
        outbox.on_query(QUERY_MARK + bytes(5))
    with pytest.raises(RemoteProtocolError, match="ends inside"):
        outbox.load(SNAPSHOT_MARK + bytes(5))
    with pytest.raises(RemoteProtocolError, match="ends inside"):
        decode_effects(bytes(15) + b"\x01")
    with pytest.raises(LocalProtocolError, match="call attach"):
        outbox.add(b"")


def test_a_service_that_gives_requests_to_no_outbox_is_told_to_the_worker() -> None:
    class Deaf(Shop):
        def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
            self.outbox.add(b"x")
            return b"what?"

    with MemoryCluster(Deaf) as memory:

        async def test() -> None:
            client, outside = await memory.connect(), Outside()
            await client.request(b"1")
            with pytest.raises(RemoteProtocolError, match=r"reply=b'what\?'.*outbox"):
                await OutboxWorker(client, outside.handle).run()

        memory.run(test())
