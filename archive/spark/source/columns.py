"""The columns of a log as Spark types, and the check of a schema that a user gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, ShortType, StructType, TimestampType

from ....service_api.errors import ConfigurationError
from ...reading.frame_columns import COLUMNS, FRAME_COLUMNS, MESSAGE_COLUMNS, ColumnType, choose_columns

_SPARK_TYPES: Final[Mapping[ColumnType, DataType]] = {
    ColumnType.INT16: ShortType(),
    ColumnType.INT32: IntegerType(),
    ColumnType.INT64: LongType(),
    ColumnType.TIMESTAMP: TimestampType(),
    ColumnType.BINARY: BinaryType(),
}
FRAME_TYPES: Final[Mapping[str, DataType]] = {name: _SPARK_TYPES[column.type] for name, column in COLUMNS.items()}
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
