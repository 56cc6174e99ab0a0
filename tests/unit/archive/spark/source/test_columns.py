"""The columns of a log as Spark types."""

from __future__ import annotations

from trimaran.archive.reading.frame_columns import FRAME_COLUMNS, MESSAGE_COLUMNS
from trimaran.archive.spark.source.columns import frame_struct


def test_only_the_columns_of_messages_can_be_null() -> None:
    struct = frame_struct()

    assert tuple(struct.names) == FRAME_COLUMNS
    assert tuple(field.name for field in struct if field.nullable) == MESSAGE_COLUMNS
