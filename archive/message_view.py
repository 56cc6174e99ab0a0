"""Messages as plain values for people and tools: names as in the schema, enums by name, bytes as hex.

Which messages are known is a registry of message classes, handed in: the archive itself knows none but its
own and those of the session protocol. A recording whose first message is known is taken for the cluster's, so
what is not known in there is the application's.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Any, Final

from pydantic import BaseModel

from service_api.errors import RemoteProtocolError
from service_api.wire.fields import BlockField, MessageLayout
from service_api.wire.message import (
    MESSAGE_HEADER_LENGTH,
    Message,
    Registry,
    peek_header,
    registry_key,
)
from service_api.wire.session import SessionMessageHeader

from .reader import RecordedMessage

HEX_LIMIT_BYTES: Final = 32
"""Payloads up to this length are shown as hex, longer ones as their SHA-256."""

APPLICATION: Final = "(application)"
OPAQUE: Final = "(opaque)"


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


def view_message(message: RecordedMessage, registry: Registry, *, unknown_name: str) -> dict[str, Any]:
    """Describe a recorded message; what the registry does not know gets `unknown_name` and only its payload."""
    payload = message.payload
    view: dict[str, Any] = {
        "position": message.position,
        "end_position": message.end_position,
        "frame_count": message.frame_count,
        "length": len(payload),
    }
    decoded = find_message(payload, registry)
    if decoded is None:
        return view | {"name": unknown_name} | _view_payload(payload)
    block_length, template_id, schema_id, version = peek_header(payload)
    view |= {
        "schema_id": schema_id,
        "schema_version": version,
        "template_id": template_id,
        "block_length": block_length,
        "name": decoded.WIRE_NAME,
        "fields": _view_fields(decoded, decoded.LAYOUT),
    }
    groups = {
        group.wire_name: [_view_fields(element, group.layout) for element in getattr(decoded, group.name)]
        for group in decoded.LAYOUT.groups
    }
    if groups:
        view["groups"] = groups
    if isinstance(decoded, SessionMessageHeader):
        view |= _view_payload(payload[MESSAGE_HEADER_LENGTH + block_length :])
    return view


def _view_payload(payload: bytes) -> dict[str, Any]:
    if len(payload) <= HEX_LIMIT_BYTES:
        return {"payload_length": len(payload), "payload_hex": payload.hex()}
    return {"payload_length": len(payload), "payload_sha256": hashlib.sha256(payload).hexdigest()}


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
