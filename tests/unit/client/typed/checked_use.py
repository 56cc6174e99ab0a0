"""What type checkers see of a typed client: mypy reads it with all tests, `test_type_checkers` has pyright read it.

Each line that must be refused says so; a checker that takes it complains of the comment.
"""

from __future__ import annotations

from typing import assert_type

from tests.unit.service_api.typed.bank import Balance, BalanceOf, Deposit, Paid
from trimaran import SyncTypedClient, TypedClient, asks, calls


class BankApi:
    deposit = calls(Deposit)
    balance = asks(BalanceOf)


class BankClient(BankApi, TypedClient):
    pass


class SyncBankClient(BankApi, SyncTypedClient):
    pass


async def right(bank: BankClient, blocking: SyncBankClient) -> None:
    assert_type(await bank.call(Deposit("a", 5)), Balance)
    assert_type(await bank.ask(BalanceOf("a")), Balance)
    assert_type(await bank.deposit("a", amount=5), Balance)
    assert_type(await bank.balance(account="a"), Balance)
    assert_type(blocking.deposit("a"), Balance)
    async for event in bank.events(Paid):
        assert_type(event, Paid)


async def wrong(bank: BankClient, blocking: SyncBankClient) -> None:
    await bank.deposit("a", amount="5")  # type: ignore[arg-type]
    await bank.deposit("a", amuont=5)  # type: ignore[call-arg]
    await bank.deposit()  # type: ignore[call-arg]
    await bank.call(BalanceOf("a"))  # type: ignore[arg-type]
    await bank.call(Paid("a", 5))  # type: ignore[arg-type]
    blocking.balance(7)  # type: ignore[arg-type]
    await blocking.balance("a")  # type: ignore[misc]
