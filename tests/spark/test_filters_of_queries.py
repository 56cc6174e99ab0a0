"""Filters: of queries on one DataFrame, and of the option `where`."""

from __future__ import annotations

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
    "template_id = 20 OR position < 3000",
    "NOT (type = 0 OR template_id = 1)",
    "NOT (cluster_session_id = 1 AND position > 100000) AND recording_id = 0",
    "(position BETWEEN 0 AND 5000 OR position BETWEEN 200000 AND 210000) AND NOT template_id <=> 1",
    "leadership_term_id = 0 AND timestamp < '2026-11-21 04:01:25' OR template_id IS NULL AND NOT type = 0",
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("filters")
    yield extract_sample("single-node", root) / "node0"
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def plain(spark: SparkSession, directory: Path) -> Iterator[DataFrame]:
    """What `where` is about, read once."""
    columns = "recording_id,position,type,template_id,leadership_term_id,cluster_session_id,timestamp"
    frame = read(spark, directory, columns=columns).persist()
    yield frame
    frame.unpersist()


def read(spark: SparkSession, directory: Path, **options: str) -> DataFrame:
    return spark.read.format("aeron_archive").options(recordingId="all", **options).load(str(directory))


def keys(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted(tuple(row) for row in frame.select("recording_id", "position").collect())


@pytest.mark.parametrize("setting", ["true", "false"])
def test_one_dataframe_answers_many_questions_again_cached_joined_and_in_unions(
    spark: SparkSession, directory: Path, setting: str
) -> None:
    """Spark 4.3 reads for all scans of a DataFrame what the last one with pushed filters read: there are none."""
    default = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, setting)
    try:
        frames = read(spark, directory)
        padding, data = frames.where("type = 0"), frames.where("type = 1")
        sent = data.where("template_id = 1")
        place = ["recording_id", "position"]
        sent_count = sum(row.template_id == 1 for row in frames.select("template_id").collect())

        assert [frame.count() for frame in (frames, padding, frames, data)] == [2182, 16, 2182, 2166]
        assert padding.union(data).count() == 2182
        assert data.union(sent).union(padding).count() == 2182 + sent_count
        assert frames.join(padding, place).count() == 16
        assert data.join(padding, place).count() == 0
        assert frames.join(padding, place, "left_anti").count() == 2166
        assert sent.alias("one").join(sent.alias("two"), place).count() == sent_count
        cached = sent.persist()
        assert [cached.count(), data.count(), frames.count(), cached.count()] == [sent_count, 2166, 2182, sent_count]
        assert (
            cached.where("position < 100000").count() == frames.where("template_id = 1 AND position < 100000").count()
        )
        cached.unpersist()
    finally:
        spark.conf.set(PUSHDOWN, default or "false")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"where": "position < 5 XOR type = 1"},
            "option where: 'XOR' in 'position < 5 XOR type = 1' expected AND, OR or",
        ),
        ({"where": "size > 5"}, "option where: 'size' in 'size > 5' expected a column out of"),
        ({"nosuch": "1"}, "no such option: option='nosuch' expected some of path"),
    ],
)
def test_a_mistake_is_said_in_one_line_without_a_traceback(
    spark: SparkSession, directory: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        read(spark, directory, **options).count()

    text = str(caught.value).partition("SQLSTATE")[0].strip()
    assert said in text
    assert len(text.splitlines()) == 1


def test_a_directory_that_is_not_there_is_said_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException) as caught:
        read(spark, tmp_path).count()

    assert "no archive.catalog in" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_dataframes_with_where_are_used_again_and_together(spark: SparkSession, directory: Path) -> None:
    padding, data = read(spark, directory, where="type = 0"), read(spark, directory, where="type = 1")
    place = ["recording_id", "position"]

    counts = [frame.count() for frame in (padding, data, padding, padding.union(data), data.where("type = 0"))]

    assert counts == [16, 2166, 16, 2182, 0]
    assert data.join(padding, place).count() == 0
    assert padding.persist().join(read(spark, directory), place).count() == 16


@pytest.mark.parametrize("text", FILTERS)
def test_where_gives_the_rows_that_spark_would_leave(
    spark: SparkSession, directory: Path, plain: DataFrame, text: str
) -> None:
    expected = keys(plain.where(text))

    assert 0 < len(expected) < 2182
    assert keys(read(spark, directory, where=text)) == expected
