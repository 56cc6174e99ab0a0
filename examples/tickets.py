"""Tickets: a shop that charges cards at a payment provider, each card once, also when processes die.

trimaran up --service tickets:Tickets --service-dir examples --port 9000   # in one terminal
python -m examples.tickets work                                            # in another: the worker
python -m examples.tickets buy 17 ann                                      # and a buyer
python -m examples.tickets status 17

The shop does not call the provider. It keeps a `Charge` in its state, at the same position of the log as the seat that
it reserves. The worker makes the charge and brings back what came of it, as a command that the shop runs once.
"""

from __future__ import annotations

import asyncio
import os
import sys

from trimaran import (
    ClusterClient,
    Command,
    Context,
    Effect,
    Outbox,
    OutboxWorker,
    PendingEffect,
    Query,
    ServiceError,
    SyncTypedClient,
    TypedService,
    answers,
    asks,
    calls,
    handles,
    outbox,
    state,
)

PRICE_CENTS = 2_500
ENDPOINTS = os.environ.get("ENDPOINTS", "127.0.0.1:9000,127.0.0.1:9010,127.0.0.1:9020").split(",")


# What the shop wants done outside


class Charge(Effect):
    seat: int
    card: str
    amount_cents: int


# What buyers say, and what the worker brings back


class Buy(Command[str]):
    seat: int
    card: str


class CardCharged(Command[None]):
    seat: int
    receipt: str


class CardDeclined(Command[None]):
    seat: int


class StatusOf(Query[str]):
    seat: int


class SeatTaken(ServiceError):
    seat: int


class Tickets(TypedService):
    """Runs on every member, and calls nobody."""

    seats: dict[int, str] = state()
    payments: Outbox[Charge] = outbox()

    @handles(Buy)
    def buy(self, ctx: Context, message: Buy) -> str:
        ctx.effect(Charge(message.seat, message.card, PRICE_CENTS))
        if message.seat in self.seats:
            raise SeatTaken(seat=message.seat)  # the charge is undone, too
        self.seats[message.seat] = "reserved"
        return self.seats[message.seat]

    @handles(CardCharged)
    def card_charged(self, ctx: Context, message: CardCharged) -> None:
        self.seats[message.seat] = f"sold, {message.receipt}"

    @handles(CardDeclined)
    def card_declined(self, ctx: Context, message: CardDeclined) -> None:
        del self.seats[message.seat]

    @answers(StatusOf)
    def status_of(self, ctx: Context, message: StatusOf) -> str:
        return self.seats.get(message.seat, "free")


class TicketsClient(SyncTypedClient):
    buy = calls(Buy)
    status_of = asks(StatusOf)


# The world outside


class CardProvider:
    """Stands for a payment provider: a second charge with one key is answered with the receipt of the first."""

    def __init__(self) -> None:
        self.receipts: dict[str, str] = {}

    async def charge(self, key: str, card: str, amount_cents: int) -> str | None:
        """Charge a card; return the receipt, or None if the card is declined."""
        await asyncio.sleep(0.01)  # the network
        if card == "unreadable":
            raise ConnectionError("the provider answers: 500")
        if card == "empty":
            return None
        return self.receipts.setdefault(key, f"receipt {len(self.receipts) + 1}")


class Cashier:
    """Makes the charges, outside the cluster."""

    def __init__(self, provider: CardProvider) -> None:
        self.provider = provider

    async def charge(self, effect: PendingEffect[Charge]) -> CardCharged | CardDeclined:
        """Charge a card, and say what came of it. What this raises is tried again."""
        charge = effect.payload
        receipt = await self.provider.charge(str(effect.key), charge.card, charge.amount_cents)
        return CardDeclined(charge.seat) if receipt is None else CardCharged(charge.seat, receipt)

    async def work(self) -> None:
        """Make the charges of a cluster until the process ends, sixteen at once."""
        async with ClusterClient.connect(ENDPOINTS) as cluster:
            await OutboxWorker(cluster, self.charge, effect=Charge, concurrency=16, attempt_limit=5).run()


if __name__ == "__main__":
    if sys.argv[1] == "work":
        asyncio.run(Cashier(CardProvider()).work())
    with TicketsClient.connect(ENDPOINTS) as shop:
        print(shop.buy(int(sys.argv[2]), sys.argv[3]) if sys.argv[1] == "buy" else shop.status_of(int(sys.argv[2])))
