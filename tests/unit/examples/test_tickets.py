"""The tickets of the examples: each card is charged once, whichever process dies at whichever step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from examples.tickets import PRICE_CENTS, Buy, CardProvider, Cashier, Charge, SeatTaken, StatusOf, Tickets
from trimaran import Command, OutboxWorker, PendingEffect, TypedClient
from trimaran.cluster.testing import MemoryCluster, TypedHarness


def test_a_buyer_who_is_refused_is_charged_nothing() -> None:
    shop = TypedHarness(Tickets)
    shop.call(Buy(17, "ann"))

    with pytest.raises(SeatTaken):
        shop.call(Buy(17, "bob"))

    assert [*shop.service.payments.pending.values()] == [Charge(17, "ann", PRICE_CENTS)]


class WorkerDied(BaseException):
    """The worker's process has ended."""


STEPS = ("before the charge", "after the charge", "after the result")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("who", ["leader", "worker", "both"])
def test_each_card_is_charged_once_whoever_dies_at_a_step(step: str, who: str) -> None:
    with MemoryCluster(Tickets) as cluster:

        async def test() -> None:
            buyer, provider = TypedClient(await cluster.connect()), CardProvider()
            for seat, card in enumerate(["ann", "empty", "bob"]):
                await buyer.call(Buy(seat, card))
            await run_worker(cluster, provider, step, who)
            await run_worker(cluster, provider, "", who)  # the next one finishes what is left

            assert sorted(provider.receipts.values()) == ["receipt 1", "receipt 2"]
            seats = [await buyer.ask(StatusOf(seat)) for seat in range(3)]
            assert seats[1] == "free"
            assert {seats[0], seats[2]} == {"sold, receipt 1", "sold, receipt 2"}
            await cluster.assert_identical()

        cluster.run(test())


async def run_worker(cluster: MemoryCluster, provider: CardProvider, step: str, who: str) -> None:
    """Have a worker run until it has nothing to do, or dies at a step of its second charge."""
    cashier, count = Cashier(provider), 0

    def die(at: str) -> None:
        nonlocal step
        if at == step and count == 2:
            step = ""
            if who != "worker":
                cluster.kill_leader()
            if who != "leader":
                raise WorkerDied

    async def charge(effect: PendingEffect[Charge]) -> Command[None]:
        nonlocal count
        count += 1
        die("before the charge")
        result = await cashier.charge(effect)
        die("after the charge")
        asyncio.get_running_loop().call_later(0.0005, watch, lambda: die("after the result"))
        return result

    died: list[WorkerDied] = []

    def watch(call: Callable[[], None]) -> None:
        try:
            call()
        except WorkerDied as error:
            died.append(error)

    client = await cluster.connect()
    running = asyncio.create_task(OutboxWorker(client, charge, effect=Charge).run())
    while not died and not running.done() and any(shop.payments.pending for shop in shops(cluster)):
        await cluster.advance(0.01)
    running.cancel()
    await asyncio.wait([running])
    await client.aclose()


def shops(cluster: MemoryCluster) -> list[Tickets]:
    return [service for service in cluster.services.values() if isinstance(service, Tickets)]


def test_a_card_that_cannot_be_read_is_given_up_and_the_others_are_charged() -> None:
    with MemoryCluster(Tickets) as cluster:

        async def test() -> None:
            buyer, provider = TypedClient(await cluster.connect()), CardProvider()
            for seat, card in enumerate(["unreadable", "bob"]):
                await buyer.call(Buy(seat, card))
            cashier = Cashier(provider)
            worker = OutboxWorker(await cluster.connect(), cashier.charge, effect=Charge, attempt_limit=5)
            running = asyncio.create_task(worker.run())
            while any(shop.payments.pending for shop in shops(cluster)):
                await cluster.advance(0.1)
            running.cancel()

            assert [await buyer.ask(StatusOf(seat)) for seat in range(2)] == ["reserved", "sold, receipt 1"]
            ((_, entry),) = shops(cluster)[0].payments.given_up.items()
            assert (entry.effect.card, entry.attempt_count) == ("unreadable", 5)
            assert "500" in entry.reason

        cluster.run(test())
