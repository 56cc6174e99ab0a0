"""The digest of a declared state: of one position, the same for equal states whatever their history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from trimaran.cluster.testing import TypedHarness
from trimaran.service_api.typed import Command, Context, Query, ServiceError, TypedService, answers, handles, state


@dataclass
class Order:
    amount: int = 0
    notes: list[str] = field(default_factory=list, compare=False)


class Set(Command[int]):
    key: int
    value: int


class Drop(Command[int]):
    key: int


class Note(Command[int]):
    key: int
    text: str


class Assign(Command[int]):
    count: int


class Fail(Command[int]):
    key: int


class Peek(Query[int]):
    key: int


class Refused(ServiceError):
    pass


class Shop(TypedService):
    amounts: dict[int, int] = state()
    orders: dict[int, Order] = state()
    nested: dict[str, dict[str, int]] = state()
    tags: set[str] = state()
    names: list[str] = state()
    rate: float = state()

    @handles(Set)
    def put(self, ctx: Context, message: Set) -> int:
        self.amounts[message.key] = message.value
        self.rate = float(message.value)
        return 0

    @handles(Drop)
    def drop(self, ctx: Context, message: Drop) -> int:
        self.orders.pop(message.key, None)
        return self.amounts.pop(message.key, 0)

    @handles(Note)
    def note(self, ctx: Context, message: Note) -> int:
        self.orders.setdefault(message.key, Order()).notes.append(message.text)
        self.names.append(message.text)
        return 0

    @handles(Assign)
    def assign(self, ctx: Context, message: Assign) -> int:
        self.amounts = {key: key for key in range(message.count)}
        return 0

    @handles(Fail)
    def fail(self, ctx: Context, message: Fail) -> int:
        self.amounts.pop(message.key, 0)
        self.amounts[-1] = 7
        for order in self.orders.values():
            order.amount += 1
        self.names.clear()
        raise Refused

    @answers(Peek)
    def peek(self, ctx: Context, message: Peek) -> int:
        return sum(order.amount for order in self.orders.values())


def opened() -> TypedHarness[Shop]:
    """Make a service that knows all schemas, which are state."""
    harness = TypedHarness(Shop, strict=False)
    for message in (Assign(0), Set(1, 1), Note(1, "n"), Drop(1)):
        harness.call(message)
    with suppress(Refused):
        harness.call(Fail(1))
    return harness


def filled(*, count: int = 300) -> TypedHarness[Shop]:
    harness = opened()
    for key in range(count):
        harness.call(Set(key, key * 3))
        harness.call(Note(key, f"n{key}"))
    return harness


def digests_of(service: TypedService, *, between: Iterator[object] | None = None) -> dict[str, bytes]:
    """Digest the state as it is now; after each piece something is done."""
    digest = service.begin_digest()
    assert digest is not None
    while not digest.advance(lambda: True):
        next(between or iter(()), None)
    return {name: each.digest for name, each in digest.fields.items()}


def test_equal_states_have_equal_digests_whatever_their_history() -> None:
    harness, other = filled(), opened()
    for key in reversed(range(300)):
        other.call(Note(key, f"n{key}"))
        other.call(Set(key, 0))
    for key in range(300):
        other.call(Set(key, key * 3))
    other.service.names = [*harness.service.names]
    expected = digests_of(harness.service)

    harness.restart()

    assert digests_of(harness.service) == digests_of(other.service) == expected


def test_digest_is_the_same_after_a_handler_that_failed() -> None:
    harness = filled()
    expected, keys = digests_of(harness.service), [*harness.service.amounts]

    with pytest.raises(Refused):
        harness.call(Fail(5))

    assert [*harness.service.amounts] != keys  # a key that was removed comes back as the last one
    assert digests_of(harness.service) == expected


def test_digest_of_a_field_that_was_migrated_is_that_of_the_value() -> None:
    class Old(TypedService, name="shop"):
        total: str = state(default="5")

    class New(TypedService, name="shop"):
        total: int = state()
        added: dict[str, int] = state()

        @staticmethod
        def migrate_total(old: str) -> int:
            return int(old)

    migrated = TypedHarness(New, snapshot=TypedHarness(Old).snapshot())
    fresh = TypedHarness(New)
    fresh.service.total = 5

    assert digests_of(migrated.service) == digests_of(fresh.service)


CHANGES: dict[str, Callable[[Shop], object]] = {
    "amounts": lambda shop: shop.amounts.update({7: 22}),
    "orders": lambda shop: shop.orders[7].notes.append("x"),
    "nested": lambda shop: shop.nested["a"].update(b=3),
    "tags": lambda shop: shop.tags.add("z"),
    "names": lambda shop: shop.names.append("x"),
    "rate": lambda shop: setattr(shop, "rate", 1.5),
}


@pytest.mark.parametrize("name", CHANGES)
def test_one_value_that_differs_changes_the_digest_of_its_field_alone(name: str) -> None:
    service = filled().service
    service.nested = {"a": {"b": 1, "c": 2}}
    before = digests_of(service)

    CHANGES[name](service)

    after = digests_of(service)
    assert [each for each in after if after[each] != before[each]] == [name]


def test_values_of_two_keys_that_are_swapped_change_the_digest() -> None:
    service = filled().service
    before = digests_of(service)["amounts"]

    service.amounts[1], service.amounts[2] = service.amounts[2], service.amounts[1]

    assert digests_of(service)["amounts"] != before


def test_order_of_sets_and_of_dicts_in_values_does_not_count() -> None:
    one, two = TypedHarness(Shop).service, TypedHarness(Shop).service
    one.nested, two.nested = {"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}
    one.tags, two.tags = {str(n) for n in range(50)}, {str(n) for n in reversed(range(50))}

    assert digests_of(one) == digests_of(two)


@pytest.mark.parametrize("seed", range(6))
def test_digest_is_of_the_position_where_it_began(seed: int) -> None:
    harness, random = filled(), Random(seed)
    expected = digests_of(harness.service)

    def change() -> Iterator[object]:
        while True:
            for _ in range(random.randrange(12)):
                key = random.randrange(350)
                message: Any = random.choice((Set(key, 1), Drop(key), Note(key, "later"), Fail(key), Fail(key)))
                with suppress(Refused):
                    harness.call(message)
                harness.ask(Peek(key))
            if random.random() < 0.1:
                harness.call(Assign(400))
            yield None

    assert digests_of(harness.service, between=change()) == expected
    assert digests_of(harness.service) != expected


def test_a_digest_that_is_closed_listens_no_more() -> None:
    harness = filled(count=3)
    digest = harness.service.begin_digest()
    assert digest is not None

    digest.close()

    assert not harness.service.__dict__["_TypedService__journal"]._listeners


def test_a_state_hash_of_the_author_counts() -> None:
    class Own(Shop):
        def state_hash(self) -> object:
            return 5

    assert TypedHarness(Own).service.begin_digest() is None
