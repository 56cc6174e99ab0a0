"""The report's engine where Spark means what DuckDB does not; tests/spark/test_report_engine.py compares the two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trimaran.archive.report.engine import functions as F  # noqa: N812 - the name that every Spark program gives it
from trimaran.archive.report.engine.columns import SqlColumn, SqlWindow
from trimaran.archive.report.engine.frames import SqlDatabase, SqlFrame


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqlDatabase]:
    database = SqlDatabase(tmp_path)
    yield database
    database.close()


def reader_of(columns: dict[str, list[Any]]) -> Any:
    return pa.table(columns).to_reader()


def table_of(database: SqlDatabase, **columns: list[Any]) -> SqlFrame:
    return database.scan(lambda: reader_of(columns)).persist()


def values_of(frame: SqlFrame, column: SqlColumn) -> list[Any]:
    return list(frame.select(column.alias("value")).toPandas()["value"])


def test_null_comes_first_in_every_order(database: SqlDatabase) -> None:
    frame = table_of(database, id=[1, 2, 3], at=[5, None, 4])

    assert list(frame.orderBy("at").toPandas()["id"]) == [2, 3, 1]
    assert list(frame.orderBy(F.desc("at")).toPandas()["id"]) == [1, 3, 2]
    assert list(frame.orderBy("at").limit(2).toPandas()["id"]) == [2, 3]
    ranks = F.row_number().over(SqlWindow.partitionBy(F.lit(0)).orderBy("at"))
    ranked = frame.withColumn("rank", ranks).orderBy("id").toPandas()
    assert list(ranked["rank"]) == [3, 1, 2]


def test_a_sum_of_integers_is_one(database: SqlDatabase) -> None:
    frame = table_of(database, value=[1 << 62, 1, None])

    assert values_of(frame.agg(F.sum("value").alias("value")), F.col("value")) == [(1 << 62) + 1]


def test_numbers_in_hexadecimal_have_the_sign_of_their_64_bits(database: SqlDatabase) -> None:
    frame = table_of(database, digits=["FFFFFFFFFFFFFFFE", "ff", ""])

    assert values_of(frame.where("digits <> ''"), F.conv("digits", 16, -10)) == [-2, 255]


@pytest.mark.parametrize(("value", "bits", "shifted"), [(5, 3, 40), (0xFFFF_FFFE, 32, -2 << 32), (-1, 63, -1 << 63)])
def test_bits_that_leave_a_number_are_lost(database: SqlDatabase, value: int, bits: int, shifted: int) -> None:
    frame = table_of(database, value=[value])

    assert values_of(frame, F.shiftleft("value", bits)) == [shifted]


def test_bytes_become_the_text_that_they_are(database: SqlDatabase) -> None:
    frame = table_of(database, value=["grün".encode(), b"\xff"])

    assert values_of(frame, F.col("value").cast("string")) == ["grün", "\\xFF"]
    assert values_of(frame, F.length("value")) == [5, 1]
    assert values_of(frame, F.substr("value", F.lit(2), F.lit(1))) == [b"r", b""]
    assert values_of(table_of(database, value=[12]), F.col("value").cast("string")) == ["12"]


def test_a_quotient_of_integers_is_none_and_by_zero_it_is_null(database: SqlDatabase) -> None:
    frame = table_of(database, value=[3])

    assert values_of(frame, F.col("value") / F.lit(2)) == [1.5]
    assert values_of(frame, F.try_divide("value", F.lit(0)).isNull()) == [True]


def test_a_scan_is_read_anew_by_each_query_and_for_each_of_its_names(database: SqlDatabase) -> None:
    opened = []

    def open_batches() -> Any:
        opened.append(1)
        return reader_of({"id": [1, 2]})

    frame = database.scan(open_batches)
    both = frame.join(frame.select(F.col("id"), F.lit("b").alias("name")), "id", "full_outer")

    assert sorted(both.toPandas()["id"]) == [1, 2]
    assert sorted(both.toPandas()["id"]) == [1, 2]
    assert both.columns == ["id", "name"]
    assert len(opened) == 1 + 2 + 2  # the first to learn the columns


def test_what_the_reader_of_a_scan_raises_the_query_raises(database: SqlDatabase) -> None:
    def fail() -> Iterator[Any]:
        yield from ()
        raise OSError(5, "Input/output error", "0-0.rec")

    schema = pa.schema([("id", pa.int64())])
    frame = database.scan(lambda: pa.RecordBatchReader.from_batches(schema, fail()))

    with pytest.raises(OSError, match=r"0-0\.rec"):
        frame.toPandas()


def test_a_text_with_quotes_stays_one(database: SqlDatabase) -> None:
    frame = table_of(database, value=["it's"])

    assert values_of(frame, F.lit('it\'s "x"')) == ['it\'s "x"']
    assert values_of(frame, F.col("value") == "it's") == [True]
