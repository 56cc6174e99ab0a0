"""Typed services in the kit: a harness of messages, strategies from their classes, a typed client in a cluster."""

from __future__ import annotations

import datetime
import enum
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType

import msgspec
import pydantic
import pytest
from annotated_types import Ge, Le
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimaran import (
    Command,
    ConfigurationError,
    Context,
    Event,
    Query,
    Reply,
    ServiceError,
    TypedService,
    answers,
    handles,
    state,
)
from trimaran.client.typed import TypedClient
from trimaran.cluster.testing import MemoryCluster, ServiceHarness, TypedHarness, strategy_for
from trimaran.service_api.typed.codec import MessageCodec

from .counting import Counter


class Balance(Reply):
    amount: int


class Deposit(Command[Balance]):
    account: str
    amount: Annotated[int, Ge(1), Le(100)]


class Withdraw(Command[Balance]):
    account: str
    amount: int


class BalanceOf(Query[int]):
    account: str


class Deposited(Event):
    account: str


class NotEnough(ServiceError):
    balance: int


class Bank(TypedService):
    events = (Deposited,)
    accounts: dict[str, int] = state()

    @handles(Deposit)
    def deposit(self, ctx: Context, message: Deposit) -> Balance:
        self.accounts[message.account] = self.accounts.get(message.account, 0) + message.amount
        ctx.send(Deposited(message.account))
        return Balance(self.accounts[message.account])

    @handles(Withdraw)
    def withdraw(self, ctx: Context, message: Withdraw) -> Balance:
        balance = self.accounts.get(message.account, 0)
        if balance < message.amount:
            raise NotEnough(balance=balance)
        self.accounts[message.account] = balance - message.amount
        return Balance(balance - message.amount)

    @answers(BalanceOf)
    def balance_of(self, ctx: Context, message: BalanceOf) -> int:
        return self.accounts.get(message.account, 0)


def test_a_typed_harness_calls_asks_and_hears() -> None:
    bank = TypedHarness(Bank)

    assert bank.call(Deposit("a", 5)) == Balance(5)
    with pytest.raises(NotEnough) as raised:
        bank.call(Withdraw("a", 6))
    assert raised.value.balance == 5
    assert bank.ask(BalanceOf("a")) == 5
    assert bank.events(Deposited) == [Deposited("a")]

    bank.restart()

    assert bank.service.accounts == {"a": 5}
    assert bank.call(Withdraw("a", 5)) == Balance(0)


def test_an_untyped_service_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="expected a TypedService; ServiceHarness takes any"):
        TypedHarness(Counter)  # type: ignore[type-var]
    assert ServiceHarness(Bank).service.accounts == {}


def test_a_typed_client_uses_a_cluster_in_memory() -> None:
    async def test(cluster: MemoryCluster) -> None:
        bank = TypedClient(await cluster.connect())
        assert await bank.call(Deposit("a", 5)) == Balance(5)
        cluster.kill_leader()
        with pytest.raises(NotEnough):
            await bank.call(Withdraw("a", 6))
        await cluster.restart()
        await cluster.assert_identical()
        assert {service.accounts["a"] for service in cluster.services.values()} == {5}

    with MemoryCluster(Bank) as cluster:
        cluster.run(test(cluster))


@given(st.lists(strategy_for(Deposit, account=st.sampled_from(["a", "b"]))))
@settings(max_examples=30)
def test_deposits_add_up(deposits: list[Deposit]) -> None:
    bank = TypedHarness(Bank)

    for deposit in deposits:
        bank.call(deposit)

    assert sum(bank.service.accounts.values()) == sum(deposit.amount for deposit in deposits)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


Key = NewType("Key", int)


@dataclass(frozen=True)
class Leaf:
    key: Key
    colour: Colour


class Everything(Command[None]):
    flag: bool
    count: int
    ratio: float
    text: str
    data: bytes
    when: datetime.datetime
    day: datetime.date
    clock: datetime.time
    duration: datetime.timedelta
    identity: uuid.UUID
    price: Decimal
    leaves: list[Leaf]
    pair: tuple[int, str]
    many: tuple[int, ...]
    names: frozenset[str]
    table: dict[str, int | None]
    word: Literal["yes", "no"]
    few: Annotated[int, Ge(3), Le(5)]


class Packed(msgspec.Struct, Command[None]):
    leaf: Leaf
    others: set[int]


class Checked(pydantic.BaseModel, Command[None]):
    even: int
    amount: int = pydantic.Field(ge=1, le=9)
    code: str = pydantic.Field(min_length=2, max_length=3)

    @pydantic.field_validator("even")
    @classmethod
    def is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value


@pytest.mark.parametrize("message", [Everything, Packed, Checked, Leaf], ids=lambda message: message.__name__)
def test_what_is_drawn_can_be_sent_and_comes_back(message: type[Any]) -> None:
    codec = MessageCodec(message)

    @given(strategy_for(message))
    @settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
    def check(drawn: Any) -> None:
        assert codec.decode(codec.check(drawn)) == drawn

    check()


def test_constraints_hold() -> None:
    @given(strategy_for(Everything), strategy_for(Checked))
    @settings(max_examples=20, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
    def check(everything: Everything, checked: Checked) -> None:
        assert 3 <= everything.few <= 5
        assert (1 <= checked.amount <= 9, 2 <= len(checked.code) <= 3, checked.even % 2) == (True, True, 0)

    check()


def test_wrong_use_says_what_to_do() -> None:
    @dataclass
    class Unsendable:
        what: object

    with pytest.raises(ConfigurationError, match="of messages"):
        strategy_for(Deposit("a", 5))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"Deposit.*\['name'\]"):
        strategy_for(Deposit, name=st.text())
    with pytest.raises(ConfigurationError, match="bytes"):
        strategy_for(Unsendable)
