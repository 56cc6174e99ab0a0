"""Values of typed messages as Arrow columns: which type a schema has as a column, and what makes its values.

Needs msgspec and pyarrow; nothing here may need pydantic, since Spark's executors have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from ....service_api.errors import RemoteProtocolError
from ....service_api.typed.log_schemas import as_json_values
from ....service_api.typed.schema import Schema, join_types, show_type

Convert = Callable[[Any], Any]

_INT64_LIMIT: Final = 1 << 63
_TIMES: Final[dict[str, tuple[Any, type]]] = {
    "datetime": (pa.timestamp("us", tz="UTC"), datetime),
    "date": (pa.date32(), date),
    "timedelta": (pa.duration("us"), timedelta),
}
_SEQUENCES: Final = ("list", "set", "frozenset")
_KEYS: Final = ("str", "int", "UUID", "date", "datetime")
_PLAIN: Final[dict[str, tuple[Any, type]]] = {
    "bool": (pa.bool_(), bool),
    "float": (pa.float64(), float),
    "str": (pa.string(), str),
    "bytes": (pa.binary(), bytes),
    "UUID": (pa.string(), str),
    "time": (pa.string(), str),
}
_DECIMAL: Final = pa.decimal128(38, 18)
_NO_VALUE: Final = (
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


def json_text(value: Any) -> str:
    """Write a value as a JSON text; bytes are hex."""
    return msgspec.json.encode(as_json_values(value)).decode()


def column_of(schema: Schema) -> tuple[Any, Convert]:
    """Give the Arrow type of a column for values of a schema, and what makes its values of those in the message.

    What has no column, such as a union of two records, is JSON text. The converter raises one of `_NO_VALUE` for what
    is no value of the schema.
    """
    if isinstance(schema, str):
        return _plain_column(schema)
    kind, *rest = schema
    if kind in _SEQUENCES:
        inner, convert = column_of(rest[0])
        return pa.list_(inner), _or_null(lambda value: [convert(each) for each in value])
    if kind == "dict" and rest[0] in _KEYS:
        return _map_column(rest[0], rest[1])
    if kind == "tuple":
        return _struct_column([f"_{index + 1}" for index in range(len(rest))], rest)
    if kind == "record":
        return _struct_column([name for name, _, _ in rest[1]], [inner for _, inner, _ in rest[1]])
    if kind == "enum":
        names = {value: name for name, value in rest[1].items()}
        return pa.string(), _or_null(lambda value: names[value])
    if kind == "literal":
        types = {type(value) for value in rest}
        return column_of({int: "int", str: "str", bool: "bool"}.get(types.pop(), "str")) if len(types) == 1 else _JSON
    if kind == "union":
        some = [each for each in rest if each != "None"]
        if sorted(map(str, some)) == ["float", "int"]:
            return column_of("float")
        return column_of(some[0]) if len(some) == 1 else _JSON
    return _JSON


def _plain_column(name: str) -> tuple[Any, Convert]:
    if name == "int":
        return pa.int64(), _or_null(_as_int64)
    if name == "Decimal":
        return _DECIMAL, _or_null(_as_decimal)
    if name in _TIMES:
        arrow_type, python_type = _TIMES[name]
        return arrow_type, _or_null(lambda value: msgspec.convert(value, python_type, strict=False))
    if name not in _PLAIN:
        return _JSON
    arrow_type, python_type = _PLAIN[name]
    return arrow_type, _or_null(lambda value: msgspec.convert(value, python_type))


def _map_column(key: Schema, of: Schema) -> tuple[Any, Convert]:
    key_type, key_convert = column_of(key)
    value_type, value_convert = column_of(of)
    return pa.map_(key_type, value_type), _or_null(
        lambda value: [(key_convert(one), value_convert(other)) for one, other in value.items()]
    )


def _struct_column(names: Sequence[str], schemas: Sequence[Schema]) -> tuple[Any, Convert]:
    columns = [column_of(each) for each in schemas]

    def convert(value: Any) -> dict[str, Any]:
        by_name = value if isinstance(value, dict) else dict(zip(names, value, strict=True))
        return {name: to_column(by_name.get(name)) for name, (_, to_column) in zip(names, columns, strict=True)}

    struct = pa.struct([pa.field(name, arrow_type) for name, (arrow_type, _) in zip(names, columns, strict=True)])
    return struct, _or_null(convert)


def _or_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _as_int64(value: Any) -> int:
    number = msgspec.convert(value, int)
    if not -_INT64_LIMIT <= number < _INT64_LIMIT:
        raise ValueError(f"{number} is beyond 64 bits")
    return number


def _as_decimal(value: Any) -> Decimal:
    number = msgspec.convert(value, Decimal)
    pa.scalar(number, _DECIMAL)
    return number


_JSON: Final[tuple[Any, Convert]] = (pa.string(), _or_null(json_text))


class MergedField(NamedTuple):
    """One column of a class: a field of some of its versions."""

    name: str
    arrow_type: Any
    """A `pyarrow.DataType`."""
    schema: Schema | None
    """The type that is wide enough for all versions; None where the column of each version is the same."""


def merged_fields(schemas: Sequence[Schema]) -> list[MergedField]:
    """Give the columns of a class: the fields of all its versions, by name, newest order first.

    A field that has had columns of different types has the wider one, by `join_types`, or JSON text.
    """
    types: dict[str, list[Schema]] = {}
    for schema in reversed(schemas):
        for name, inner, _ in schema["fields"]:
            types.setdefault(name, []).append(inner)
    return [_merge(name, found) for name, found in types.items()]


def _merge(name: str, schemas: Sequence[Schema]) -> MergedField:
    columns = [column_of(each) for each in schemas]
    if len({(arrow_type, is_json(convert)) for arrow_type, convert in columns}) == 1:
        return MergedField(name, columns[0][0], None)
    joined = reduce(join_types, reversed(schemas))
    return MergedField(name, column_of(joined)[0], joined)


def is_json(convert: Convert) -> bool:
    """Return True if a converter of `column_of` makes JSON text, since the type has no column."""
    return convert is _JSON[1]


class TypedColumns:
    """Makes the values of a class's columns of the messages of one of its versions."""

    def __init__(self, schema: Schema, fields: Sequence[MergedField]) -> None:
        """Take the schema of the version, of which each field is one of the merged fields."""
        self._schema = schema
        wide = {each.name: each.schema for each in fields}
        self._converters = [
            (name, column_of(inner if wide[name] is None else wide[name])[1]) for name, inner, _ in schema["fields"]
        ]

    def convert(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Make the values of the columns, by name, of those that a message has.

        Raises:
            RemoteProtocolError: a value is not of its type; says which.
        """
        found = {}
        for name, convert in self._converters:
            try:
                found[name] = convert(values[name])
            except _NO_VALUE as error:
                wanted = next(show_type(inner) for one, inner, _ in self._schema["fields"] if one == name)
                raise RemoteProtocolError(
                    f"{self._schema['name']}.{name}={values[name]!r} expected={wanted}"
                ) from error
        return found
