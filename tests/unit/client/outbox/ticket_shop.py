"""The typed service that tests of declared outboxes run: it sells seats, and charges for them by an outbox."""

from __future__ import annotations

from trimaran import (
    Command,
    Context,
    Effect,
    Outbox,
    Query,
    ServiceError,
    TypedService,
    answers,
    handles,
    outbox,
    state,
)


class Charge(Effect):
    seat: int
    amount: int


class Mail(Effect):
    text: str


class Buy(Command[int]):
    seat: int
    is_refused: bool = False


class Charged(Command[None]):
    seat: int
    receipt: str


class Sold(Query[dict[int, str]]):
    pass


class SeatTaken(ServiceError):
    seat: int


class TicketShop(TypedService):
    seats: dict[int, str] = state()
    charged_count: int = state()
    payments: Outbox[Charge] = outbox(effect_limit=2_000)
    mails: Outbox[Mail] = outbox()

    @handles(Buy)
    def buy(self, ctx: Context, message: Buy) -> int:
        ctx.effect(Charge(message.seat, 20))
        self.mails.add(Mail(f"seat {message.seat}"))
        if message.is_refused or message.seat in self.seats:
            raise SeatTaken(seat=message.seat)
        self.seats[message.seat] = "reserved"
        return len(self.seats)

    @handles(Charged)
    def charged(self, ctx: Context, message: Charged) -> None:
        self.charged_count += 1
        if message.receipt == "wrong":
            raise SeatTaken(seat=message.seat)
        if message.receipt == "bug":
            raise ValueError(f"receipt={message.receipt}")
        self.seats[message.seat] = f"paid {message.receipt}"

    @answers(Sold)
    def sold(self, ctx: Context, message: Sold) -> dict[int, str]:
        return dict(self.seats)
