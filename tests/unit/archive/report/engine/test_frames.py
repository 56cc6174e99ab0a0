"""The report's engine where Spark means what DuckDB does not; tests/spark/test_report_engine.py compares the two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trimaran.archive.report.engine.frames import SqlDatabase, SqlFrame
from trimaran.archive.spark.analyses.sql import sql, text_of


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqlDatabase]:
    database = SqlDatabase(tmp_path)
    yield database
    database.close()


def table_of(database: SqlDatabase, **columns: list[Any]) -> SqlFrame:
    table = pa.table(columns)
    return database.scan(table.schema, lambda: iter(table.to_batches())).persist()


def values_of(frame: Any, expression: str) -> list[Any]:
    return list(sql(f"SELECT {expression} AS value FROM rows", rows=frame).toPandas()["value"])


def test_null_comes_first_in_every_order(database: SqlDatabase) -> None:
    frame: Any = table_of(database, id=[1, 2, 3], at=[5, None, 4])

    def ids(rest: str) -> list[int]:
        return list(sql(f"SELECT id FROM rows {rest}", rows=frame).toPandas()["id"])

    assert ids("ORDER BY `at`") == [2, 3, 1]
    assert ids("ORDER BY `at` DESC") == [1, 3, 2]
    assert list(sql("SELECT id FROM rows ORDER BY `at`", rows=frame).limit(2).toPandas()["id"]) == [2, 3]
    assert ids("ORDER BY row_number() OVER (ORDER BY `at` DESC)") == [1, 3, 2]


def test_a_sum_of_integers_is_one(database: SqlDatabase) -> None:
    frame = table_of(database, value=[1 << 62, 1, None])

    assert values_of(frame, "sum(value)") == [(1 << 62) + 1]


def test_numbers_in_hexadecimal_have_the_sign_of_their_64_bits(database: SqlDatabase) -> None:
    frame = table_of(database, digits=["FFFFFFFFFFFFFFFE", "ff"])

    assert values_of(frame, "conv(digits, 16, -10)") == [-2, 255]


def test_bytes_become_the_text_that_they_are(database: SqlDatabase) -> None:
    frame = table_of(database, value=["grün".encode(), b"\xff"])

    assert values_of(frame, "string(value)") == ["grün", "\\xFF"]
    assert values_of(frame, "length(value)") == [5, 1]
    assert values_of(frame, "substr(value, 2, 1)") == [b"r", b""]
    assert values_of(frame, "hex(reverse(value))") == ["6EBCC37267", "FF"]
    assert values_of(frame, "rpad(value, 6, x'00')") == ["grün".encode() + b"\0", b"\xff" + bytes(5)]


def test_the_last_value_may_be_null(database: SqlDatabase) -> None:
    frame = table_of(database, place=[1, 2], value=[5, None])

    assert values_of(frame, "max_by(value, place) IS NULL") == [True]


def test_a_quotient_of_integers_is_none(database: SqlDatabase) -> None:
    assert values_of(table_of(database, value=[3]), "value / 2") == [1.5]


def test_structs_have_the_names_of_their_columns_and_functions_may_be_passed(database: SqlDatabase) -> None:
    frame = table_of(database, place=[2, 1], value=["b", "a"])

    (rows,) = values_of(frame, "sort_array(collect_list(struct(place, value)))")
    (values,) = values_of(frame, "transform(sort_array(collect_list(struct(place, value))), row -> row.value)")
    (total,) = values_of(frame, "aggregate(collect_list(place), 10, (so_far, one) -> so_far + one)")

    assert list(rows) == [{"place": 1, "value": "a"}, {"place": 2, "value": "b"}]
    assert list(values) == ["a", "b"]
    assert total == 13


def test_a_scan_is_read_anew_by_each_query_and_for_each_of_its_names(database: SqlDatabase) -> None:
    opened = []

    def read() -> Iterator[Any]:
        opened.append(1)
        yield from pa.table({"id": [1, 2]}).to_batches()

    frame: Any = database.scan(pa.schema([("id", pa.int64())]), read)
    both = sql("SELECT id, 'b' AS name FROM a FULL OUTER JOIN b USING (id)", a=frame, b=frame)

    assert sorted(both.toPandas()["id"]) == [1, 2]
    assert sorted(both.toPandas()["id"]) == [1, 2]
    assert both.columns == ["id", "name"]
    assert len(opened) == 2 + 2


def test_what_the_reader_of_a_scan_raises_the_query_raises(database: SqlDatabase) -> None:
    def fail() -> Iterator[Any]:
        yield from ()
        raise OSError(5, "Input/output error", "0-0.rec")

    frame = database.scan(pa.schema([("id", pa.int64())]), fail)

    with pytest.raises(OSError, match=r"0-0\.rec"):
        frame.toPandas()


@pytest.mark.parametrize("text", ['it\'s "x"', "{braces}", "back\\slash", "grün", ""])
def test_a_text_stays_as_it_is(text: str, database: SqlDatabase) -> None:
    frame = table_of(database, value=[1])

    assert values_of(frame, text_of(text)) == [text]
