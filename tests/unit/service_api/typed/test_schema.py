"""Which types can be written, and which bytes one version writes another one reads."""

from __future__ import annotations

import datetime
import enum
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, Optional

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.facts import has_facts
from trimaran.service_api.errors import RemoteProtocolError
from trimaran.service_api.typed import Command, Reply
from trimaran.service_api.typed.codec import MessageCodec, ValueCodec
from trimaran.service_api.typed.schema import Schema, find_change, join_types, schema_of, show_type

Cents = NewType("Cents", int)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Model(pydantic.BaseModel):
    size: Annotated[int, pydantic.Field(gt=0)]


class Part(msgspec.Struct):
    name: str
    size: int = 1


@dataclass
class Tree:
    name: str
    parts: list[Part] = field(default_factory=list)
    below: list[Tree] = field(default_factory=list)


class Everything(Command[None]):
    count: int
    share: float
    name: str
    data: bytes
    when: datetime.datetime
    day: datetime.date
    wait: datetime.timedelta
    key: uuid.UUID
    price: Decimal
    colour: Colour
    side: Literal["buy", "sell"]
    cents: Cents
    maybe: Optional[int]  # noqa: UP045 - older code writes it so
    either: int | str | None
    names: set[str]
    pair: tuple[int, str]
    row: tuple[int, ...]
    table: dict[str, list[Part]]
    model: Model
    tree: Tree
    is_on: bool = True


EVERYTHING = Everything(
    count=-5,
    share=0.25,
    name="ä",
    data=b"\x00\xff",
    when=datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=datetime.UTC),
    day=datetime.date(2026, 1, 2),
    wait=datetime.timedelta(days=1, microseconds=7),
    key=uuid.UUID(int=77),
    price=Decimal("1.10"),
    colour=Colour.BLUE,
    side="sell",
    cents=Cents(4),
    maybe=None,
    either="x",
    names={"b", "a", "c"},
    pair=(1, "x"),
    row=(1, 2, 3),
    table={"z": [Part("p")], "a": []},
    model=Model(size=3),
    tree=Tree("root", [Part("q", 2)], [Tree("leaf")]),
)


def test_a_message_of_every_type_comes_back_as_it_was() -> None:
    codec = MessageCodec(Everything)

    assert codec.decode(codec.check(EVERYTHING)) == EVERYTHING


def test_sets_are_written_in_one_order() -> None:
    codec: ValueCodec[set[str]] = ValueCodec(set[str], "names")

    assert {codec.encode(set(names)) for names in (["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"])} == {
        codec.encode({"a", "b", "c"})
    }


@dataclass
class Tagged:
    tags: set[str]
    amount: int = 0


def test_a_set_that_is_the_first_field_of_a_record_is_written_in_one_order() -> None:
    """The order was that of the process: members gave other replies and wrote other snapshots."""
    names = [f"name {number}" for number in range(40)]
    codec: ValueCodec[Tagged] = ValueCodec(Tagged, "a reply")

    assert codec.decode(codec.encode(Tagged({*names}))) == Tagged({*names})
    assert msgspec.msgpack.decode(codec.encode(Tagged({*names})))["tags"] == sorted(names)


class Nothing(Reply):
    pass


def test_a_record_without_fields_is_written() -> None:
    codec: ValueCodec[Nothing] = ValueCodec(Nothing, "a reply")

    assert codec.decode(codec.encode(Nothing())) == Nothing()


def test_a_model_is_validated_where_it_is_read() -> None:
    """A stranger's client does not validate."""
    codec = MessageCodec(Everything)
    fields = msgspec.msgpack.decode(codec.encode(EVERYTHING))
    fields[-3] = {"size": -1}

    with pytest.raises(RemoteProtocolError, match="Everything: "):
        codec.decode(msgspec.msgpack.encode(fields))


@given(name=st.text(), amount=st.integers(-(2**63), 2**63 - 1), tags=st.sets(st.text()))
def test_what_is_written_is_read(name: str, amount: int, tags: set[str]) -> None:
    codec = MessageCodec(Small)

    assert codec.decode(codec.encode(Small(name, amount, tags))) == Small(name, amount, tags)


class Small(Command[None]):
    name: str
    amount: int
    tags: set[str]


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    codec = MessageCodec(Small)
    try:
        message = codec.decode(data)
    except RemoteProtocolError:
        return
    assert codec.decode(codec.encode(message)) == message


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (int, int, None),
        (int, float, None),
        (float, int, "x was float, is int"),
        (int, int | None, None),
        (int | None, int, "x was int | None, is int"),
        (int | str, str | int | None, None),
        (int | str | None, int | None, "x was str, is int | None"),
        (list[int], list[float], None),
        (list[int], list[str], "x[] was int, is str"),
        (list[int], set[int], None),
        (list[int], dict[str, int], "x was list[int], is dict[str, int]"),
        (dict[str, int], dict[str, str], "x[] was int, is str"),
        (Literal["a"], Literal["a", "b"], None),
        (Literal["a", "b"], Literal["a"], "x was 'b' at times, is Literal['a']"),
        (Colour, int, "x was Colour, is int"),
        (Model, Model, None),
        (int, Tree, "x was int, is Tree"),
        (tuple[int, int], tuple[int], "x was tuple[int, int], is tuple[int]"),
    ],
)
def test_a_change_of_a_type_is_named_where_it_is_in_the_way(old: Any, new: Any, change: str | None) -> None:
    assert find_change(schema_of(old, "x"), schema_of(new, "x"), "x") == change


