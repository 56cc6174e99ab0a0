"""Entries as what JSON can hold, for the command and for sinks."""

from __future__ import annotations

from typing import Any

from ...service_api.payloads import encode_payload
from .entries import LogEntry


def as_row(entry: LogEntry) -> dict[str, Any]:
    """Return an entry by field names: the payload as text, or as base64 if it is not text; `typed` if it has that."""
    payload, encoding = encode_payload(entry.payload)
    row = entry._asdict() | {"payload": payload, "payload_encoding": encoding}
    if entry.typed is None:
        del row["typed"]
    return row
