"""What type checkers see of a typed client: mypy reads it with all tests, `test_type_checkers` has pyright read it.

Each line that must be refused says so; a checker that takes it complains of the comment.
"""

from __future__ import annotations

from typing import assert_type

from tests.unit.service_api.typed.bank import Balance, BalanceOf, Deposit, Paid
from trimaran import SyncTypedClient, TypedClient, asks, calls
from trimaran.client import GroupedClient, PasswordCredentials
from trimaran.service_api.errors import ClusterError


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
    assert_type(await bank.call_many([Deposit("a", 5)]), list[Balance])
    assert_type(await bank.call_many([Deposit("a", 5)], return_exceptions=True), list[Balance | ClusterError])
    assert_type(blocking.call_many([Deposit("a", 5)], timeout_s=1), list[Balance])
    assert_type(await bank.deposit("a", amount=5), Balance)
    assert_type(await bank.balance(account="a"), Balance)
    assert_type(blocking.deposit("a"), Balance)
    async for event in bank.events(Paid):
        assert_type(event, Paid)


async def connect() -> None:
    assert_type(await BankClient.connect("127.0.0.1:9000", credentials=b"a", connect_timeout_s=1), BankClient)
    async with BankClient.connect(["127.0.0.1:9000"], tls=None, reconnect_max_s=2.0) as bank:
        assert_type(bank, BankClient)
    async with GroupedClient.connect(group_count=4, credentials=PasswordCredentials("ops", b"b")) as groups:
        assert_type(await groups.typed_for_key("a", BankClient), BankClient)
    with SyncBankClient.connect("127.0.0.1:9000", client_info="a", close_timeout_s=0) as blocking:
        assert_type(blocking, SyncBankClient)


async def connect_wrongly() -> None:
    BankClient.connect(credential=b"a")  # type: ignore[call-arg]
    BankClient.connect(credentials="a")  # type: ignore[arg-type]
    SyncBankClient.connect(credential=b"a")  # type: ignore[call-arg]
    SyncBankClient(["127.0.0.1:9000"])  # type: ignore[call-arg]


async def wrong(bank: BankClient, blocking: SyncBankClient) -> None:
    await bank.deposit("a", amount="5")  # type: ignore[arg-type]
    await bank.deposit("a", amuont=5)  # type: ignore[call-arg]
    await bank.deposit()  # type: ignore[call-arg]
    await bank.call(BalanceOf("a"))  # type: ignore[arg-type]
    await bank.call(Paid("a", 5))  # type: ignore[arg-type]
    blocking.balance(7)  # type: ignore[arg-type]
    await blocking.balance("a")  # type: ignore[misc]
