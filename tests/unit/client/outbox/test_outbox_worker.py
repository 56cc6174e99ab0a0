"""The worker of declared outboxes: pauses, order, dead letters, results, and deaths at every step."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.client.outbox.ticket_shop import Buy, Charge, Charged, Mail, TicketShop
from trimaran import Effect, OutboxWorker, PendingEffect, SessionClosedError, TypedClient
from trimaran.client.outbox.calls import OutboxCalls
from trimaran.cluster.testing import MemoryCluster
from trimaran.service_api.errors import ClusterError, ConfigurationError, LocalProtocolError
from trimaran.service_api.outbox.protocol import SettledAs, SettledRow


@pytest.fixture
def memory() -> Iterator[MemoryCluster]:
    with MemoryCluster(TicketShop) as cluster:
        cluster.run(cluster.wait_for_leader())
        yield cluster


@pytest.fixture
def logged() -> Iterator[MemoryCluster]:
    """A cluster for tests that read what the worker logs."""
    with MemoryCluster(TicketShop, logs=True) as cluster:
        yield cluster


def shops(memory: MemoryCluster) -> list[TicketShop]:
    return [service for service in memory.services.values() if isinstance(service, TicketShop)]


async def buy(memory: MemoryCluster, count: int) -> None:
    client = TypedClient(await memory.connect())
    async with asyncio.TaskGroup() as tasks:
        for seat in range(count):
            tasks.create_task(client.call(Buy(seat)))


async def until(memory: MemoryCluster, condition: Callable[[], bool], worker: OutboxWorker) -> None:
    """Have a worker run until a condition holds."""
    running = asyncio.create_task(worker.run())
    while not condition() and not running.done():
        await memory.advance(0.1)
    running.cancel()
    await asyncio.wait([running])
    if not running.cancelled():
        running.result()


def is_empty(memory: MemoryCluster) -> bool:
    return not any(shop.payments.pending for shop in shops(memory))


class Receiver:
    """The system outside: it charges by keys, and a second charge with one key is the first one."""

    def __init__(self, fails: Callable[[PendingEffect[Charge]], bool] = lambda effect: False) -> None:
        self.receipts: dict[str, str] = {}
        self.calls: list[PendingEffect[Charge]] = []
        self._fails = fails

    async def charge(self, effect: PendingEffect[Charge]) -> None:
        await self.pay(effect)

    async def charge_and_say(self, effect: PendingEffect[Charge]) -> Charged:
        return Charged(effect.payload.seat, await self.pay(effect))

    async def pay(self, effect: PendingEffect[Charge]) -> str:
        self.calls.append(effect)
        await asyncio.sleep(0.01)
        if self._fails(effect):
            raise ConnectionError("503")
        return self.receipts.setdefault(str(effect.key), f"receipt {len(self.receipts)}")

    def counts(self) -> Counter[int]:
        return Counter(effect.payload.seat for effect in self.calls)


# Pauses and order


def half_by_chance() -> Callable[[object], bool]:
    chance = Random(1)
    return lambda effect: chance.random() < 0.5


def test_a_thousand_effects_whose_receiver_fails_half_of_the_time_are_done_in_five_seconds(
    memory: MemoryCluster,
) -> None:
    """One effect in a thousand fails ten times in a row: where pauses only double, it takes a minute."""

    async def test() -> None:
        await buy(memory, 1_000)
        receiver, began_s = Receiver(half_by_chance()), memory.time_s
        worker = OutboxWorker(await memory.connect(), receiver.charge, effect=Charge, concurrency=16)
        await until(memory, lambda: len(receiver.receipts) == 1_000, worker)
        assert memory.time_s - began_s < 5.0
        assert len(receiver.calls) < 2_200

    memory.run(test())


def test_an_effect_that_fails_pauses_alone_and_twice_as_long_each_time(memory: MemoryCluster) -> None:
    async def test() -> None:
        await buy(memory, 8)
        times_s: list[float] = []

        def fails(effect: PendingEffect[Charge]) -> bool:
            if effect.payload.seat != 3:
                return False
            times_s.append(memory.time_s)
            return len(times_s) < 6

        receiver = Receiver(fails)
        worker = OutboxWorker(
            await memory.connect(),
            receiver.charge,
            effect=Charge,
            concurrency=2,
            first_pause_s=0.1,
            pause_limit_s=0.4,
        )
        await until(memory, lambda: is_empty(memory), worker)
        pauses_s = [round(after - before - 0.01, 3) for before, after in pairwise(times_s)]
        assert pauses_s == pytest.approx([0.1, 0.2, 0.4, 0.4, 0.4], abs=0.01)
        assert receiver.counts() == {seat: 6 if seat == 3 else 1 for seat in range(8)}
        assert receiver.calls[-1].payload.seat == 3, "the others did not wait"

    memory.run(test())


@pytest.mark.parametrize(("concurrency", "is_keyed"), [(1, False), (4, True)])
def test_effects_of_one_order_key_are_done_in_order(memory: MemoryCluster, concurrency: int, is_keyed: bool) -> None:
    async def test() -> None:
        await buy(memory, 24)
        chance, done, under_way = Random(5), list[PendingEffect[Charge]](), set[int]()

        def lane(effect: PendingEffect[Charge]) -> int:
            return effect.payload.seat % 3 if is_keyed else 0

        async def charge(effect: PendingEffect[Charge]) -> None:
            assert lane(effect) not in under_way
            under_way.add(lane(effect))
            await asyncio.sleep(0.01)
            under_way.remove(lane(effect))
            if chance.random() < 0.4:
                raise ConnectionError("503")
            done.append(effect)

        worker = OutboxWorker(
            await memory.connect(),
            charge,
            effect=Charge,
            concurrency=concurrency,
            order_key=lane if is_keyed else None,
        )
        await until(memory, lambda: is_empty(memory), worker)
        for number in range(3 if is_keyed else 1):
            keys = [effect.key for effect in done if lane(effect) == number]
            assert keys == sorted(keys)
        assert len(done) == 24

    memory.run(test())


# Dead letters and the log


def test_a_poisoned_effect_is_given_up_and_blocks_the_others_no_more(logged: MemoryCluster) -> None:
    memory = logged

    async def test() -> None:
        await buy(memory, 5)
        receiver = Receiver(lambda effect: effect.payload.seat == 1)
        worker = OutboxWorker(await memory.connect(), receiver.charge, effect=Charge, attempt_limit=3)
        with capture_logs() as lines:
            await until(memory, lambda: is_empty(memory), worker)
        assert receiver.counts() == {0: 1, 1: 3, 2: 1, 3: 1, 4: 1}
        await memory.settle()
        for shop in shops(memory):
            ((_, entry),) = shop.payments.given_up.items()
            assert (entry.effect.seat, entry.attempt_count) == (1, 3)
            assert "503" in entry.reason
        failed = [line for line in lines if line["event"] == "outbox.effect_failed"]
        given_up = [line for line in lines if line["event"] == "outbox.effect_given_up"]
        assert [(line["attempt"], line["effect"]) for line in failed + given_up] == [
            (attempt, repr(Charge(1, 20))) for attempt in (1, 2, 3)
        ]
        assert given_up[0]["outbox"] == "TicketShop.payments"

    memory.run(test())


def test_what_is_given_up_is_done_when_an_operator_retries_it_with_the_same_key(memory: MemoryCluster) -> None:
    async def test() -> None:
        await buy(memory, 1)
        is_down = True
        receiver = Receiver(lambda effect: is_down)
        worker = OutboxWorker(await memory.connect(), receiver.charge, effect=Charge, attempt_limit=2)
        running = asyncio.create_task(worker.run())
        while not shops(memory)[0].payments.given_up:
            await memory.advance(0.1)
        is_down = False
        calls = OutboxCalls(await memory.connect())
        (key,) = shops(memory)[0].payments.given_up
        (found,) = await calls.find_all("payments")
        await calls.settle(found, [SettledRow(*key, SettledAs.RETRIED)])
        while not receiver.receipts:
            await memory.advance(0.1)
        running.cancel()
        assert [*receiver.receipts] == [str(key)]
        assert len(receiver.calls) == 3

    memory.run(test())


def test_an_operator_drops_an_effect_that_pauses(memory: MemoryCluster) -> None:
    async def test() -> None:
        await buy(memory, 1)
        receiver = Receiver(lambda effect: True)
        worker = OutboxWorker(await memory.connect(), receiver.charge, effect=Charge, first_pause_s=5)
        running = asyncio.create_task(worker.run())
        while not receiver.calls:
            await memory.advance(0.1)
        calls = OutboxCalls(await memory.connect())
        (found,) = await calls.find_all("payments")
        (key,) = shops(memory)[0].payments.pending
        await calls.settle(found, [SettledRow(*key, SettledAs.DROPPED)])
        await memory.advance(20)
        running.cancel()
        assert len(receiver.calls) == 1

    memory.run(test())


# Results


def test_the_service_learns_the_result_at_the_position_where_the_effect_is_settled(memory: MemoryCluster) -> None:
    async def test() -> None:
        await buy(memory, 30)
        receiver = Receiver(half_by_chance())
        worker = OutboxWorker(await memory.connect(), receiver.charge_and_say, effect=Charge, concurrency=8)
        await until(memory, lambda: is_empty(memory), worker)
        await memory.settle()
        for shop in shops(memory):
            assert sorted(shop.seats.values()) == sorted(f"paid {each}" for each in receiver.receipts.values())
            assert shop.charged_count == 30
        await memory.assert_identical()

    memory.run(test())


@pytest.mark.parametrize(
    ("receipt", "event", "facts"),
    [("wrong", "outbox.result_refused", "SeatTaken(seat=0)"), ("bug", "outbox.result_failed", "receipt=bug")],
)
def test_a_result_that_the_service_refuses_is_logged_and_the_effect_is_settled(
    logged: MemoryCluster, receipt: str, event: str, facts: str
) -> None:
    memory = logged

    async def test() -> None:
        await buy(memory, 1)

        async def charge(effect: PendingEffect[Charge]) -> Charged:
            return Charged(effect.payload.seat, receipt)

        with capture_logs() as lines:
            worker = OutboxWorker(await memory.connect(), charge, effect=Charge)
            await until(memory, lambda: is_empty(memory), worker)
        (line,) = [line for line in lines if line["event"] == event]
        assert facts in line["reason"]
        assert repr(Charged(0, receipt)) == line["result"]
        assert shops(memory)[0].seats == {0: "reserved"}
        memory.service_errors.clear()

    memory.run(test())


# Deaths


STEPS = tuple(
    f"{when} the {what}"
    for what in ("question", "charge", "settlement")
    for when in ("before", "during", "after")
    if (when, what) != ("during", "question")
)


class WorkerDied(BaseException):
    """The worker's process has ended."""


