"""Messages as plain values for people and tools: names as in the schema, enums by name, bytes as hex.

Which messages are known is a registry of message classes, handed in: the archive itself knows none but its
own and those of the session protocol. A recording of which one of the first messages is known is taken for the
cluster's, so what is not known in there is the application's, unless the stream holds known messages only. Of such a
stream, what does not decode is shown with the reason: it is damage, or of a version that nobody here knows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Self

from pydantic import BaseModel

from ...service_api.errors import RemoteProtocolError
from ...service_api.typed.log_schemas import LogSchemas
from ...service_api.wire.fields import BlockField, MessageLayout
from ...service_api.wire.message import (
    MESSAGE_HEADER_LENGTH,
    Message,
    Registry,
    decode_message,
    peek_header,
    registry_key,
)
from ...service_api.wire.session import SessionMessageHeader
from ..files.reader import RecordedMessage

HEX_LIMIT_BYTES: Final = 32
"""Payloads up to this length are shown as hex, longer ones as their SHA-256."""

APPLICATION: Final = "(application)"
OPAQUE: Final = "(opaque)"
UNREADABLE: Final = "(unreadable)"
"""The name of a message that should decode and does not; `problem` says why."""


@dataclass(slots=True, frozen=True)
class StreamContent:
    """What the recordings of one stream hold: messages of `registry` only, up to one of which `is_last` is true.

    After that one the application writes what it likes. Without `is_last` there is no such message.
    """

    registry: Registry
    is_last: Callable[[Message], bool] | None = None


@dataclass(slots=True, frozen=True)
class Vocabulary:
    """The messages that can be told from bytes, and for some streams, by stream id, the only ones they hold."""

    registry: Registry
    streams: Mapping[int, StreamContent]


def find_message(payload: bytes, registry: Registry) -> Message | None:
    """Decode a payload if the registry knows it and it is well formed."""
    if len(payload) < MESSAGE_HEADER_LENGTH:
        return None
    _, template_id, schema_id, _ = peek_header(payload)
    model = registry.get(registry_key(schema_id, template_id))
    if model is None:
        return None
    try:
        return model.decode(payload)
    except RemoteProtocolError:
        return None


class MessageViewer:
    """Shows the messages of one recording, in order, one by one."""

    __slots__ = ("_content", "_registry", "_schemas", "_unknown_name")

    def __init__(
        self,
        registry: Registry,
        *,
        unknown_name: str,
        content: StreamContent | None,
        find_schemas: Callable[[], Iterable[bytes]] | None = None,
    ) -> None:
        self._registry = registry
        self._unknown_name = unknown_name
        self._content = content
        self._schemas = LogSchemas(find_schemas)

    @classmethod
    def of(
        cls,
        vocabulary: Vocabulary,
        stream_id: int,
        beginning: Iterable[RecordedMessage],
        *,
        is_whole: bool,
        find_schemas: Callable[[], Iterable[bytes]] | None = None,
    ) -> Self:
        """Make the viewer for a recording, given its first messages; some of them are enough.

        `find_schemas` finds schemas of typed messages that the recording may lack; it is called once, or never.
        `is_whole` says that the first message to be shown is the recording's first: only then is known where the
        application's own messages begin.
        """
        if not any(find_message(message.payload, vocabulary.registry) for message in beginning):
            return cls(vocabulary.registry, unknown_name=OPAQUE, content=None)
        content = vocabulary.streams.get(stream_id)
        if content is not None and content.is_last is not None and not is_whole:
            content = None
        return cls(vocabulary.registry, unknown_name=APPLICATION, content=content, find_schemas=find_schemas)

    def view(self, message: RecordedMessage) -> dict[str, Any]:
        """Describe a recorded message; one that is not known gets only its payload, and a `problem` if it should be."""
        payload = message.payload
        view: dict[str, Any] = {
            "position": message.position,
            "end_position": message.end_position,
            "frame_count": message.frame_count,
            "length": len(payload),
        }
        if self._content is None:
            decoded = find_message(payload, self._registry)
            if decoded is None:
                return view | _view_payload(payload, self._unknown_name)
            return view | view_decoded(decoded, payload) | self._view_typed(decoded, payload)
        try:
            decoded = _decode_strictly(payload, self._content.registry)
        except RemoteProtocolError as error:
            return view | _view_header(payload) | _view_payload(payload, UNREADABLE) | {"problem": str(error)}
        if self._content.is_last is not None and self._content.is_last(decoded):
            self._content = None
        return view | view_decoded(decoded, payload) | self._view_typed(decoded, payload)

    def _view_typed(self, decoded: Message, payload: bytes) -> dict[str, Any]:
        """Show the message of a typed client, by the schemas that are in the log."""
        if not isinstance(decoded, SessionMessageHeader):
            return {}
        begin = MESSAGE_HEADER_LENGTH + peek_header(payload)[0]
        typed = self._schemas.view(payload[begin:])
        return {} if typed is None else {"typed": typed}


def _decode_strictly(payload: bytes, registry: Registry) -> Message:
    """Decode a payload that is one message of the registry and nothing else.

    Raises:
        RemoteProtocolError: it is not.
    """
    decoded = decode_message(payload, registry=registry)
    block_length, _, _, version = peek_header(payload)
    if version != decoded.SCHEMA_VERSION or isinstance(decoded, SessionMessageHeader):
        return decoded  # another version may have another length; the payload of a session message has any
    # A longer block of the same version holds fields of our own, which readers skip.
    length = len(decoded.encode()) + max(0, block_length - decoded.LAYOUT.block_length)
    if length != len(payload):
        raise RemoteProtocolError(f"{decoded.WIRE_NAME}: length={len(payload)} expected={length}")
    return decoded


def view_decoded(decoded: Message, payload: bytes) -> dict[str, Any]:
    """Describe a message that was decoded from `payload`: its header, its name, its fields and groups."""
    view = _view_header(payload) | {"name": decoded.WIRE_NAME, "fields": _view_fields(decoded, decoded.LAYOUT)}
    groups = {
        group.wire_name: [_view_fields(element, group.layout) for element in getattr(decoded, group.name)]
        for group in decoded.LAYOUT.groups
    }
    if groups:
        view["groups"] = groups
    if isinstance(decoded, SessionMessageHeader):
        block_length = view["block_length"]
        view |= _view_payload(payload[MESSAGE_HEADER_LENGTH + block_length :])
    return view


def _view_header(payload: bytes) -> dict[str, Any]:
    """Show the SBE header, as far as there is one."""
    if len(payload) < MESSAGE_HEADER_LENGTH:
        return {}
    block_length, template_id, schema_id, version = peek_header(payload)
    return {
        "schema_id": schema_id,
        "schema_version": version,
        "template_id": template_id,
        "block_length": block_length,
    }


def _view_payload(payload: bytes, name: str | None = None) -> dict[str, Any]:
    view: dict[str, Any] = {} if name is None else {"name": name}
    view["payload_length"] = len(payload)
    if len(payload) <= HEX_LIMIT_BYTES:
        return view | {"payload_hex": payload.hex()}
    return view | {"payload_sha256": hashlib.sha256(payload).hexdigest()}


def _view_fields(model: BaseModel, layout: MessageLayout) -> dict[str, Any]:
    view = {field.wire_name: _view_value(getattr(model, field.name), field) for field in layout.block}
    for var_field in layout.var_data:
        value = getattr(model, var_field.name)
        view[var_field.wire_name] = value.hex() if isinstance(value, bytes) else value
    return view


def _view_value(value: Any, field: BlockField) -> Any:
    """Show one value of a block as Aeron's own decoders name it."""
    if value is None:
        return "NULL_VAL" if field.values is not None else field.null
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return value.name if isinstance(value, Enum) else value
