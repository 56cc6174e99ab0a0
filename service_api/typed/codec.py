"""Values and messages in bytes: MessagePack, with the fields of a message in their order and without their names.

A message on the wire and in the log begins with the header of `wire.payload_header`; the value follows, of a message
its fields as an array.

A value that is in a message is written by msgspec as it is; a record in it is a map, so it tolerates fields that come
and go. Sets are sorted. The types that can be written are those of `schema`.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from ..errors import RemoteProtocolError
from ..wire.payload_header import MAGIC, PayloadKind, tag_of
from .messages import ServiceError, has_plain_fields, wire_name
from .schema import (
    Field,
    Schema,
    fields_of,
    find_change,
    find_field_change,
    fingerprint_of,
    is_pydantic,
    schema_of,
    show_type,
)

_SCHEMA_LIMIT_BYTES: Final = 65_536

T = TypeVar("T")
Bytes = bytes | memoryview


def builtin_hook(value: Any) -> Any:
    """Give what msgspec does not know by itself as what it knows."""
    if is_pydantic(type(value)):
        return {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, tuple | list | dict):  # a subclass of ours or of somebody else's
        return dict(value) if isinstance(value, dict) else list(value)
    raise NotImplementedError(f"type={type(value).__qualname__} has no form in bytes")


def _from_builtins(kind: type[Any], value: Any) -> Any:
    if is_pydantic(kind):
        return cast("Any", kind).model_validate(value)
    raise NotImplementedError(f"type={kind.__qualname__} has no form in bytes")


def _has_set(schema: Schema) -> bool:
    return isinstance(schema, list) and (schema[:1] in (["set"], ["frozenset"]) or any(map(_has_set, schema)))


def make_encoder(schema: Schema) -> msgspec.msgpack.Encoder:
    """Make an encoder that writes equal values of a schema equally in every process."""
    return msgspec.msgpack.Encoder(enc_hook=builtin_hook, order="deterministic" if _has_set(schema) else None)


def make_decoder(annotation: Any) -> msgspec.msgpack.Decoder[Any]:
    """Make a decoder that refuses what is no value of a type."""
    return msgspec.msgpack.Decoder(annotation, dec_hook=_from_builtins)


def to_builtins(value: Any) -> Any:
    """Give a value as plain dicts, lists, strings and numbers, its sets sorted."""
    return msgspec.to_builtins(value, enc_hook=builtin_hook, order="deterministic", builtin_types=(bytes,))


READ_ANY: Final = msgspec.msgpack.Decoder()
_UNREADABLE: Final = msgspec.MsgspecError, ValueError, TypeError, RecursionError
"""The errors of a decoder, and of a class that refuses its fields."""


class ValueCodec(Generic[T]):
    """Values of one type: a reply, or a field of the state.

    `encode` and `decode` raise `msgspec.ValidationError`, `TypeError`, `OverflowError` or `ValueError` for what is no
    value of it.
    """

    def __init__(self, annotation: Any, where: str) -> None:
        self.annotation = annotation
        self.schema: Schema = schema_of(annotation, where)
        self.fingerprint = fingerprint_of(self.schema)
        self.encode: Callable[[Any], bytes] = make_encoder(self.schema).encode
        self.decode: Callable[[Bytes], T] = make_decoder(annotation).decode

    def __repr__(self) -> str:
        return f"<ValueCodec {self.annotation!r}>"

    def decode_older(self, body: Bytes, schema: Schema, where: str) -> T:
        """Read what was written by another schema.

        Raises:
            RemoteProtocolError: it cannot be read as this type; says what has changed.
        """
        change = find_change(schema, self.schema, where)
        if change is not None:
            raise RemoteProtocolError(change)
        return cast("T", msgspec.convert(READ_ANY.decode(body), self.annotation, strict=False, dec_hook=_from_builtins))


class MessageCodec(Generic[T]):
    """Messages of one class.

    `schema` is `{"name", "fields": [[name, schema, has_default], ...]}`, with "reply" where a class is answered.
    """

    def __init__(self, message: type[T], reply: Schema | None = None) -> None:
        self.message = message
        self.name = wire_name(message)
        self._fields = fields_of(message)
        names = [each.name for each in self._fields]
        where = message.__qualname__
        self.schema: Schema = {
            "name": self.name,
            "fields": [
                [each.name, schema_of(each.type, f"{where}.{each.name}"), each.has_default] for each in self._fields
            ],
        }
        if reply is not None:
            self.schema["reply"] = reply
        self.fingerprint = fingerprint_of(self.schema)
        self._names = names
        # An object of ours was valid when it was made; one of pydantic may have been changed since.
        self._is_checked_as_made = is_pydantic(message)
        self._read_fields = make_decoder(_tuple_of([each.type for each in self._fields])).decode
        self._get = _getter(names)
        self._encode = make_encoder(["tuple", *(schema for _, schema, _ in self.schema["fields"])]).encode
        self.decode: Callable[[Bytes], T] = self._make_reader()
        """Read a message that this codec, here or elsewhere, wrote.

        Raises:
            RemoteProtocolError: the bytes are no such message; says which field is wrong.
        """

    def __repr__(self) -> str:
        return f"<MessageCodec {self.name} {self.fingerprint.hex()}>"

    def header(self, kind: PayloadKind, service_id: int = 0) -> bytes:
        """Return what stands before each message."""
        return bytes((MAGIC, tag_of(kind, service_id))) + self.fingerprint

    def announcement(self, service_id: int = 0) -> bytes:
        """Return the payload that tells a log by which schema the messages are written."""
        return self.header(PayloadKind.SCHEMA, service_id) + schema_to_bytes(self.schema)

    def encode(self, message: T) -> bytes:
        """Write the fields of a message.

        Raises:
            TypeError, OverflowError, ValueError: a value has no form in bytes.
        """
        return self._encode(self._get(message))

    def check(self, message: T) -> bytes:
        """Write a message, and make sure that it can be read.

        Raises:
            RemoteProtocolError: a field has a value that is not of its type; says which.
        """
        try:
            body = self._encode(self._get(message))
        except (TypeError, OverflowError, ValueError) as error:
            raise RemoteProtocolError(f"{self.name}: {error}") from error
        if self._is_checked_as_made:
            self.decode(body)
            return body
        try:
            self._read_fields(body)
        except _UNREADABLE as error:
            raise RemoteProtocolError(self._explain(error)) from error
        return body

    def check_many(self, messages: Sequence[T]) -> list[bytes] | None:
        """Write messages as `check` does each; None if it may refuse one, which `check` of each one then says."""
        if self._is_checked_as_made:
            return None
        try:
            bodies = [*map(self._encode, map(self._get, messages))]
            for _ in map(self._read_fields, bodies):
                pass
        except (msgspec.MsgspecError, TypeError, OverflowError, ValueError, RecursionError):
            return None
        return bodies

    def decode_older(self, body: Bytes, schema: Schema) -> T:
        """Read a message that was written by another schema of the same name.

        Raises:
            RemoteProtocolError: it cannot be read as this class; says which field has changed, and what to do.
        """
        change = find_field_change(schema["fields"], self.schema["fields"], self.name)
        if change is not None:
            raise RemoteProtocolError(f"{change}; give the field a default, or write an @upcasts for the older class")
        try:
            values = dict(zip((name for name, _, _ in schema["fields"]), READ_ANY.decode(body), strict=True))
            kept = {name: values[name] for name in self._names if name in values}
            twin = msgspec.convert(kept, self._twin(), strict=False, dec_hook=_from_builtins)
            return self.message(**{name: getattr(twin, name) for name in self._names})
        except _UNREADABLE as error:
            raise RemoteProtocolError(f"{self.name}: {error}") from error

    def _make_reader(self) -> Callable[[Bytes], T]:
        """Make what reads a message: one function and not three, as it is called for each command."""
        decode = make_decoder(_tuple_of([each.type for each in self._fields])).decode
        message, names, explain = self.message, self._names, self._explain
        if has_plain_fields(message):
            return _write_reader(message, names, decode, explain)
        if is_pydantic(message) or _has_keywords_only(message):

            def make(*values: Any) -> T:
                return message(**dict(zip(names, values, strict=True)))
        else:
            make = message

        def read(body: Bytes) -> T:
            try:
                return make(*decode(body))
            except _UNREADABLE as error:
                raise RemoteProtocolError(explain(error)) from error

        return read

    def _twin(self) -> Any:
        """Make a struct with the same fields, all of them by name."""
        return msgspec.defstruct(self.name, [_as_definition(each) for each in self._fields], kw_only=True)

    def _explain(self, error: Exception) -> str:
        """Say which field is wrong, in words that no other version of a library would choose otherwise.

        A service's answer to bad bytes is the same on every member.
        """
        place = re.search(r"\$\[(\d+)\]", str(error))
        name = self._names[int(place[1])] if place and int(place[1]) < len(self._names) else None
        if is_pydantic(self.message) and name is None:
            name = next((str(one["loc"][0]) for one in getattr(error, "errors", list)() if one["loc"]), None)
        if name is None:
            return f"{self.name}: the bytes are not {len(self._names)} fields: {', '.join(self._names)}"
        schema = next(schema for each, schema, _ in self.schema["fields"] if each == name)
        return f"{self.name}: {name} is no {show_type(schema)} that is allowed there"


def _write_reader(
    message: type[T], names: list[str], decode: Callable[[Bytes], Any], explain: Callable[[Exception], str]
) -> Callable[[Bytes], T]:
    """Write what reads a message of plain fields: it makes the object without a call of its `__init__`."""
    source = "\n".join(
        (
            "def read(body):",
            "    try:",
            "        message = new(kind)",
            "        values = message.__dict__",
            f"        {', '.join(f'values[{name!r}]' for name in names)}, = decode(body)",
            "        return message",
            "    except errors as error:",
            "        raise RemoteProtocolError(explain(error)) from error",
        )
    )
    scope: dict[str, Any] = {"new": object.__new__, "kind": message, "decode": decode, "explain": explain}
    scope.update(errors=_UNREADABLE, RemoteProtocolError=RemoteProtocolError)
    exec(source, scope)  # nosec B102 - our own source, of names that dataclass has taken
    return cast("Callable[[Bytes], T]", scope["read"])


def _tuple_of(types: list[Any]) -> Any:
    return tuple.__class_getitem__(tuple(types))


def _as_definition(field: Field) -> Any:
    if not field.has_default:
        return (field.name, field.type)
    if field.default_factory is not None:
        return (field.name, field.type, msgspec.field(default_factory=field.default_factory))
    return (field.name, field.type, msgspec.field(default=field.default))


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return cast("Callable[[Any], tuple[Any, ...]]", attrgetter(*names))
    if not names:
        return lambda message: ()
    get = attrgetter(*names)
    return lambda message: (get(message),)


def _has_keywords_only(message: type) -> bool:
    parameters = inspect.signature(message).parameters.values()
    return any(each.kind is inspect.Parameter.KEYWORD_ONLY for each in parameters)


def schema_to_bytes(schema: Schema) -> bytes:
    """Write a schema, the same in every process."""
    return json.dumps(schema, sort_keys=True, separators=(",", ":")).encode()


def schema_from_bytes(data: Bytes) -> Schema:
    """Read the schema of a message that somebody announced.

    Raises:
        RemoteProtocolError: it is none; says why.
    """
    if len(data) > _SCHEMA_LIMIT_BYTES:
        raise RemoteProtocolError(f"schema of {len(data)} bytes expected at most {_SCHEMA_LIMIT_BYTES}")
    try:
        schema = json.loads(bytes(data))
        fields = [(str(name), has_default) for name, _, has_default in schema["fields"]]
        if not (
            isinstance(schema["name"], str)
            and schema["name"].isidentifier()
            and all(name.isidentifier() for name, _ in fields)
        ):
            raise ValueError("a name is none")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RemoteProtocolError(f"schema cannot be read: {error}") from error
    return schema


def error_message(error: type[ServiceError]) -> MessageCodec[ServiceError]:
    """Make the codec of a class of errors."""
    return MessageCodec(error)
