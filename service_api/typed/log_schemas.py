"""Typed payloads of a log, read without the classes: the schemas are in the log before what is written by them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ..errors import RemoteProtocolError
from .codec import HEADER_BYTES, MAGIC, READ_ANY, PayloadKind, schema_from_bytes, to_builtins
from .schema import Schema, fingerprint_of

_SCHEMA_LIMIT_BYTES: Final = 65_536


class LogSchemas:
    """The schemas that a reader of a log has met so far."""

    def __init__(self) -> None:
        self._schemas: dict[bytes, Schema] = {}

    def __repr__(self) -> str:
        return f"<LogSchemas {len(self._schemas)}>"

    def view(self, payload: bytes) -> dict[str, Any] | None:
        """Describe a typed payload: its `message` and its `values` by name; None for what is none.

        A payload whose schema was announced before what the reader saw has its `fingerprint` alone.
        """
        if len(payload) < HEADER_BYTES or payload[0] != MAGIC:
            return None
        kind, fingerprint, body = payload[1], payload[2:HEADER_BYTES], payload[HEADER_BYTES:]
        if kind == PayloadKind.SCHEMA:
            return self._note(body)
        if kind != PayloadKind.COMMAND:
            return None
        schema = self._schemas.get(fingerprint)
        if schema is None:
            return {"fingerprint": fingerprint.hex()}
        try:
            values = to_builtins(READ_ANY.decode(body))
            by_name = dict(zip((name for name, _, _ in schema["fields"]), values, strict=True))
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            return {"message": schema["name"], "problem": "the bytes are not the fields of its schema"}
        return {"message": schema["name"], "values": _shown(by_name)}

    def _note(self, body: bytes) -> dict[str, Any]:
        try:
            schema = schema_from_bytes(body, limit_bytes=_SCHEMA_LIMIT_BYTES)
        except RemoteProtocolError as error:
            return {"problem": str(error)}
        self._schemas[fingerprint_of(schema)] = schema
        return {"message": schema["name"], "schema": schema}


def _shown(value: Any) -> Any:
    """Give a value as JSON has it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): _shown(each) for key, each in value.items()}
    return [_shown(each) for each in value] if isinstance(value, list | tuple) else value
