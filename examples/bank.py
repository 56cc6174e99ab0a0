"""A bank: accounts that never go below zero, transfers that happen once, interest that is paid by a timer.

trimaran up --service bank:Bank --service-dir examples --port 9000   # in one terminal
python examples/bank.py   # in another one
"""

from __future__ import annotations

from trimaran import (
    Command,
    Context,
    Event,
    Query,
    Reply,
    ServiceError,
    SyncTypedClient,
    TimerMessage,
    TypedClient,
    TypedService,
    answers,
    asks,
    calls,
    handles,
    on_timer,
    state,
)


class Balance(Reply):
    amount: int


class Deposit(Command[Balance]):
    account: str
    amount: int


class Transfer(Command[Balance]):
    source: str
    target: str
    amount: int


class PromiseInterest(Command[int]):
    account: str
    percent: int
    after_s: float


class BalanceOf(Query[Balance]):
    account: str


class Overdrawn(ServiceError):
    balance: int


class Transferred(Event):
    source: str
    target: str
    amount: int


class Interest(TimerMessage):
    account: str
    percent: int


class Bank(TypedService):
    """Runs on every member. Its state is what is declared, and nothing else."""

    events = (Transferred,)

    accounts: dict[str, int] = state()

    @handles(Deposit)
    def deposit(self, ctx: Context, message: Deposit) -> Balance:
        self.accounts[message.account] = self.accounts.get(message.account, 0) + message.amount
        return Balance(self.accounts[message.account])

    @handles(Transfer)
    def transfer(self, ctx: Context, message: Transfer) -> Balance:
        self.deposit(ctx, Deposit(message.target, message.amount))
        left = self.accounts[message.source] = self.accounts.get(message.source, 0) - message.amount
        if left < 0:
            raise Overdrawn(balance=left + message.amount)  # all of the above is undone
        ctx.broadcast(Transferred(message.source, message.target, message.amount))
        return Balance(left)

    @handles(PromiseInterest)
    def promise_interest(self, ctx: Context, message: PromiseInterest) -> int:
        return ctx.schedule(Interest(message.account, message.percent), after=message.after_s)

    @on_timer(Interest)
    def pay_interest(self, ctx: Context, message: Interest) -> None:
        self.accounts[message.account] += self.accounts[message.account] * message.percent // 100

    @answers(BalanceOf)
    def balance(self, ctx: Context, message: BalanceOf) -> Balance:
        return Balance(self.accounts.get(message.account, 0))


class BankApi:
    deposit = calls(Deposit)
    transfer = calls(Transfer)
    promise_interest = calls(PromiseInterest)
    balance = asks(BalanceOf)


class BankClient(BankApi, TypedClient):
    """`async with BankClient.connect([...]) as bank: await bank.deposit("a", 5)`"""


class SyncBankClient(BankApi, SyncTypedClient):
    """`with SyncBankClient.connect([...]) as bank: bank.deposit("a", 5)`"""


if __name__ == "__main__":
    with SyncBankClient.connect(["127.0.0.1:9000", "127.0.0.1:9010", "127.0.0.1:9020"]) as client:
        print(client.deposit("alice", amount=100), client.transfer("alice", "bob", 30), client.balance("bob"))
