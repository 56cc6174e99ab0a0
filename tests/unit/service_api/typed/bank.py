"""A bank, written as an author would, for the tests of typed services."""

from __future__ import annotations

from dataclasses import dataclass, field

from trimaran.service_api.typed import (
    Command,
    Context,
    Event,
    Query,
    Reply,
    ServiceError,
    TimerMessage,
    TypedService,
    answers,
    handles,
    on_timer,
    state,
)


class Balance(Reply):
    amount: int


class Deposit(Command[Balance]):
    account: str
    amount: int = 1


class Withdraw(Command[Balance]):
    account: str
    amount: int


class Annotate(Command[list[str]]):
    """Adds a note to an account; with a mistake, if wished."""

    account: str
    note: str
    is_mistaken: bool = False


class PayInterest(Command[int]):
    account: str
    after_s: float


class Cancel(Command[bool]):
    timer_id: int


class Empty(Command[None]):
    """Removes all accounts, and then says no."""


class BalanceOf(Query[Balance]):
    account: str


class Meddle(Query[int]):
    """A query whose author has made a mistake: it changes the state."""

    way: str


class Overdrawn(ServiceError):
    balance: int


class Paid(Event):
    account: str
    amount: int


class Interest(TimerMessage):
    account: str


@dataclass
class Notes:
    texts: list[str] = field(default_factory=list)


class Bank(TypedService):
    events = (Paid,)

    accounts: dict[str, int] = state()
    notes: dict[str, Notes] = state()
    journal_of_names: list[str] = state()
    payment_count: int = state()

    @handles(Deposit)
    def deposit(self, ctx: Context, message: Deposit) -> Balance:
        self.accounts[message.account] = self.accounts.get(message.account, 0) + message.amount
        self.payment_count += 1
        ctx.send(Paid(message.account, message.amount))
        return Balance(self.accounts[message.account])

    @handles(Withdraw)
    def withdraw(self, ctx: Context, message: Withdraw) -> Balance:
        before = self.accounts.get(message.account, 0)
        self.accounts[message.account] = before - message.amount
        self.journal_of_names.append(message.account)
        self.payment_count += 1
        ctx.broadcast(Paid(message.account, -message.amount))
        ctx.schedule(Interest(message.account), after=1)
        if before < message.amount:
            raise Overdrawn(before)
        return Balance(self.accounts[message.account])

    @handles(Annotate)
    def annotate(self, ctx: Context, message: Annotate) -> list[str]:
        notes = self.notes.setdefault(message.account, Notes())
        notes.texts.append(message.note)
        if message.is_mistaken:
            raise KeyError(message.note)
        return notes.texts

    @handles(PayInterest)
    def pay_interest(self, ctx: Context, message: PayInterest) -> int:
        return ctx.schedule(Interest(message.account), after=message.after_s)

    @handles(Cancel)
    def cancel(self, ctx: Context, message: Cancel) -> bool:
        return ctx.cancel(message.timer_id)

    @handles(Empty)
    def empty(self, ctx: Context, message: Empty) -> None:
        self.accounts.clear()
        self.notes = {}
        self.journal_of_names = ["nobody"]
        raise Overdrawn(0)

    @on_timer(Interest)
    def interest(self, ctx: Context, message: Interest) -> None:
        self.accounts[message.account] *= 2

    @answers(BalanceOf)
    def balance(self, ctx: Context, message: BalanceOf) -> Balance:
        return Balance(self.accounts[message.account])

    @answers(Meddle)
    def meddle(self, ctx: Context, message: Meddle) -> int:
        if message.way == "assign":
            self.payment_count = 7
        elif message.way == "write":
            self.accounts["a"] = 7
        elif message.way == "mutate":
            self.notes["a"].texts.clear()
        elif message.way == "iterate":
            for notes in self.notes.values():
                notes.texts.append("x")
        elif message.way == "append":
            self.journal_of_names.append("x")
        elif message.way == "schedule":
            ctx.schedule(Interest("a"), after=1)
        elif message.way == "random":
            return ctx.random.randrange(7)
        return len(self.notes)