class Stumbling:
    """A client and a receiver that have something happen at one step, the second time that it comes."""

    def __init__(self, client: Any, receiver: Receiver, step: str, stumble: Callable[[], object]) -> None:
        self._client, self._receiver, self._step, self._stumble = client, receiver, step, stumble
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def query(self, payload: bytes, **settings: Any) -> Any:
        self._at("before the question")
        result = await self._client.query(payload, **settings)
        self._at("after the question")
        return result

    async def request(self, payload: bytes, **settings: Any) -> bytes:
        self._at("before the settlement")
        asked = asyncio.ensure_future(self._client.request(payload, **settings))
        try:
            await asyncio.sleep(0)
            self._at("during the settlement")
        except BaseException:
            asked.cancel()
            raise
        reply: bytes = await asked
        self._at("after the settlement")
        return reply

    async def charge(self, effect: PendingEffect[Charge]) -> Charged:
        self._at("before the charge")
        charged = asyncio.ensure_future(self._receiver.charge_and_say(effect))
        try:
            await asyncio.sleep(0.005)
            self._at("during the charge")
        except BaseException:
            charged.cancel()
            raise
        result = await charged
        self._at("after the charge")
        return result

    def _at(self, step: str) -> None:
        if step == self._step:
            self._count += 1
            if self._count == 2:
                self._stumble()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("dies", ["leader", "worker", "both"])
