"""What reads the fields of typed messages on an executor: by the schemas of the log, which travel there.

As in `executor_readers`, nothing here may need pydantic. An executor needs msgspec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

from ...service_api.errors import ClusterError, RemoteProtocolError
from ...service_api.typed.codec import schema_to_bytes
from ...service_api.typed.log_schemas import READABLE_KINDS, TypedPayload, as_json_values, read_values, split_payload
from ...service_api.typed.schema import Schema, show_type
from ...service_api.wire.payload_header import PayloadKind
from ..reading.schema_search import SchemaSearch, search_on

Convert = Callable[[Any], Any]

_NOTHING: Final = (None, None, None)

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


def merged_fields(schemas: Sequence[Schema]) -> list[tuple[str, Any]]:
    """Give the columns of a class: the fields of all its versions, by name, newest order first.

    A field that has had columns of different types is JSON text.
    """
    types: dict[str, set[Any]] = {}
    for schema in reversed(schemas):
        for name, inner, _ in schema["fields"]:
            types.setdefault(name, set()).add(column_of(inner)[0])
    return [(name, found.pop() if len(found) == 1 else None) for name, found in types.items()]


class NewerClassError(ClusterError):
    """A stream met a version of its class that has other columns than the stream began with."""


class FieldReader:
    """Reads typed payloads, with their headers, as structs of `value`, `problem` and `message`: for `arrow_udf`.

    `fields` are the columns of the value; without them the value is JSON text. NULL has neither value nor problem.
    With `search` a schema that is not known is searched in the log. `name` is the class that the fields are of.
    """

    def __init__(
        self,
        schemas: Mapping[bytes, Schema],
        fields: Sequence[tuple[str, Any]] | None,
        *,
        name: str | None = None,
        search: SchemaSearch | None = None,
    ) -> None:
        self._schemas = dict(schemas)
        self._fields = None if fields is None else list(fields)
        self._name = name
        self._search = search
        self._converters: dict[bytes, list[tuple[str, Convert]]] = {}

    @property
    def value_type(self) -> Any:
        """The Arrow type of the value."""
        if self._fields is None:
            return pa.string()
        return pa.struct([pa.field(name, arrow_type or pa.string()) for name, arrow_type in self._fields])

    def __call__(self, payloads: pa.Array) -> pa.Array:
        """Read one array.

        Raises:
            NewerClassError: a message is of a version of the class that the columns do not hold.
            ClusterError: the log cannot be searched for schemas.
            OSError: the same.
        """
        rows = [_NOTHING if payload is None else self._read_row(payload) for payload in payloads.to_pylist()]
        values, problems, messages = zip(*rows, strict=True) if rows else ((), (), ())
        columns = [
            pa.array(values, self.value_type),
            pa.array(problems, pa.string()),
            pa.array(messages, pa.string()),
        ]
        return pa.StructArray.from_arrays(columns, names=["value", "problem", "message"])

    def _read_row(self, payload: bytes) -> tuple[Any, str | None, str | None]:
        typed = split_payload(payload)
        schema = None if typed is None else self._find_schema(typed)
        if typed is None or schema is None:
            return _NOTHING
        if self._name is not None and schema["name"] != self._name:
            return None, None, schema["name"]
        try:
            return self._read(typed, schema), None, schema["name"]
        except RemoteProtocolError as error:
            return None, str(error), schema["name"]

    def _find_schema(self, typed: TypedPayload) -> Schema | None:
        schema = self._schemas.get(typed.fingerprint)
        if schema is None and self._search is not None and typed.kind in READABLE_KINDS:
            self._schemas |= search_on(self._search, typed.fingerprint)
            schema = self._schemas.get(typed.fingerprint)
        return schema

    def _read(self, typed: TypedPayload, schema: Schema) -> Any:
        if typed.kind == PayloadKind.SCHEMA:
            return schema_to_bytes(schema).decode() if self._fields is None else None
        if self._fields is not None and typed.fingerprint not in self._converters:
            self._converters[typed.fingerprint] = self._converters_of(schema)
        values = read_values(schema, typed.body)
        if self._fields is None:
            return json_text(values)
        found = {}
        for name, convert in self._converters[typed.fingerprint]:
            try:
                found[name] = convert(values[name])
            except _NO_VALUE as error:
                wanted = next(show_type(inner) for one, inner, _ in schema["fields"] if one == name)
                raise RemoteProtocolError(f"{schema['name']}.{name}={values[name]!r} expected={wanted}") from error
        return found

    def _converters_of(self, schema: Schema) -> list[tuple[str, Convert]]:
        assert self._fields is not None
        types = dict(self._fields)
        versions = [each for each in self._schemas.values() if each["name"] == schema["name"]]
        merged = merged_fields(versions)
        differing = [
            f"{name} ({arrow_type or _JSON[0]})" for name, arrow_type in merged if types.get(name, ()) != arrow_type
        ]
        if differing:
            raise NewerClassError(
                f"message={schema['name']}: a newer version of the class has other columns than this query: "
                f"{', '.join(differing)}. Start the query again with the same checkpointLocation: it begins with this "
                "message, and with the schemas that the log has then"
            )
        return [
            (name, column_of(inner)[1] if types[name] is not None else _JSON[1]) for name, inner, _ in schema["fields"]
        ]
