"""Messages of a typed service in words: `Deposit(account='ann', amount=5)`, and in which field two of them differ."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple

from ..errors import RemoteProtocolError
from ..service import ClusteredService
from ..service_texts import ServiceTexts, texts_of
from ..wire.payload_header import HEADER_BYTES, PayloadKind, split_header
from ..wire.topics import decode_topic_message
from .codec import READ_ANY, MessageCodec, ValueCodec, schema_from_bytes
from .declared_state import plan_of
from .handlers import HandlerRole, find_handlers, reply_of
from .log_schemas import read_values
from .messages import ServiceError, wire_name
from .schema import fields_of, is_record
from .service import TypedService
from .state_fields import compare_fields, describe_message, read_fields

_SHOWN_LENGTH: Final = 200
_SHOWN_COUNT: Final = 8
_KINDS: Final = {HandlerRole.COMMAND: PayloadKind.COMMAND, HandlerRole.QUERY: PayloadKind.QUERY}


class _Read(NamedTuple):
    """A message that was read: its class or schema by name, and its fields, or the value that it is."""

    name: str
    fields: dict[str, Any] | None
    value: Any = None

    def __str__(self) -> str:
        if self.fields is None:
            return _cut(repr(self.value))
        return _cut(f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.fields.items())})")


class _Tables:
    """The messages of a class of services; made when the first one is shown."""

    def __init__(self, owner: type[TypedService]) -> None:
        self.codecs: dict[tuple[int, bytes], MessageCodec[Any]] = {}
        self.replies: dict[bytes, ValueCodec[Any]] = {}
        self.places: dict[str, str] = {}
        for entry in find_handlers(owner):
            kind = _KINDS.get(entry.role)
            if kind is not None:
                reply = ValueCodec[Any](reply_of(entry.message), entry.message.__qualname__)
                self._add(kind, MessageCodec(entry.message, reply.schema))
                self.replies[reply.fingerprint] = reply
                self.places[wire_name(entry.message)] = entry.place
        for event in owner.events:
            self._add(PayloadKind.EVENT, MessageCodec(event))

    def _add(self, kind: PayloadKind, codec: MessageCodec[Any]) -> None:
        self.codecs[kind, codec.fingerprint] = codec


class MessageTexts(ServiceTexts):
    """The words of one typed service."""

    def __init__(self, service: TypedService) -> None:
        self._service = service

    @cached_property
    def _tables(self) -> _Tables:
        return _Tables(type(self._service))

    def message(self, payload: bytes) -> str | None:
        """Show a payload as the message that it is, with its topic if it is published to one."""
        published = decode_topic_message(payload)
        if published is not None:
            inner = self.message(published.payload)
            return None if inner is None else f"{published.topic}: {inner}"
        read = self._read(payload)
        return None if read is None else str(read)

    def difference(self, expected: bytes, actual: bytes) -> str | None:
        """Say by field in what two messages differ."""
        one, two = self._read(_content(expected)), self._read(_content(actual))
        if one is None or two is None:
            return None
        if one.name != two.name or one.fields is None or two.fields is None:
            return f"expected={one} actual={two}"
        told = [
            f"{one.name}.{name}: expected={_cut(repr(one.fields.get(name)))} actual={_cut(repr(two.fields.get(name)))}"
            for name in dict.fromkeys((*one.fields, *two.fields))
            if one.fields.get(name) != two.fields.get(name)
        ]
        return "; ".join(told[:_SHOWN_COUNT]) or f"expected={one} actual={two}"

    def handler(self, payload: bytes) -> str | None:
        """Name the method that handles a command or query."""
        read = self._read(payload)
        return None if read is None else self._tables.places.get(read.name)

    def state(self) -> dict[str, str] | None:
        """Show the declared state by field; not what every typed service keeps."""
        names = [name for name in plan_of(self._service).fields if not hasattr(TypedService, name)]
        return {name: _show_value(getattr(self._service, name)) for name in names}

    def states(self, expected: ClusteredService, actual: ClusteredService) -> str | None:
        """Say by field in what the declared states of two services differ."""
        states = [read_fields(each.snapshot_messages()) for each in (expected, actual)]
        if states[0] is None or states[1] is None:
            return None
        return "; ".join(compare_fields(states[0], states[1]).differences)

    def snapshot_message(self, header: bytes, expected: bytes, actual: bytes) -> str | None:
        """Say by field in what two messages of a snapshot differ."""
        return describe_message(header, expected, actual)

    def _read(self, payload: bytes) -> _Read | None:
        header = split_header(payload)
        if header is None:
            return None
        kind, fingerprint, body = header[0], payload[2:HEADER_BYTES], payload[HEADER_BYTES:]
        with suppress(Exception):  # a payload that is not what it seems is shown as bytes
            if kind == PayloadKind.REPLY:
                return _of_value(self._tables.replies[fingerprint].decode(body))
            if kind == PayloadKind.ERROR:
                return _of_error(fingerprint, body)
            if kind == PayloadKind.SCHEMA:
                return _Read("schema", {"of": schema_from_bytes(body)["name"]})
            codec = self._tables.codecs.get((kind, fingerprint))
            if codec is not None:
                return _of_value(codec.decode(body), codec.name)
            schema = schema_from_bytes(self._service.known_schemas[fingerprint])
            return _Read(schema["name"], read_values(schema, body))
        return None


def _content(payload: bytes) -> bytes:
    published = decode_topic_message(payload)
    return payload if published is None else published.payload


def _of_value(value: Any, name: str = "") -> _Read:
    kind = type(value)
    if not is_record(kind):
        return _Read(kind.__name__, None, value)
    return _Read(name or kind.__name__, {each.name: getattr(value, each.name) for each in fields_of(kind)})


def _of_error(fingerprint: bytes, body: bytes) -> _Read:
    end = 2 + int.from_bytes(body[:2], "little")
    name, fields = bytes(body[2:end]).decode(), bytes(body[end:])
    for kind in _error_classes(ServiceError):
        if wire_name(kind) == name:
            codec: MessageCodec[Any] = MessageCodec(kind)
            if codec.fingerprint == fingerprint:
                return _of_value(codec.decode(fields), name)
    values = READ_ANY.decode(fields)
    if not isinstance(values, list):
        raise RemoteProtocolError(f"{name}: the bytes are not fields")
    return _Read(name, {str(number): value for number, value in enumerate(values)})


def _error_classes(kind: type[ServiceError]) -> Iterator[type[ServiceError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _error_classes(each)


def _show_value(value: Any) -> str:
    """Show the value of a field: all of it if it is short, else how much there is and the first few."""
    if isinstance(value, dict) and len(value) > _SHOWN_COUNT:
        pairs = ", ".join(f"{_cut(repr(key))}: {_cut(repr(each))}" for key, each in islice(value.items(), _SHOWN_COUNT))
        return f"{len(value):,} keys: {{{pairs}, ...}}"
    if isinstance(value, list | set | frozenset | deque | tuple) and len(value) > _SHOWN_COUNT:
        return f"{len(value):,} values: {', '.join(_cut(repr(each)) for each in islice(value, _SHOWN_COUNT))}, ..."
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


@texts_of.register
def _texts_of_typed(service: TypedService) -> ServiceTexts:
    return MessageTexts(service)
