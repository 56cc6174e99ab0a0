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
from trimaran.cluster.testing import MemoryCluster
from trimaran.service_api.errors import LocalProtocolError, RemoteProtocolError
from trimaran.service_api.outbox import PendingEffect

from .plain_shop import Shop


@pytest.fixture
def memory() -> Iterator[MemoryCluster]:
    with MemoryCluster(Shop) as cluster:
        cluster.run(cluster.wait_for_leader())
        yield cluster


WANTED = ["deliver 0", "deliver 1", "invoice 1", "deliver 2", "deliver 3", "invoice 3"]


class Outside:
    """Where effects happen; a stumble at a step is what the test does there."""

    def __init__(self) -> None:
        self.done: list[PendingEffect[bytes]] = []

    async def handle(self, effect: PendingEffect[bytes]) -> None:
        self.done.append(effect)

    def check(self) -> None:
        """Every effect has happened, in order, and what happened twice had one key."""
        assert list(dict.fromkeys(effect.payload.decode() for effect in self.done)) == WANTED
        assert len({effect.key for effect in self.done}) == len(WANTED)


class StumblingClient:
    """A client that has something happen before or after a call."""

    def __init__(self, client: ClusterClient, step: str, stumble: Callable[[], object]) -> None:
        self._client, self._step, self._stumble = client, step, stumble

    @property
    def is_closed(self) -> bool:
        return self._client.is_closed

    async def query(self, payload: bytes, **settings: Any) -> Any:
        self._at("before the question")
        result = await self._client.query(payload, **settings)
        self._at("after the question")
        return result

    async def request(self, payload: bytes, **settings: Any) -> bytes:
        self._at("before the settlement")
        asked = asyncio.ensure_future(self._client.request(payload, **settings))
        await asyncio.sleep(0)
        try:
            self._at("while it is settled")
        except WorkerDied:
            asked.cancel()
            raise
        reply = await asked
        self._at("after the settlement")
        return reply

    def _at(self, step: str) -> None:
        if step == self._step:
            self._step = ""
            self._stumble()


STEPS = (
    "before the question",
    "after the question",
    "before the settlement",
    "while it is settled",
    "after the settlement",
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

        async def handle(effect: PendingEffect[bytes]) -> None:
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

        async def handle(effect: PendingEffect[bytes]) -> None:
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


def test_a_service_that_gives_requests_to_no_outbox_is_told_to_the_worker() -> None:
    class Deaf(Shop):
        def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
            self.outbox.add(b"x")
            return b"what?"

    with MemoryCluster(Deaf) as memory:

        async def test() -> None:
            client, outside = await memory.connect(), Outside()
            await client.request(b"1")
            with pytest.raises(RemoteProtocolError, match=r"payload=b'what\?'.*SettlementReply"):
                await OutboxWorker(client, outside.handle).run()

        memory.run(test())


def test_a_handler_of_a_plain_service_returns_no_result(memory: MemoryCluster) -> None:
    async def test() -> None:
        await order_all(memory)

        async def handle(effect: PendingEffect[bytes]) -> Any:
            return b"delivered"

        with pytest.raises(LocalProtocolError, match="type=bytes, expected None"):
            await OutboxWorker(await memory.connect(), handle).run()

    memory.run(test())
