"""Typed clients with real members, in memory and on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.facts import has_facts
from tests.unit.service_api.typed import bank
from tests.unit.service_api.typed.bank import (
    Annotate,
    Balance,
    BalanceOf,
    Bank,
    Deposit,
    Overdrawn,
    Paid,
    Withdraw,
)
from trimaran import ClusterClient, RejectedError, RequestFailedError
from trimaran.client import QueryResult
from trimaran.client.typed import TypedClient, asks, calls
from trimaran.client.typed.exchange import read_error
from trimaran.cluster.testing import MemoryCluster
from trimaran.service_api.errors import (
    ClusterTimeoutError,
    ConfigurationError,
    LocalProtocolError,
    RemoteProtocolError,
)
from trimaran.service_api.service import ClusteredService
from trimaran.service_api.typed import Command, Query, Reply, ServiceError
from trimaran.service_api.typed.service import _encode_error
from trimaran.service_api.wire.payload_header import HEADER_BYTES, MAGIC, PayloadKind


class BankApi:
    deposit = calls(Deposit)
    withdraw = calls(Withdraw)
    annotate = calls(Annotate)
    balance = asks(BalanceOf)


class BankClient(BankApi, TypedClient):
    pass


class Untyped(ClusteredService):
    def on_query(self, payload: memoryview) -> bytes:
        return b"7"


@pytest.fixture
def memory() -> Iterator[MemoryCluster]:
    with MemoryCluster(Bank) as cluster:
        cluster.run(cluster.wait_for_leader())
        yield cluster


def test_commands_queries_errors_and_events_go_on_with_the_next_leader(memory: MemoryCluster) -> None:
    async def test() -> None:
        bank = BankClient(await memory.connect())
        events = bank.events(Paid)
        assert await bank.deposit("a", amount=5) == Balance(5)
        assert await anext(events) == Paid("a", 5)
        dead = memory.kill_leader()
        assert await bank.deposit(account="a", amount=2) == Balance(7)
        with pytest.raises(Overdrawn, match="balance=7"):
            await bank.withdraw("a", 50)
        assert await bank.balance("a") == Balance(7)
        with pytest.raises(RequestFailedError, match="oops"):
            await bank.annotate("a", "oops", is_mistaken=True)
        await memory.restart(dead)
        await memory.assert_identical()

    memory.run(test())


def test_a_limit_holds_for_the_first_use_of_a_class(memory: MemoryCluster) -> None:
    """The directory and the schema come before the message, and another first use may be before both."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        bank = BankClient(await memory.connect())
        memory.partition(["client"], [0, 1, 2])
        before, begun_s = asyncio.ensure_future(bank.call(Annotate("a", "x"), timeout_s=4)), loop.time()
        await asyncio.sleep(0)

        with pytest.raises(RejectedError, match=r"Deposit .*timeout_s=1"):
            await bank.call(Deposit("a", 5), timeout_s=1)
        with pytest.raises(ClusterTimeoutError, match=r"BalanceOf .*timeout_s=1"):
            await bank.ask(BalanceOf("a"), timeout_s=1)
        assert loop.time() - begun_s < 2.1
        assert not before.done()

        memory.heal()
        await before
        assert await bank.deposit("a", amount=5) == Balance(5)

    memory.run(test())


def test_every_member_has_the_same_after_a_snapshot(memory: MemoryCluster) -> None:
    async def test() -> None:
        bank = BankClient(await memory.connect())
        for number in range(20):
            await bank.deposit(f"account {number}", number)
        await memory.snapshot_and_restart()
        assert await bank.deposit("account 3", 1) == Balance(4)
        await memory.assert_identical()

    memory.run(test())


def test_a_second_client_announces_nothing_that_the_first_has(memory: MemoryCluster) -> None:
    async def test() -> None:
        first, second = BankClient(await memory.connect()), BankClient(await memory.connect())
        await first.deposit("a")
        known = len(memory.services[await memory.wait_for_leader()].known_schemas)
        await second.deposit("a")
        assert (known, len(memory.services[await memory.wait_for_leader()].known_schemas)) == (1, 1)

    memory.run(test())


