"""Typed payloads of a log, read without the classes: the schemas are in the log before what is written by them.

A client requests that the schema of a command is noted; a service publishes the schema of an event to the topic
`SCHEMA_TOPIC`. A log whose beginning was removed may lack some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from ..errors import RemoteProtocolError
from ..wire.payload_header import HEADER_BYTES, MAGIC, PayloadKind, split_header, tag_of
from ..wire.topics import decode_topic_message
from .codec import READ_ANY, schema_from_bytes
from .schema import Schema, fingerprint_of

NOT_READABLE: Final = "the bytes are not the fields of its schema"
_MESSAGES: Final = (PayloadKind.COMMAND, PayloadKind.EVENT)
READABLE_KINDS: Final = (*_MESSAGES, PayloadKind.SCHEMA)
"""The kinds whose fingerprint is that of a schema in the log."""


class TypedPayload(NamedTuple):
    """The parts of a typed payload."""

    kind: int
    """A `PayloadKind`, or a number of a newer version."""
    service_id: int
    """Of the service that a request is for, and an event from."""
    fingerprint: bytes
    body: bytes

    @property
    def header(self) -> bytes:
        """What stands before the body."""
        return bytes((MAGIC, tag_of(self.kind, self.service_id))) + self.fingerprint


def split_payload(payload: bytes) -> TypedPayload | None:
    """Give the parts of a typed payload; None for what is none."""
    header = split_header(payload)
    return None if header is None else TypedPayload(*header, payload[2:HEADER_BYTES], payload[HEADER_BYTES:])


def announced_schema(payload: bytes) -> bytes | None:
    """Give the schema that a payload of a client or a service announces, not checked; None for another payload."""
    published = decode_topic_message(payload)
    typed = split_payload(payload if published is None else published.payload)
    return typed.body if typed is not None and typed.kind == PayloadKind.SCHEMA else None


class LogSchemas:
    """The schemas that a reader of a log has met so far, by fingerprint."""

    def __init__(self, find_more: Callable[[], Iterable[bytes]] | None = None) -> None:
        """Know no schema yet; `find_more` is asked once for announced ones, when the first is missed."""
        self._schemas: dict[bytes, Schema] = {}
        self._find_more = find_more

    def __repr__(self) -> str:
        return f"<LogSchemas {len(self._schemas)}>"

    def __len__(self) -> int:
        return len(self._schemas)

    def of_class(self, name: str | None = None) -> dict[bytes, Schema]:
        """The schemas of the versions of a class, or of every class, by fingerprint; in the order of their notes."""
        return {each: schema for each, schema in self._schemas.items() if name is None or schema["name"] == name}

    def note(self, body: bytes) -> Schema:
        """Note an announced schema.

        Raises:
            RemoteProtocolError: it is none; says why.
        """
        schema = schema_from_bytes(body)
        self._schemas[fingerprint_of(schema)] = schema
        return schema

    def view(self, payload: bytes) -> dict[str, Any] | None:
        """Describe a typed payload: its `service_id`, its `message` and its `values` by name; None for what is none.

        A payload whose schema was announced before what the reader saw has its `fingerprint` alone. Bytes of an
        application that is not typed may begin as a typed payload does: what announces no schema, or has neither a
        known fingerprint nor fields as a message has them, is none.
        """
        published = decode_topic_message(payload)
        typed = split_payload(payload if published is None else published.payload)
        if typed is None:
            return None
        origin = {"service_id": typed.service_id} | ({} if published is None else {"topic": published.topic})
        view = None
        if typed.kind == PayloadKind.SCHEMA:
            view = self._view_schema(typed.body)
        elif typed.kind in _MESSAGES:
            view = self._view_message(typed)
        return None if view is None else origin | view

    def _view_schema(self, body: bytes) -> dict[str, Any] | None:
        try:
            schema = self.note(body)
        except RemoteProtocolError:
            return None
        return {"message": schema["name"], "schema": schema}

    def _view_message(self, typed: TypedPayload) -> dict[str, Any] | None:
        schema = self._schemas.get(typed.fingerprint)
        if schema is None and self._find_more is not None and _has_fields(typed.body):
            self._note_more(self._find_more)
            schema = self._schemas.get(typed.fingerprint)
        if schema is None:
            return {"fingerprint": typed.fingerprint.hex()} if _has_fields(typed.body) else None
        try:
            return {"message": schema["name"], "values": as_json_values(read_values(schema, typed.body))}
        except RemoteProtocolError:
            return {"message": schema["name"], "problem": NOT_READABLE}

    def _note_more(self, find_more: Callable[[], Iterable[bytes]]) -> None:
        self._find_more = None
        for body in find_more():
            with suppress(RemoteProtocolError):  # the service refused it
                self.note(body)


def _has_fields(body: bytes) -> bool:
    try:
        return isinstance(READ_ANY.decode(body), list)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def read_values(schema: Schema, body: bytes) -> dict[str, Any]:
    """Read the fields of a message by their names; values are what MessagePack has, and `datetime`.

    Raises:
        RemoteProtocolError: the bytes are no message of this schema.
    """
    try:
        return dict(zip((name for name, _, _ in schema["fields"]), READ_ANY.decode(body), strict=True))
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise RemoteProtocolError(f"{schema['name']}: {NOT_READABLE}") from error


def as_json_values(value: Any) -> Any:
    """Give a value that was read as JSON has it, in the order of its fields; bytes as hex.

    Raises:
        RemoteProtocolError: it is nested too deep.
    """
    try:
        return _shown(msgspec.to_builtins(value, builtin_types=(bytes,)))
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise RemoteProtocolError(NOT_READABLE) from error


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key.hex() if isinstance(key, bytes) else str(key): _shown(each) for key, each in value.items()}
    return [_shown(each) for each in value] if isinstance(value, list | tuple) else value
