"""What a typed row means in the words of the samples' truth."""

from __future__ import annotations

from typing import Any

from trimaran.service_api.wire.message import Message


def wire_fields(message: type[Message], row: dict[str, Any]) -> dict[str, Any]:
    """Say a row with the schema's names; what is NULL is said as the truth says nulls, times without one as -1."""
    found: dict[str, Any] = {}
    for field in message.LAYOUT.block:
        value = row[field.name]
        if value is None:
            value = "NULL_VAL" if field.values is not None else -1 if field.is_time else field.null
        found[field.wire_name] = str(value).upper() if isinstance(value, bool) else value
    for var in message.LAYOUT.var_data:
        value = row[var.name]
        found[var.wire_name] = value if var.is_text else value.hex()
    return found
