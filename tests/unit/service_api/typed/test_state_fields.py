"""Declared state of two versions of a service: compared by value and field, whatever else their code declares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.facts import has_facts
from trimaran.cluster.testing import TypedHarness
from trimaran.service_api.typed import Command, Context, TypedService, handles, state
from trimaran.service_api.typed.state_fields import (
    DeclaredValue,
    DeclaredValues,
    ValueDigest,
    compare_field_digests,
    compare_fields,
    describe_message,
    digest_field,
    digest_fields,
    read_fields,
)


class Put(Command[None]):
    key: str
    amount: int


@dataclass
class Account:
    amount: int = 0


class Bank(TypedService, name="bank"):
    accounts: dict[str, Account] = state()
    total: int = state()
    names: set[str] = state()

    @handles(Put)
    def put(self, ctx: Context, message: Put) -> None:
        self.accounts.setdefault(message.key, Account()).amount += message.amount
        self.total += message.amount
        self.names.add(message.key)


@dataclass
class NotedAccount:
    amount: int = 0
    notes: list[str] = field(default_factory=list)


NotedAccount.__name__ = "Account"


class Grown(TypedService, name="bank"):
    """The same with a field more, a record that has grown, and a wider number."""

    accounts: dict[str, NotedAccount] = state()
    total: float = state()
    names: set[str] = state()
    notes: list[str] = state()

    @handles(Put)
    def put(self, ctx: Context, message: Put) -> None:
        self.accounts.setdefault(message.key, NotedAccount()).amount += message.amount
        self.total += message.amount
        self.names.add(message.key)


class Forgetful(Grown):
    @handles(Put)
    def put(self, ctx: Context, message: Put) -> None:
        super().put(ctx, message)
        if message.key == "ben":
            self.accounts["ben"].amount -= 1


def state_of(service: type[Any], *puts: Put) -> DeclaredValues:
    harness = TypedHarness(service)
    for put in puts:
        harness.call(put)
    found = read_fields(harness.snapshot())
    assert found is not None
    return found


PUTS = Put("ann", 1), Put("ben", 2)


def test_what_both_versions_know_is_equal_and_the_rest_is_named() -> None:
    found = compare_fields(state_of(Bank, *PUTS), state_of(Grown, *PUTS))

    assert (found.differences, found.only_expected) == ([], [])
    assert sorted(found.only_actual) == ["accounts[].notes", "notes"]


def test_a_value_that_differs_is_told_by_field_and_key() -> None:
    found = compare_fields(state_of(Bank, *PUTS), state_of(Forgetful, *PUTS), sides=("old", "new"))

    assert found.differences == ["accounts['ben'].amount: old=2 new=1"]


def test_the_order_of_keys_is_no_difference() -> None:
    found = compare_fields(state_of(Bank, *PUTS), state_of(Bank, *reversed(PUTS)))

    assert found.differences == []


def test_a_digest_that_was_kept_is_that_of_a_version_with_more_fields() -> None:
    kept = digest_fields(state_of(Bank, *PUTS))

    same, other = (compare_field_digests(kept, state_of(service, *PUTS)) for service in (Grown, Forgetful))

    assert (same.differences, same.only_expected) == ([], [])
    assert sorted(same.only_actual) == ["accounts[].notes", "notes"]
    (difference,) = other.differences
    assert has_facts(difference, "accounts", "'amount': 1")


def test_a_record_that_has_lost_a_field_is_named_and_not_compared() -> None:
    kept = digest_fields(state_of(Grown, *PUTS))

    found = compare_field_digests(kept, state_of(Bank, *PUTS))

    assert sorted(found.only_expected) == ["accounts[].notes", "notes"]
    assert found.differences == []


@pytest.mark.parametrize(
    ("schema", "value", "other_schema", "other_value"),
    [
        ("int", 1, "float", 1.0),
        (["dict", "str", "int"], {"a": 1, "b": 2}, ["dict", "str", "int"], {"b": 2, "a": 1}),
        (["union", "None", "int"], 1, "int", 1),
        (
            ["union", ["record", "A", [["x", "int", False]]], ["record", "B", [["y", "int", False]]]],
            {"y": 1},
            ["record", "B", [["y", "int", False], ["z", "int", True]]],
            {"y": 1, "z": 2},
        ),
        (
            ["record", "Node", [["left", ["union", ["self", "Node"], "None"], True], ["n", "int", True]]],
            {"left": {"left": None, "n": 1}, "n": 2},
            ["record", "Node", [["left", ["union", ["self", "Node"], "None"], True]]],
            {"left": {"left": None}},
        ),
        (["tuple", "int", "str"], [1, "a"], ["tuple", "float", "str"], [1.0, "a"]),
        ("float", float("nan"), "float", float("nan")),
    ],
    ids=["wider", "order", "union", "record of a union", "record in itself", "tuple", "nan"],
)
def test_values_are_compared_as_the_other_schema_has_them(
    schema: Any, value: Any, other_schema: Any, other_value: Any
) -> None:
    one, two = DeclaredValue(schema, value), DeclaredValue(other_schema, other_value)

    assert compare_fields(DeclaredValues({"f": one}), DeclaredValues({"f": two})).differences == []
    narrower = other_schema if "Node" in str(schema) else schema
    assert digest_field(one, narrower) == digest_field(two, narrower)


def test_a_large_dict_and_a_long_value_are_read_from_their_pieces() -> None:
    puts = [Put(f"{number:05}", number) for number in range(3_000)]

    found = state_of(Bank, *puts, Put("x" * 100_000, 7))

    assert len(found.fields["accounts"].value) == 3_001
    assert found.fields["accounts"].value["00005"] == {"amount": 5}


def test_messages_of_a_snapshot_are_told_by_field() -> None:
    one, two = (TypedHarness(Bank), TypedHarness(Bank))
    one.call(Put("ann", 1))
    two.call(Put("ann", 3))
    pairs = [pair for pair in zip(one.snapshot(), two.snapshot(), strict=True) if pair[0] != pair[1]]
    header = one.snapshot()[0]

    told = [describe_message(header, *pair) for pair in pairs]

    assert told == ["accounts['ann'].amount: expected=1 actual=3", "total: expected=1 actual=3"]
    assert describe_message(b"of another service", *pairs[0]) is None


def test_what_an_author_writes_after_the_fields_is_kept_as_messages() -> None:
    class Further(Bank):
        async def on_take_snapshot(self, snapshot: Any) -> None:
            await super().on_take_snapshot(snapshot)
            await snapshot.offer(b"more")

        async def on_start(self, cluster: Any, snapshot: Any) -> None:
            await super().on_start(cluster, snapshot)

    further = state_of(Further, *PUTS)

    assert further.others == [b"more"]
    assert has_facts("; ".join(compare_fields(state_of(Bank, *PUTS), further).differences), "more")
    assert read_fields([b"of another service"]) is None
    assert all(isinstance(each, ValueDigest) for each in digest_fields(further).values())
