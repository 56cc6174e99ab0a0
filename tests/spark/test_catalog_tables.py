"""Tables of Spark's catalog and views over recordings: every way to make one, and that dropping one deletes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.unit.archive.streams import extract_sample

MESSAGES = 2042
"""Of all kinds, in the log of the sample."""

WAYS: dict[str, Callable[[SparkSession, Path], object]] = {
    "CREATE TABLE": lambda spark, path: spark.sql(
        f"CREATE TABLE found USING aeron_archive OPTIONS (path '{path}', messages 'true')"
    ),
    "with properties": lambda spark, path: spark.sql(
        f"CREATE TABLE found USING aeron_archive OPTIONS (Messages 'true') LOCATION '{path}' "
        "COMMENT 'the log' TBLPROPERTIES ('messages' = 'a property', 'owner.team' = 'data')"
    ),
    "createTable": lambda spark, path: spark.catalog.createTable(
        "found", source="aeron_archive", path=str(path), messages="true"
    ),
    "TEMPORARY VIEW": lambda spark, path: spark.sql(
        f"CREATE TEMPORARY VIEW found USING aeron_archive OPTIONS (path '{path}', messages 'true')"
    ),
}


@pytest.fixture
def directory(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    made = extract_sample("single-node", tmp_path) / "node0"
    yield made
    spark.sql("DROP VIEW IF EXISTS found") if spark.catalog.tableExists("found") and _is_view(spark) else spark.sql(
        "DROP TABLE IF EXISTS found"
    )


def _is_view(spark: SparkSession) -> bool:
    return any(table.name == "found" and table.isTemporary for table in spark.catalog.listTables())


@pytest.mark.parametrize("way", WAYS)
def test_a_table_or_view_has_the_rows_of_its_options(
    spark: SparkSession, directory: Path, tmp_path: Path, way: str
) -> None:
    files = sorted(path.relative_to(directory) for path in directory.rglob("*"))
    WAYS[way](spark, directory)

    table = spark.table("found")

    assert table.count() == MESSAGES
    (row,) = spark.sql("SELECT count(*), min(position), count(payload) FROM found WHERE type = 1").collect()
    assert tuple(row) == (MESSAGES, 0, MESSAGES)
    assert spark.sql("SELECT * FROM found a JOIN found b USING (position)").count() == MESSAGES
    spark.sql(f"DROP {'VIEW' if _is_view(spark) else 'TABLE'} found")
    assert sorted(path.relative_to(directory) for path in directory.rglob("*")) == files
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_a_table_has_its_where_and_columns_and_a_read_may_say_more(spark: SparkSession, directory: Path) -> None:
    spark.sql(
        f"CREATE TABLE found USING aeron_archive OPTIONS (path '{directory}', columns 'position,type', "
        "where 'position < 5000 OR type = 0')"
    )

    positions = [row.position for row in spark.table("found").where("type = 1").collect()]

    assert spark.table("found").columns == ["position", "type"]
    assert max(positions) < 5000
    assert 0 < len(positions) < spark.read.option("where", "type = 1").table("found").count()


def test_what_is_wrong_with_a_table_is_said(spark: SparkSession, directory: Path) -> None:
    with pytest.raises(PySparkException, match="option='nosuch'"):
        spark.sql(f"CREATE TABLE found USING aeron_archive OPTIONS (path '{directory}', nosuch '1')")
    spark.sql(f"CREATE TABLE found (position LONG) USING aeron_archive OPTIONS (path '{directory}')")
    with pytest.raises(PySparkException, match="columns"):
        spark.table("found").count()
