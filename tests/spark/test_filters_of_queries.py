"""Filters: of queries on one DataFrame, of the option `where`, and those that Spark pushes down."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.unit.archive.streams import extract_sample

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
FILTERS = (
    "type = 0",
    "template_id IN (20, 21)",
    "position >= 200000 AND position < 300000",
    "timestamp >= '2026-11-21 04:01:25' AND timestamp < '2026-11-21 04:01:25.5'",
    "cluster_session_id IS NULL AND type <> 0",
    "cluster_session_id NOT IN (1, 2) AND leadership_term_id <=> 0",
    "recording_id = 1",
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("filters")
    yield extract_sample("single-node", root) / "node0"
    shutil.rmtree(root)


def read(spark: SparkSession, directory: Path, **options: str) -> DataFrame:
    return spark.read.format("aeron_archive").options(recordingId="all", **options).load(str(directory))


def keys(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted(tuple(row) for row in frame.select("recording_id", "position").collect())


def test_one_dataframe_answers_many_questions(spark: SparkSession, directory: Path) -> None:
    """Spark 4.3 reads for all scans of a DataFrame what the last one with pushed filters read."""
    assert spark.conf.get(PUSHDOWN) == "true"
    frames = read(spark, directory)
    padding, data = frames.where("type = 0"), frames.where("type = 1")

    counts = [frame.count() for frame in (frames, padding, frames, data, padding.union(data))]

    assert counts == [2182, 16, 2182, 2166, 2182]


@pytest.mark.parametrize("text", FILTERS)
def test_where_and_push_down_give_the_rows_that_spark_would_leave(
    spark: SparkSession, directory: Path, text: str
) -> None:
    columns = (
        "recording_id",
        "position",
        "type",
        "template_id",
        "leadership_term_id",
        "cluster_session_id",
        "timestamp",
    )
    plain = read(spark, directory, columns=",".join(columns))

    expected = keys(plain.where(text))

    assert 0 < len(expected) < 2182
    assert keys(read(spark, directory, where=text)) == expected
    assert keys(read(spark, directory, pushdown="true").where(text)) == expected


def test_pushed_filters_are_gone_from_the_plan(
    spark: SparkSession, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read(spark, directory, pushdown="true").where("template_id = 20 AND length(payload) > 3").explain()

    (said,) = re.findall(r"Filter \((.*)\)", capsys.readouterr().out)
    assert "length(payload" in said
    assert "template_id" not in said


def test_without_sparks_setting_only_push_down_is_an_error(spark: SparkSession, directory: Path) -> None:
    spark.conf.set(PUSHDOWN, "false")
    try:
        assert read(spark, directory).where("type = 0").count() == 16
        with pytest.raises(PySparkException, match=PUSHDOWN):
            read(spark, directory, pushdown="true").where("type = 0").count()
    finally:
        spark.conf.set(PUSHDOWN, "true")