def test_each_seat_is_charged_once_whoever_dies_at_a_step(memory: MemoryCluster, step: str, dies: str) -> None:
    async def test() -> None:
        await buy(memory, 6)

        def stumble() -> None:
            if dies != "worker":
                memory.kill_leader()
            if dies != "leader":
                raise WorkerDied

        receiver, client = Receiver(), await memory.connect()
        stumbling: Any = Stumbling(client, receiver, step, stumble)
        worker = OutboxWorker(stumbling, stumbling.charge, effect=Charge, concurrency=3)
        if dies == "leader":
            await until(memory, lambda: is_empty(memory), worker)
            assert max(receiver.counts().values()) == 1, "the worker lived"
        else:
            with pytest.raises(WorkerDied):
                await worker.run()
            await client.aclose()
            again = OutboxWorker(await memory.connect(), receiver.charge_and_say, effect=Charge)
            await until(memory, lambda: is_empty(memory), again)
        await memory.settle()
        assert len(receiver.receipts) == 6, "a second charge of a seat had the key of the first"
        for shop in shops(memory):
            assert sorted(shop.seats.values()) == sorted(f"paid {each}" for each in receiver.receipts.values())
            assert shop.charged_count == 6
        await memory.assert_identical()

    memory.run(test())


def test_a_worker_goes_on_while_leaders_are_killed_one_after_the_other(memory: MemoryCluster) -> None:
    async def test() -> None:
        await buy(memory, 40)
        receiver = Receiver()

        async def charge(effect: PendingEffect[Charge]) -> Charged:
            result = await receiver.charge_and_say(effect)
            if len(receiver.calls) in (5, 17, 29):
                await memory.restart(memory.kill_leader())
            return result

        worker = OutboxWorker(await memory.connect(), charge, effect=Charge, concurrency=4)
        await until(memory, lambda: is_empty(memory), worker)
        assert set(receiver.counts().values()) == {1}
        await memory.settle()
        assert [shop.charged_count for shop in shops(memory)] == [40] * 3

    memory.run(test())


