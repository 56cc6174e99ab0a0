"""The columns of a log as Spark types, and the check of a schema that a user asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, ShortType, StructType, TimestampType

from trimaran.service_api.errors import ConfigurationError

from ...reading.frame_batches import FRAME_COLUMNS, MESSAGE_COLUMNS, choose_columns

FRAME_TYPES: Final[Mapping[str, DataType]] = {
    "recording_id": LongType(),
    "position": LongType(),
    "frame_length": IntegerType(),
    "version": ShortType(),
    "flags": ShortType(),
    "type": IntegerType(),
    "term_offset": IntegerType(),
    "session_id": IntegerType(),
    "stream_id": IntegerType(),
    "term_id": IntegerType(),
    "reserved_value": LongType(),
    "template_id": IntegerType(),
    "leadership_term_id": LongType(),
    "cluster_session_id": LongType(),
    "correlation_id": LongType(),
    "timestamp": TimestampType(),
    "payload": BinaryType(),
}
"""By column, in their order: those of `archive.frames`, with timestamps in the microseconds of Spark."""


def frame_struct(columns: Sequence[str] | None = None) -> StructType:
    """Make the schema of these columns, or of all, in the order given.

    Only those of messages can be NULL: Spark asks of every value of such a column whether it is there, which costs
    more than to copy it.

    Raises:
        ConfigurationError: there is no such column, or one is named twice.
    """
    struct = StructType()
    for name in choose_columns(columns):
        struct.add(name, FRAME_TYPES[name], nullable=name in MESSAGE_COLUMNS)
    return struct


def check_struct(schema: StructType) -> tuple[str, ...]:
    """Check a schema that a user gave by `.schema(...)`; returns its columns.

    Raises:
        ConfigurationError: a column is unknown, named twice, or of another type.
    """
    names = choose_columns(schema.names)
    if not names:
        raise ConfigurationError(f"a schema without columns: expected some of {', '.join(FRAME_COLUMNS)}")
    for field in schema:
        expected = FRAME_TYPES[field.name]
        if field.dataType != expected:
            raise ConfigurationError(
                f"column {field.name} has another type: {field.dataType.simpleString()} "
                f"expected {expected.simpleString()}"
            )
    return names
