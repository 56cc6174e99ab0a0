"""Two instances of a typed service are compared by what each entry changed, and differences are named by field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.facts import has_facts
from trimaran import ServiceDivergedError
from trimaran.cluster.testing import TypedHarness
from trimaran.service_api.session import ClientSession
from trimaran.service_api.state_pair import pair_states
from trimaran.service_api.typed import (
    Command,
    Context,
    ServiceError,
    TimerMessage,
    TypedService,
    handles,
    on_timer,
    state,
)


@dataclass
class Order:
    amount: int = 0
    note: str = field(default="", compare=False)


@dataclass(frozen=True)
class Price:
    amount: int
    note: str = field(default="", compare=False)


class Do(Command[int]):
    """Does what a test says."""

    name: str


class Refused(ServiceError):
    pass


class Ring(TimerMessage):
    name: str


def change_all(shop: Any, own: int) -> None:
    shop.amounts.update(a=1)
    shop.prices.update(a=Price(1, "x"))
    shop.amounts = {"z": 2}
    shop.amounts.update(y=3)
    shop.price = Price(2, "x")
    shop.names.append("x")
    shop.orders["kept"].note = "x"
    shop.total = 9


ACTIONS: dict[str, Callable[[Any, int], None]] = {
    "scalar": lambda shop, own: setattr(shop, "total", own),
    "key": lambda shop, own: shop.amounts.update(a=own),
    "removed key": lambda shop, own: shop.amounts.pop("kept") if shop.is_second else None,
    "other key": lambda shop, own: shop.amounts.update({f"k{own}": 1}),
    "record": lambda shop, own: shop.prices.update(a=Price(1, f"n{own}")),
    "value in place": lambda shop, own: setattr(shop.orders["kept"], "note", f"n{own}"),
    "list in place": lambda shop, own: shop.names.append(f"n{own}"),
    "dict assigned": lambda shop, own: setattr(shop, "amounts", {"a": own}),
    "record assigned": lambda shop, own: setattr(shop, "price", Price(1, f"n{own}")),
    "nan": lambda shop, own: setattr(shop, "rate", float("nan")),
    "nan in a dict": lambda shop, own: shop.rates.update(a=float("nan")),
    "equal": change_all,
    "past the journal": lambda shop, own: dict.__setitem__(shop.amounts, "a", own),
}
"""What is done, given a number that differs between the two instances."""


class Shop(TypedService):
    """Its instances know which one they are, as none should."""

    total: int = state()
    rate: float = state()
    price: Price = state(default=Price(0))
    amounts: dict[str, int] = state(factory=lambda: {"kept": 1})
    rates: dict[str, float] = state()
    prices: dict[str, Price] = state()
    orders: dict[str, Order] = state(factory=lambda: {"kept": Order()})
    names: list[str] = state()

    @property
    def is_second(self) -> bool:
        return id(self) in SECONDS

    @handles(Do)
    def do(self, ctx: Context, message: Do) -> int:
        name, _, how = message.name.partition("!")
        if how == "later":
            ctx.schedule(Ring(name), after=0.001)
            return 0
        ACTIONS[name](self, int(self.is_second))
        if how == "refused":
            raise Refused
        return 0

    @on_timer(Ring)
    def ring(self, ctx: Context, message: Ring) -> None:
        ACTIONS[message.name](self, int(self.is_second))


SECONDS: set[int] = set()


@pytest.fixture
def harness() -> TypedHarness[Shop]:
    made = TypedHarness(Shop, double_execution=True, strict=False)
    SECONDS.clear()
    second = made._container.doubles[0]._second
    SECONDS.add(id(second))
    return made


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("scalar", "state: total: expected=0 actual=1"),
        ("key", "state: amounts['a']: expected=0 actual=1"),
        ("removed key", "state: amounts['kept']: expected=1 actual=nothing"),
        ("other key", "amounts['k0']: expected=1 actual=nothing"),
        ("record", "state: prices['a']"),
        ("value in place", "state: orders['kept']"),
        ("list in place", "state: names[0]: expected='n0' actual='n1'"),
        ("dict assigned", "amounts['a']: expected=0 actual=1"),
        ("record assigned", "state: price"),
    ],
)
def test_what_an_entry_changed_otherwise_is_named_by_field(harness: TypedHarness[Shop], name: str, told: str) -> None:
    with pytest.raises(ServiceDivergedError) as failed:
        harness.call(Do(name))

    assert has_facts(str(failed.value), told)


def test_what_a_timer_changed_otherwise_is_found_at_its_entry(harness: TypedHarness[Shop]) -> None:
    harness.call(Do("key!later"))

    with pytest.raises(ServiceDivergedError, match=r"on_timer_event\(1, .*amounts\['a'\]: expected=0 actual=1"):
        harness.advance(10)


@pytest.mark.parametrize("name", ["nan", "nan in a dict", "equal"])
def test_equal_changes_are_no_difference(harness: TypedHarness[Shop], name: str) -> None:
    for _ in range(3):
        harness.call(Do(name))

    harness.restart()


@pytest.mark.parametrize("name", ["scalar", "key", "value in place", "list in place", "dict assigned"])
def test_what_is_undone_is_no_difference(harness: TypedHarness[Shop], name: str) -> None:
    with pytest.raises(Refused):
        harness.call(Do(f"{name}!refused"))

    harness.restart()


def test_a_difference_after_an_assigned_dict_is_found(harness: TypedHarness[Shop]) -> None:
    harness.call(Do("equal"))

    with pytest.raises(ServiceDivergedError, match=r"amounts\['a'\]: expected=0 actual=1"):
        harness.call(Do("key"))


def test_a_change_past_the_journal_is_found_at_the_snapshot(harness: TypedHarness[Shop]) -> None:
    harness.call(Do("past the journal"))

    with pytest.raises(ServiceDivergedError, match=r"on_take_snapshot\(\) state: amounts\['a'\]: expected=0 actual=1"):
        harness.snapshot()


def test_a_second_instance_of_a_snapshot_is_compared_from_there_on(harness: TypedHarness[Shop]) -> None:
    harness.call(Do("equal"))
    harness.snapshot()
    second = harness._container.doubles[0]._second
    SECONDS.add(id(second))

    with pytest.raises(ServiceDivergedError, match=r"names\[1\]: expected='n0' actual='n1'"):
        harness.call(Do("list in place"))


def test_a_class_that_overrides_a_callback_of_the_log_is_compared_as_a_whole() -> None:
    class Messages(Shop):
        def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
            self.names.append(str(id(self)))  # no journal is open

    harness = TypedHarness(Messages, double_execution=True, strict=False)

    assert pair_states(harness.service, harness.service) is None
    with pytest.raises(ServiceDivergedError, match=r"state: names\[0\]: expected="):
        harness.offer(b"x")