def test_a_worker_whose_session_has_ended_says_so(memory: MemoryCluster) -> None:
    async def test() -> None:
        client, receiver = await memory.connect(), Receiver()
        running = asyncio.create_task(OutboxWorker(client, receiver.charge, effect=Charge).run())
        await memory.advance(1)
        await client.aclose()
        with pytest.raises(SessionClosedError):
            await running

    memory.run(test())


# Wrong use


class Bill(Effect):
    number: int


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"effect": Bill}, "effect=Bill.*TicketShop.payments of Charge"),
        ({}, "found 2"),
        ({"name": "payments"}, "effect=Charge"),
        ({"name": "bills", "effect": Mail}, "name=|outbox='bills'"),
    ],
)
def test_a_worker_that_is_for_no_outbox_says_which_there_are(
    memory: MemoryCluster, settings: dict[str, Any], facts: str
) -> None:
    async def test() -> None:
        with pytest.raises(LocalProtocolError, match=facts):
            await OutboxWorker(await memory.connect(), Receiver().charge, **settings).run()

    memory.run(test())


@pytest.mark.parametrize("setting", ["concurrency", "attempt_limit"])
def test_numbers_that_cannot_be_used_are_refused(setting: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{setting}=0"):
        OutboxWorker(None, Receiver().charge, **{setting: 0})  # type: ignore[arg-type]


def test_what_a_handler_returns_is_a_command_of_the_service(memory: MemoryCluster) -> None:
    async def test() -> None:
        await buy(memory, 1)

        async def charge(effect: PendingEffect[Charge]) -> Any:
            return "receipt"

        with pytest.raises(ClusterError, match="type=str"):
            await OutboxWorker(await memory.connect(), charge, effect=Charge).run()

    memory.run(test())
