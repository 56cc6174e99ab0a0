"""Reads the few fields of a log's messages that all readers look at, without decoding the messages.

A reader of a log as a table wants to filter by term, session and time; a recording says in two of its messages in
which unit its times are. Imports nothing outside the standard library: see `schema`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ...types import TimeUnit
from ..sbe import INT64_NULL, MESSAGE_HEADER
from .layout import FIELD_OFFSETS, LOG_SCHEMA_ID, SNAPSHOT_MARKER

MESSAGE_HEADER_LENGTH: Final = MESSAGE_HEADER.size

NOT_YET_APPENDED: Final = (1 << 63) - 1
"""The timestamp of a message that a snapshot holds because the log does not have it yet."""

_INT32: Final = struct.Struct("<i")
_INT64: Final = struct.Struct("<q")
_UNITS: Final = frozenset(unit.value for unit in TimeUnit)


class FieldOffsets(NamedTuple):
    """Where in its SBE block a message has each field, in bytes; None where it has none. Each is an int64."""

    leadership_term_id: int | None
    cluster_session_id: int | None
    correlation_id: int | None
    timestamp: int | None


LOG_FIELDS: Final[Mapping[int, FieldOffsets]] = MappingProxyType(
    {
        template_id: FieldOffsets(*(offsets.get(name) for name in FieldOffsets._fields))
        for template_id, offsets in FIELD_OFFSETS.items()
        if template_id != SNAPSHOT_MARKER
    }
)
"""By template id: the messages of a log."""

_TIME_UNIT_OFFSETS: Final = {
    template_id: offsets["time_unit"] for template_id, offsets in FIELD_OFFSETS.items() if "time_unit" in offsets
}
"""By template id: the first message of a leadership term and of a snapshot, which name the unit, as int32."""


class LogFields(NamedTuple):
    """What the beginning of a message says; None where it says nothing of the kind."""

    template_id: int | None = None
    block_length: int | None = None
    """Bytes after the message's header in which its fields are; what an application sent follows them."""
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
        return LogFields(template_id, block_length)
    values = [_read(payload, offset, block_length) for offset in offsets]
    if values[-1] == NOT_YET_APPENDED:
        values[-1] = None
    return LogFields(template_id, block_length, *values)


def read_time_unit(payload: bytes) -> TimeUnit | None:
    """Read the unit of a log's times from a message that names it.

    None for any other message, and for an old one that does not name it yet.
    """
    if len(payload) < MESSAGE_HEADER_LENGTH:
        return None
    block_length, template_id, schema_id, _ = MESSAGE_HEADER.unpack_from(payload)
    offset = _TIME_UNIT_OFFSETS.get(template_id)
    if schema_id != LOG_SCHEMA_ID or offset is None or block_length < offset + _INT32.size:
        return None
    if len(payload) < MESSAGE_HEADER_LENGTH + block_length:
        return None
    (value,) = _INT32.unpack_from(payload, MESSAGE_HEADER_LENGTH + offset)
    return TimeUnit(value) if value in _UNITS else None


def _read(payload: bytes, offset: int | None, block_length: int) -> int | None:
    if offset is None or offset + _INT64.size > block_length:
        return None
    value: int = _INT64.unpack_from(payload, MESSAGE_HEADER_LENGTH + offset)[0]
    return None if value == INT64_NULL else value