def test_commands_run_in_the_order_in_which_they_were_begun_also_the_first_of_a_class(
    memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way of a class is found by queries, whose answers have no order."""
    real, waits_s = ClusterClient.query, iter(range(99, 0, -1))

    async def query(self: ClusterClient, payload: bytes, **rest: Any) -> QueryResult:
        await asyncio.sleep(next(waits_s) / 1_000)
        return await real(self, payload, **rest)

    monkeypatch.setattr(ClusterClient, "query", query)

    async def test() -> None:
        bank = BankClient(await memory.connect())
        begun = [bank.withdraw("a", 1) if number % 2 else bank.deposit("a", 2) for number in range(40)]
        balances = await asyncio.gather(*begun)
        assert [each.amount for each in balances] == [2 + number // 2 - number % 2 for number in range(40)]

    memory.run(test())
    assert next(waits_s) > 80, "each class is asked for once, and not by each call"


def test_a_value_of_another_type_is_refused_before_it_is_sent(memory: MemoryCluster) -> None:
    async def test() -> None:
        bank = BankClient(await memory.connect())
        with pytest.raises(RemoteProtocolError, match=r"Deposit.*amount"):
            await bank.deposit("a", amount="5")  # type: ignore[arg-type]

    memory.run(test())


class Said(Reply):
    amount: int
    currency: str


class Poorer(Reply):
    pass


class DepositForText(Command[str], name="Deposit"):
    account: str
    amount: int = 1


class DepositForMore(Command[Said], name="Deposit"):
    account: str
    amount: int = 1


class DepositForLess(Command[Poorer], name="Deposit"):
    account: str
    amount: int = 1


class BalanceForText(Query[str], name="BalanceOf"):
    account: str


@pytest.mark.parametrize(
    ("message", "facts"),
    [
        (DepositForText("a", 5), ("the reply to Deposit", "Balance", "str")),
        (DepositForMore("a", 5), ("the reply to Deposit", "currency")),
    ],
)
def test_a_command_whose_reply_this_program_cannot_read_is_refused_before_it_runs(
    memory: MemoryCluster, message: Command[Any], facts: tuple[str, ...]
) -> None:
    """It ran, and then its reply could not be read."""

    async def test() -> None:
        bank, other = BankClient(await memory.connect()), TypedClient(await memory.connect())
        await bank.deposit("a", amount=1)
        for _ in range(2):
            with pytest.raises(LocalProtocolError) as refused:
                await other.call(message)
            assert has_facts(refused.value, *facts)
        assert await bank.balance("a") == Balance(1)
        assert len(memory.services[await memory.wait_for_leader()].known_schemas) == 1

    memory.run(test())


def test_a_query_whose_answer_this_program_cannot_read_is_refused_before_it_is_sent(memory: MemoryCluster) -> None:
    async def test() -> None:
        with pytest.raises(LocalProtocolError, match="the reply to BalanceOf"):
            await TypedClient(await memory.connect()).ask(BalanceForText("a"))

    memory.run(test())


def test_a_reply_of_which_this_program_knows_fewer_fields_is_read(memory: MemoryCluster) -> None:
    async def test() -> None:
        assert await TypedClient(await memory.connect()).call(DepositForLess("a", 5)) == Poorer()

    memory.run(test())


def test_a_query_is_no_command_and_a_command_no_query() -> None:
    """A method that `calls` a query put an entry into the log that no service reads."""
    with pytest.raises(ConfigurationError, match=r"BalanceOf.*Command.*asks"):
        calls(BalanceOf)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"Deposit.*Query.*calls"):
        asks(Deposit)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"Paid expected a Command"):
        calls(Paid)  # type: ignore[arg-type]


def test_a_query_that_is_called_and_a_command_that_is_asked_are_not_sent(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = TypedClient(await memory.connect())
        assert await client.call(Deposit("a", 1)) == await client.ask(BalanceOf("a")) == Balance(1)
        with pytest.raises(LocalProtocolError, match="BalanceOf"):
            await client.call(BalanceOf("a"))  # type: ignore[arg-type]
        with pytest.raises(LocalProtocolError, match="Deposit"):
            await client.ask(Deposit("a"))  # type: ignore[arg-type]

    memory.run(test())


def test_an_untyped_service_is_told_from_a_typed_one() -> None:
    async def test(cluster: MemoryCluster) -> None:
        bank = BankClient(await cluster.connect())
        with pytest.raises((LocalProtocolError, RemoteProtocolError), match="no TypedService"):
            await bank.deposit("a")

    with MemoryCluster(Untyped) as cluster:
        cluster.run(test(cluster))


def test_an_error_that_this_program_does_not_have_has_its_name_and_values() -> None:
    data = bytes((MAGIC, PayloadKind.ERROR)) + bytes(HEADER_BYTES - 2) + b"\x05\0Other\x92\x01\xa1x"

    assert str(read_error(data)) == "UnknownServiceError(error_name='Other', values=[1, 'x'])"


def test_of_two_errors_of_one_name_the_one_beside_the_message_is_raised() -> None:
    class Overdrawn(ServiceError):
        balance: int

    Overdrawn.__module__ = "another_service"
    data = _encode_error(Overdrawn(balance=3))

    assert isinstance(read_error(data, home="another_service"), Overdrawn)
    assert isinstance(read_error(data, home=Bank.__module__), bank.Overdrawn)


def test_of_two_errors_of_one_name_the_one_of_the_same_package_is_raised() -> None:
    """Errors often have a module of their own beside that of the messages."""

    class Overdrawn(ServiceError):
        balance: int

    Overdrawn.__module__ = "shop.errors"
    data = _encode_error(Overdrawn(balance=3))
    beside = Bank.__module__.rpartition(".")[0] + ".messages"

    assert isinstance(read_error(data, home="shop.messages"), Overdrawn)
    assert isinstance(read_error(data, home=beside), bank.Overdrawn)


def test_a_query_in_call_and_a_command_in_ask_are_told_the_other_one(memory: MemoryCluster) -> None:
    async def test() -> None:
        bank: Any = BankClient(await memory.connect())
        with pytest.raises(LocalProtocolError, match=r"BalanceOf.*use `ask`"):
            await bank.call(BalanceOf("a"))
        with pytest.raises(LocalProtocolError, match=r"Deposit.*use `call`"):
            await bank.ask(Deposit("a", 5))
        with pytest.raises(LocalProtocolError, match=r"Deposit is a class.*Deposit\(\.\.\.\)"):
            await bank.call(Deposit)
        with pytest.raises(LocalProtocolError, match=r"str expected a Command"):
            await bank.call("deposit")
        await bank.cluster.aclose()

    memory.run(test())
