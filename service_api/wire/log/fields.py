"""Where the messages of a cluster's log hold the fields that all of them are looked at by.

The archive knows nothing of Raft, but most of what it holds are logs, and who reads a log as a table wants to
filter by term, session and time without decoding every message. So the offsets of these four fields are
written down here once; a test compares them with the message classes of `trimaran.cluster.messages`.
Source: schema 111, templates 1 and 20 to 25.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from trimaran.service_api.wire.sbe import INT64_NULL, MESSAGE_HEADER

LOG_SCHEMA_ID: Final = 111
MESSAGE_HEADER_LENGTH: Final = MESSAGE_HEADER.size
SESSION_MESSAGE_TEMPLATE_ID: Final = 1
"""What clients send, and nearly all of a log: a header with the application's bytes behind it."""

NOT_YET_APPENDED: Final = (1 << 63) - 1
"""The timestamp of a message that a snapshot holds because the log has not got it yet."""

_INT64: Final = struct.Struct("<q")


class FieldOffsets(NamedTuple):
    """Where in its SBE block a message has each field, in bytes; None where it has none. Each is an int64."""

    leadership_term_id: int | None
    cluster_session_id: int | None
    correlation_id: int | None
    timestamp: int | None


LOG_FIELDS: Final[Mapping[int, FieldOffsets]] = MappingProxyType(
    {
        SESSION_MESSAGE_TEMPLATE_ID: FieldOffsets(0, 8, None, 16),
        20: FieldOffsets(0, None, 8, 16),
        21: FieldOffsets(0, 16, 8, 24),
        22: FieldOffsets(0, 8, None, 16),
        23: FieldOffsets(0, None, None, 16),
        24: FieldOffsets(0, None, None, 16),
        25: FieldOffsets(0, None, None, 16),
    }
)
"""By template id: session messages, timers, session opened and closed, cluster action, new term, membership."""


class LogFields(NamedTuple):
    """What the beginning of a message says; None where it says nothing of the kind."""

    template_id: int | None = None
    leadership_term_id: int | None = None
    cluster_session_id: int | None = None
    correlation_id: int | None = None
    timestamp: int | None = None


_NONE: Final = LogFields()


def read_log_fields(payload: bytes) -> LogFields:
    """Read the fields from a payload that begins a message; all None when it is none of schema 111."""
    if len(payload) < MESSAGE_HEADER_LENGTH:
        return _NONE
    block_length, template_id, schema_id, _ = MESSAGE_HEADER.unpack_from(payload)
    if schema_id != LOG_SCHEMA_ID or MESSAGE_HEADER_LENGTH + block_length > len(payload):
        return _NONE
    offsets = LOG_FIELDS.get(template_id)
    if offsets is None:
        return LogFields(template_id)
    values = [_read(payload, offset, block_length) for offset in offsets]
    if values[-1] == NOT_YET_APPENDED:
        values[-1] = None
    return LogFields(template_id, *values)


def _read(payload: bytes, offset: int | None, block_length: int) -> int | None:
    if offset is None or offset + _INT64.size > block_length:
        return None
    value: int = _INT64.unpack_from(payload, MESSAGE_HEADER_LENGTH + offset)[0]
    return None if value == INT64_NULL else value
