"""The header of a typed payload: what a node reads of a message without its schema.

byte 0       0xC1, which no MessagePack begins with
byte 1       the low four bits: `PayloadKind`; the high ones: the id of the service that it is for, or, of an
             event, from; 0 where a node runs one service, and in replies and errors, which answer a request
bytes 2..10  the fingerprint of the schema that the rest is written by
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

MAGIC: Final = 0xC1
FINGERPRINT_BYTES: Final = 8
HEADER_BYTES: Final = 2 + FINGERPRINT_BYTES
_KIND_BITS: Final = 4
SERVICE_ID_LIMIT: Final = 16
"""Ids are below; a node runs fewer services."""


class PayloadKind(IntEnum):
    """The kind of the rest of a payload; at most 15, as there is room for."""

    COMMAND = 1
    QUERY = 2
    REPLY = 3
    ERROR = 4
    EVENT = 5
    SCHEMA = 6
    """A client or a service tells by which schema it writes: that is in the log before the first message written so."""
    SCHEMAS = 7
    """A query: which typed services the node runs, which schemas the one that answers has, and which are in its log."""
    OUTBOX = 8
    """A query for the effects of an outbox, a request that settles some, or what answers it; `outbox.protocol`."""


def tag_of(kind: PayloadKind | int, service_id: int) -> int:
    """Return byte 1 of a payload."""
    return service_id << _KIND_BITS | kind


def split_header(payload: bytes | memoryview) -> tuple[int, int] | None:
    """Return the kind and the service id that the header of a payload says; None for what is not typed."""
    if len(payload) < HEADER_BYTES or payload[0] != MAGIC:
        return None
    return payload[1] & (1 << _KIND_BITS) - 1, payload[1] >> _KIND_BITS


def addressee_of(payload: bytes | memoryview) -> int | None:
    """Return the id of the service that a typed request is for; None for what is no typed request."""
    header = split_header(payload)
    if header is None:
        return None
    kind, service_id = header
    return service_id if kind in (PayloadKind.COMMAND, PayloadKind.SCHEMA, PayloadKind.OUTBOX) else None


def schemas_query(service_id: int | None = None) -> bytes:
    """Return the query for the schemas of one service; without an id for those of the only one, or for who runs."""
    return bytes((MAGIC, tag_of(PayloadKind.SCHEMAS, service_id or 0))) + bytes(FINGERPRINT_BYTES)
