"""The one table of columns: it has what frames and messages have, and all that shows frames takes it from there."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from tests.places import ROOT
from trimaran.archive.reading.frame_batches import make_schema
from trimaran.archive.reading.frame_columns import (
    COLUMNS,
    FRAME_COLUMNS,
    HEADER_COLUMNS,
    MESSAGE_COLUMNS,
    choose_columns,
    columns_as_markdown,
)
from trimaran.archive.spark.source.columns import frame_struct
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.types import TimeUnit
from trimaran.service_api.wire.frame import FrameHeader
from trimaran.service_api.wire.log.fields import LogFields


def test_columns_are_the_fields_of_a_header_and_of_a_message() -> None:
    assert ("recording_id", "position", *FrameHeader._fields) == HEADER_COLUMNS
    assert LogFields._fields == MESSAGE_COLUMNS
    assert (*HEADER_COLUMNS, *MESSAGE_COLUMNS, "payload") == FRAME_COLUMNS


def test_arrow_has_the_types_of_the_table() -> None:
    schema = make_schema(None, TimeUnit.MILLIS)

    named = {name: str(schema.field(name).type) for name in FRAME_COLUMNS}

    assert named | {"timestamp": "timestamp, UTC"} == {name: COLUMNS[name].type.value for name in FRAME_COLUMNS}


def test_spark_has_the_types_of_arrow() -> None:
    """Timestamps of Spark are in microseconds."""
    expected = make_schema(None, TimeUnit.MICROS)
    found = to_arrow_schema(frame_struct(), timezone="UTC")

    assert [(field.name, field.type) for field in found] == [(field.name, field.type) for field in expected]


@pytest.mark.parametrize(
    ("columns", "reason"), [(["position", "term"], "column='term'"), (["flags", "flags"], "named twice")]
)
def test_names_of_a_user_are_checked(columns: list[str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        choose_columns(columns)


def test_the_table_of_the_documentation_is_the_codes() -> None:
    """Regenerate the table with `print(columns_as_markdown())`."""
    assert columns_as_markdown() in (ROOT / "docs" / "archive-frames.md").read_text()
