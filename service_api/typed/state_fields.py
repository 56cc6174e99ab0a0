"""The declared state of a snapshot, field by field: compared by value between versions of a service, and digested.

The problem: code with one field more writes other bytes, and so does a record that has grown inside of a field. The
states are the same as far as both versions know them. The idea: read the snapshot by the schemas in its header, without
the class, and see each value as the other schema would have it: records have only the fields that both know, and whole
numbers are ints or floats as the other has them. What only one side knows is named, not compared.

A digest is of a value as some schema has it. So a digest that was kept with its schema can be compared with the value
of other code later, unless a record has lost a field since.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from .codec import READ_ANY
from .schema import Schema
from .snapshots import END_BEGIN, SNAPSHOT_BEGIN

_FRAMING_BYTES: Final = 3
_SHOWN_COUNT: Final = 8
_SHOWN_LENGTH: Final = 80
_DIGEST_BYTES: Final = 16
_MISSING: Final = object()
_SIDES: Final = "expected", "actual"

_ENCODE: Final = msgspec.msgpack.Encoder().encode


class DeclaredValue(NamedTuple):
    """One declared field of a snapshot."""

    schema: Schema
    value: Any
    """Plain dicts, lists, strings and numbers, a record as a dict; keys of a dict are made hashable."""


@dataclass(slots=True)
class DeclaredValues:
    """The declared state of one snapshot."""

    fields: dict[str, DeclaredValue] = field(default_factory=dict)
    others: list[bytes] = field(default_factory=list)
    """What the author wrote after it."""


@dataclass(slots=True)
class ValueComparison:
    """What came of a comparison of two states."""

    differences: list[str] = field(default_factory=list)
    """The first values that differ, each as `field: expected=... actual=...`."""
    only_expected: list[str] = field(default_factory=list)
    """Fields, of the state or of records in it, that only the first state has."""
    only_actual: list[str] = field(default_factory=list)
    """Those that only the second one has."""


class ValueDigest(NamedTuple):
    """A field as it is kept to be compared later."""

    schema: Schema
    digest: str
    """Of the value as `schema` has it, in hex."""


def read_fields(messages: Iterable[bytes]) -> DeclaredValues | None:
    """Read the declared state from the messages of a whole snapshot; None if it is not of a typed service."""
    left = iter(messages)
    schemas = _schemas(next(left, b""))
    if schemas is None:
        return None
    state = DeclaredValues({name: DeclaredValue(schema, {} if _is_dict(schema) else None) for name, schema in schemas})
    names, body = [name for name, _ in schemas], b""
    for message in left:
        if message.startswith(END_BEGIN):
            break
        body += message[_FRAMING_BYTES:]
        if message[_FRAMING_BYTES - 1]:
            continue  # the value goes on in the next piece
        name = names[int.from_bytes(message[:2], "little")]
        schema, value = state.fields[name]
        read = read_value(schema, body)
        if _is_dict(schema):
            value.update(read.value)
        else:
            state.fields[name] = read
        body = b""
    state.others = list(left)
    return state


def read_value(schema: Schema, body: bytes) -> DeclaredValue:
    """Read what a snapshot has of a field: a value, or some pairs of a dict."""
    value = READ_ANY.decode(body)
    return DeclaredValue(schema, {_hashable(key): each for key, each in value} if _is_dict(schema) else value)


def compare_fields(
    expected: DeclaredValues, actual: DeclaredValues, *, sides: tuple[str, str] = _SIDES
) -> ValueComparison:
    """Compare two states by value, as far as both know the same fields; `sides` are the words for the two."""
    found = ValueComparison()
    only_expected, only_actual = dict.fromkeys(expected.fields), dict.fromkeys(actual.fields)
    shared = [name for name in only_expected if name in only_actual]
    for name in shared:
        del only_expected[name], only_actual[name]
    for name in shared:
        one, two = expected.fields[name], actual.fields[name]
        pair = (
            _View(one.schema, two.schema, only_expected, only_actual).of(name, one.value),
            _View(two.schema, one.schema, only_actual, only_expected).of(name, two.value),
        )
        found.differences += islice(_differences(name, *pair, sides), _SHOWN_COUNT - len(found.differences))
    if expected.others != actual.others:
        place = "messages after the declared state"
        found.differences.append(_difference(place, expected.others, actual.others, sides))
    found.only_expected, found.only_actual = [*only_expected], [*only_actual]
    return found


def digest_fields(state: DeclaredValues) -> dict[str, ValueDigest]:
    """Return a digest of each field, with the schema that it is of."""
    return {
        name: ValueDigest(each.schema, digest_field(each, each.schema).hex()) for name, each in state.fields.items()
    }


def digest_field(state: DeclaredValue, schema: Schema) -> bytes:
    """Digest the value of a field as another schema has it: equal values have equal digests, in every process."""
    return blake2b(
        _canonical(_View(state.schema, schema, {}, {}).of("", state.value)), digest_size=_DIGEST_BYTES
    ).digest()


def compare_field_digests(expected: Mapping[str, ValueDigest], actual: DeclaredValues) -> ValueComparison:
    """Compare a state with the digests of another one, as far as both know the same fields."""
    found = ValueComparison(only_expected=[name for name in expected if name not in actual.fields])
    for name, each in actual.fields.items():
        if name not in expected:
            found.only_actual.append(name)
            continue
        schema, digest = expected[name]
        gone: dict[str, None] = {}
        own: dict[str, None] = {}
        value = _View(each.schema, schema, own, gone).of(name, each.value)
        found.only_expected += gone
        found.only_actual += own
        if not gone and _digest(value).hex() != digest:
            found.differences.append(f"{name}: another value than before, now {shown(value)}")
    return found


def describe_message(header: bytes, expected: bytes, actual: bytes) -> str | None:
    """Say by field in what two messages of one snapshot differ, whose first is `header`; None if that has no fields."""
    schemas = _schemas(header)
    if schemas is None:
        return None
    first, second = (_read_piece(schemas, message) for message in (expected, actual))
    if first is None or second is None:
        return None
    name, schema, one = first
    other, _, two = second
    if name != other:
        return f"field: expected={name} actual={other}"
    if one is _MISSING or two is _MISSING:
        return f"{name}: another value"  # it is longer than a message
    one, two = (_View(schema, schema, {}, {}).of(name, value) for value in (one, two))
    return "; ".join(islice(_differences(name, one, two, _SIDES), _SHOWN_COUNT)) or f"{name}: another order"


def _read_piece(schemas: list[tuple[str, Schema]], message: bytes) -> tuple[str, Schema, Any] | None:
    number = int.from_bytes(message[:2], "little")
    if len(message) <= _FRAMING_BYTES or message.startswith(END_BEGIN) or number >= len(schemas):
        return None
    name, schema = schemas[number]
    try:
        return name, schema, read_value(schema, message[_FRAMING_BYTES:]).value
    except (msgspec.MsgspecError, ValueError, TypeError):
        return name, schema, _MISSING


def _schemas(header: bytes) -> list[tuple[str, Schema]] | None:
    if not header.startswith(SNAPSHOT_BEGIN):
        return None
    return [(name, schema) for name, schema in json.loads(header)["fields"]]


def _is_dict(schema: Schema) -> bool:
    return isinstance(schema, list) and schema[0] == "dict"


def _hashable(key: Any) -> Any:
    if isinstance(key, list):
        return tuple(map(_hashable, key))
    return tuple((each, _hashable(value)) for each, value in key.items()) if isinstance(key, dict) else key


class _Record(dict[str, Any]):
    """The fields of a record, where a dict has keys."""


class _View:
    """Values of one schema as another one has them: see the module.

    Args:
        own: The schema that values are of.
        other: The schema that they are seen by.
        only_own: Where fields of records are named that `other` does not have.
        only_other: Where those are named that `own` does not have.
    """

    def __init__(self, own: Schema, other: Schema, only_own: dict[str, None], only_other: dict[str, None]) -> None:
        self._schemas = own, other
        self._only = only_own, only_other
        self._records: tuple[dict[str, Schema], dict[str, Schema]] = ({}, {})

    def of(self, place: str, value: Any) -> Any:
        """Return a value."""
        return self._of(place, *self._schemas, value)

    def _of(self, place: str, own: Schema, other: Schema, value: Any) -> Any:
        own = self._resolve(0, own, value)
        other = self._resolve(1, other, value, own)
        if other == "float" and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if (own, other) == ("float", "int") and isinstance(value, float) and value.is_integer():
            return int(value)
        kind = own[0] if isinstance(own, list) else ""
        if kind == "record" and isinstance(value, dict):
            return self._of_record(place, own, other, value)
        has_same_form = isinstance(other, list) and len(other) == len(own)
        seen = other if has_same_form else own
        if kind == "dict":
            return {
                _hashable(self._of(place, own[1], seen[1], key)): self._of(f"{place}[]", own[2], seen[2], each)
                for key, each in (value.items() if isinstance(value, dict) else ())
            }
        if kind in ("list", "set", "frozenset") and isinstance(value, list | tuple):
            return [self._of(f"{place}[]", own[1], seen[1], each) for each in value]
        if kind == "tuple" and isinstance(value, list | tuple):
            return [self._of(f"{place}[]", *three) for three in zip(own[1:], seen[1:], value, strict=False)]
        return value

    def _of_record(self, place: str, own: Schema, other: Schema, value: dict[str, Any]) -> Any:
        is_record = isinstance(other, list) and other[0] == "record"
        mine = {name: schema for name, schema, _ in own[2]}
        theirs = {name: schema for name, schema, _ in (other if is_record else own)[2]}
        for number, (one, two) in enumerate(((mine, theirs), (theirs, mine))):
            self._only[number].update(dict.fromkeys(f"{place}.{name}" for name in one if name not in two))
        return _Record(
            (name, self._of(f"{place}.{name}", schema, theirs[name], value[name]))
            for name, schema in mine.items()
            if name in theirs and name in value
        )

    def _resolve(self, number: int, schema: Schema, value: Any, like: Schema = None) -> Schema:
        """Choose what a union is for a value, or where another schema is `like`, and find a record within itself."""
        if isinstance(schema, list) and schema[0] == "union":
            fitting = [each for each in schema[1:] if _fits(each, value)] or schema[1:]
            schema = next(
                (each for each in fitting if _is_same_record(each, like) or _has_fields(each, value)), fitting[0]
            )
        if isinstance(schema, list) and schema[0] == "self":
            return self._records[number].get(schema[1], schema)
        if isinstance(schema, list) and schema[0] == "record":
            self._records[number][schema[1]] = schema
        return schema


_KINDS: Final[Mapping[type, tuple[str, ...]]] = {
    type(None): ("None",),
    bool: ("bool",),
    int: ("int", "float"),
    float: ("float",),
    str: ("str", "enum", "literal"),
    bytes: ("bytes",),
    dict: ("record", "self", "dict"),
    list: ("list", "set", "frozenset", "tuple"),
}


def _fits(schema: Schema, value: Any) -> bool:
    return (schema if isinstance(schema, str) else schema[0]) in _KINDS.get(type(value), ())


def _is_same_record(schema: Schema, like: Schema) -> bool:
    return isinstance(schema, list) and isinstance(like, list) and schema[:2] == like[:2] and schema[0] == "record"


def _has_fields(schema: Schema, value: Any) -> bool:
    return isinstance(value, dict) and schema[0] == "record" and {name for name, _, _ in schema[2]} == value.keys()


def _differences(place: str, expected: Any, actual: Any, sides: tuple[str, str]) -> Iterator[str]:
    if expected == actual or _canonical(expected) == _canonical(actual):
        return
    if isinstance(expected, dict) and isinstance(actual, dict):
        is_record = isinstance(expected, _Record)
        for key in dict.fromkeys((*expected, *actual)):
            inner = f"{place}.{key}" if is_record else f"{place}[{key!r}]"
            yield from _differences(inner, expected.get(key, _MISSING), actual.get(key, _MISSING), sides)
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, pair in enumerate(zip(expected, actual, strict=True)):
            yield from _differences(f"{place}[{index}]", *pair, sides)
    else:
        yield _difference(place, expected, actual, sides)


def _difference(place: str, expected: Any, actual: Any, sides: tuple[str, str]) -> str:
    return f"{place}: {sides[0]}={shown(expected)} {sides[1]}={shown(actual)}"


def _canonical(value: Any) -> bytes:
    """Write a value so that equal ones give equal bytes, whatever the order of a dict is."""
    if value is _MISSING:
        return b""
    if isinstance(value, dict):
        pairs = sorted((_canonical(key), _canonical(each)) for key, each in value.items())
        return b"{%b}" % b",".join(b"%b:%b" % pair for pair in pairs)
    if isinstance(value, list | tuple):
        return b"[%b]" % b",".join(map(_canonical, value))
    return _ENCODE(value)


def _digest(value: Any) -> bytes:
    return blake2b(_canonical(value), digest_size=_DIGEST_BYTES).digest()


def shown(value: Any) -> str:
    """Show a value in one line, cut where it is long."""
    text = "nothing" if value is _MISSING else repr(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."
