"""What reads the fields of typed messages on an executor: by the schemas of the log, which travel there.

As in `executor_readers`, nothing here may need pydantic. An executor needs msgspec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from ...service_api.errors import ClusterError, RemoteProtocolError
from ...service_api.typed.codec import schema_to_bytes
from ...service_api.typed.log_schemas import READABLE_KINDS, TypedPayload, read_values, split_payload
from ...service_api.typed.schema import Schema
from ...service_api.wire.payload_header import PayloadKind
from ..reading.schema_search import SchemaSearch, search_on
from ..reading.vector.typed_columns import MergedField, TypedColumns, json_text, merged_fields

_NOTHING: Final = (None, None, None)


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
        fields: Sequence[MergedField] | None,
        *,
        name: str | None = None,
        search: SchemaSearch | None = None,
    ) -> None:
        self._schemas = dict(schemas)
        self._fields = None if fields is None else list(fields)
        self._name = name
        self._search = search
        self._columns: dict[bytes, TypedColumns] = {}
        self._missed: set[bytes] = set()
        """The fingerprints in the array being read without a schema in the log, which would be before its messages."""

    @property
    def value_type(self) -> Any:
        """The Arrow type of the value."""
        if self._fields is None:
            return pa.string()
        return pa.struct([pa.field(each.name, each.arrow_type) for each in self._fields])

    def __call__(self, payloads: pa.Array) -> pa.Array:
        """Read one array.

        Raises:
            NewerClassError: a message is of a version of the class that the columns do not hold.
            ClusterError: the log cannot be searched for schemas.
            OSError: the same.
        """
        self._missed.clear()
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
        is_open = self._search is not None and typed.kind in READABLE_KINDS and typed.fingerprint not in self._missed
        if schema is None and self._search is not None and is_open:
            self._schemas |= search_on(self._search, typed.fingerprint)
            schema = self._schemas.get(typed.fingerprint)
            if schema is None:
                self._missed.add(typed.fingerprint)
        return schema

    def _read(self, typed: TypedPayload, schema: Schema) -> Any:
        if typed.kind == PayloadKind.SCHEMA:
            return schema_to_bytes(schema).decode() if self._fields is None else None
        if self._fields is not None and typed.fingerprint not in self._columns:
            self._columns[typed.fingerprint] = self._columns_of(schema)
        values = read_values(schema, typed.body)
        return json_text(values) if self._fields is None else self._columns[typed.fingerprint].convert(values)

    def _columns_of(self, schema: Schema) -> TypedColumns:
        assert self._fields is not None
        types = {each.name: each.arrow_type for each in self._fields}
        merged = merged_fields([each for each in self._schemas.values() if each["name"] == schema["name"]])
        differing = [f"{each.name} ({each.arrow_type})" for each in merged if types.get(each.name) != each.arrow_type]
        if differing:
            raise NewerClassError(
                f"message={schema['name']}: a newer version of the class has other columns than this query: "
                f"{', '.join(differing)}. Start the query again with the same checkpointLocation: it begins with this "
                "message, and with the schemas that the log has then"
            )
        return TypedColumns(schema, merged)