def test_a_record_may_gain_a_field_that_has_a_default_and_lose_any() -> None:
    @dataclass
    class Older:
        size: int
        gone: str

    @dataclass
    class Newer:
        size: int
        added: str = "?"

    @dataclass
    class Needy:
        size: int
        needed: str

    older = schema_of(Older, "x")

    assert find_change(older, schema_of(Newer, "x"), "x") is None
    assert has_facts(find_change(older, schema_of(Needy, "x"), "x"), "x.needed", "new", "default")


def test_a_record_within_itself_is_the_same_record_or_another_one() -> None:
    tree = schema_of(Tree, "x")

    assert find_change(tree, tree, "x") is None
    assert has_facts(find_change("int", ["self", "Tree"], "x"), "x", "int", "Tree")
    assert show_type(tree) == "Tree"


@pytest.mark.parametrize(
    ("old", "new", "joined"),
    [
        (int, int, "int"),
        (int, float, "float"),
        (float, int, "float"),
        (int, float | None, ["union", "float", "None"]),
        (int | None, float, ["union", "float", "None"]),
        (str | None, str, ["union", "str", "None"]),
        (int, str, ["union", "int", "str"]),
        (int | str, float | None, ["union", "float", "str", "None"]),
        (list[int], list[float], ["list", "float"]),
        (set[int], list[float], ["list", "float"]),
        (list[int], frozenset[int], ["union", ["list", "int"], ["frozenset", "int"]]),
        (dict[str, int], dict[str, float | None], ["dict", "str", ["union", "float", "None"]]),
        (dict[str, int], dict[int, int], ["union", ["dict", "str", "int"], ["dict", "int", "int"]]),
        (tuple[int, int], tuple[int, float], ["tuple", "int", "float"]),
        (tuple[int, int], tuple[int], ["union", ["tuple", "int", "int"], ["tuple", "int"]]),
        (Literal["a", "b"], Literal["c", "a"], ["literal", "c", "a", "b"]),
        (bool, int, ["union", "bool", "int"]),
    ],
)
def test_the_join_of_two_types_is_the_wider_one_or_a_union(old: Any, new: Any, joined: Schema) -> None:
    assert join_types(schema_of(old, "x"), schema_of(new, "x")) == joined


def test_the_join_of_records_has_the_fields_of_both() -> None:
    old = ["record", "Part", [["name", "str", False], ["size", "int", False], ["gone", "bool", False]]]
    new = ["record", "Part", [["name", "str", False], ["size", "float", False], ["note", "str", False]]]

    assert join_types(["union", old, "None"], new) == [
        "union",
        [
            "record",
            "Part",
            [["name", "str", False], ["size", "float", False], ["note", "str", True], ["gone", "bool", True]],
        ],
        "None",
    ]


PLAIN = st.sampled_from(["int", "float", "str", "bool", "None", "datetime", "Decimal", "bytes"])
CONSTANTS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, unique=True)
MEMBERS = st.dictionaries(st.sampled_from("XYZ"), st.sampled_from(["a", "b", "c"]), min_size=1)
LEAVES = PLAIN | CONSTANTS.map(lambda each: ["literal", *each]) | MEMBERS.map(lambda each: ["enum", "E", each])


def composed(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    fields = st.lists(st.tuples(st.sampled_from("pqrs"), inner, st.booleans()), unique_by=lambda each: each[0])
    members = st.lists(inner.filter(lambda each: each[0] != "union"), min_size=2, max_size=3, unique_by=str)
    return st.one_of(
        st.tuples(st.sampled_from(["list", "set", "frozenset"]), inner).map(list),
        st.tuples(st.just("dict"), PLAIN, inner).map(list),
        st.lists(inner, min_size=1, max_size=2).map(lambda each: ["tuple", *each]),
        st.builds(lambda name, each: ["record", name, [*map(list, each)]], st.sampled_from("AB"), fields),
        members.map(lambda each: ["union", *each]),
    )


SCHEMAS = st.recursive(LEAVES, composed, max_leaves=6)


@given(SCHEMAS, SCHEMAS)
def test_bytes_of_both_can_be_read_as_the_join_by_the_rules_of_services(old: Schema, new: Schema) -> None:
    joined = join_types(old, new)

    assert find_change(old, joined, "x") is None
    assert find_change(new, joined, "x") is None
    assert join_types(joined, joined) == joined
    assert join_types(old, old) == old
