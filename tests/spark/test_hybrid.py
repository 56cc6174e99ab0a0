"""`read_log`: Parquet of full segments and raw frames for the rest are, together, the raw log."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.unit.archive.spark.test_hybrid_plan import SEGMENT, export
from tests.unit.archive.streams import extract_sample
from trimaran.archive.reading.export import ExportOptions
from trimaran.archive.spark import read_log
from trimaran.service_api.types import TimeUnit


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("samples")
    for scenario in ("three-node-failover", "archive-only", "checksummed"):
        extract_sample(scenario, target)
    return target


def raw(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return read_log(spark, path, **options)


def rows(df: DataFrame) -> list[Any]:
    return sorted(df.collect(), key=lambda row: (row.recording_id, row.position))


def files_of(df: DataFrame) -> set[str]:
    return {Path(file).name for file in df.inputFiles()}


def test_it_is_equal_to_the_raw_log(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    member = samples / "three-node-failover" / "node0"
    parquet = export(member / "archive", tmp_path / "log")

    found = read_log(spark, member, parquet=parquet)

    assert files_of(found) == {f"0-{SEGMENT * index}.parquet" for index in range(6)}
    assert found.dtypes == raw(spark, member).dtypes
    assert rows(found) == rows(raw(spark, member))


def test_messages_of_a_log_in_nanoseconds_are_equal_too(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    member = samples / "checksummed" / "node0"
    parquet = export(member / "archive", tmp_path / "log", ExportOptions(messages=True, time_unit=TimeUnit.NANOS))

    found = read_log(spark, member, parquet=parquet, messages=True)

    assert len(files_of(found)) == 4
    assert rows(found) == rows(raw(spark, member, messages=True))
    assert found.schema["timestamp"].dataType.typeName() == "timestamp"


def test_all_recordings_and_some_columns_without_padding_are_equal(
    spark: SparkSession, samples: Path, tmp_path: Path
) -> None:
    directory = samples / "archive-only" / "node0" / "archive"
    parquet = export(directory, tmp_path / "log")
    options = {"recordingId": "all", "padding": False, "columns": "position,recording_id,frame_length"}

    found = read_log(spark, directory, parquet=parquet, **options)

    assert found.columns == ["position", "recording_id", "frame_length"]
    assert rows(found) == rows(raw(spark, directory, **options))


def test_the_option_where_holds_for_both_kinds_of_rows(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    member = samples / "three-node-failover" / "node0"
    parquet = export(member / "archive", tmp_path / "log")
    options = {"where": "timestamp >= '2026-11-21 04:08:40' AND template_id <> 1", "columns": "position,recording_id"}

    found = read_log(spark, member, parquet=parquet, **options)

    assert rows(found) == rows(raw(spark, member, **options))
    assert 0 < found.count() < 1033
    assert files_of(found)


def test_segments_in_the_middle_that_changed_are_read_raw(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    directory = tmp_path / "archive"
    shutil.copytree(samples / "three-node-failover" / "node0" / "archive", directory)
    parquet = export(directory, tmp_path / "log")
    for index in (0, 2, 3):
        (directory / f"0-{SEGMENT * index}.rec").touch()

    found = read_log(spark, directory, parquet=parquet)

    assert files_of(found) == {f"0-{SEGMENT * index}.parquet" for index in (1, 4, 5)}
    assert rows(found) == rows(raw(spark, directory))


def test_what_the_export_holds_whole_needs_no_archive(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    directory = tmp_path / "archive"
    shutil.copytree(samples / "three-node-failover" / "node0" / "archive", directory)
    parquet = export(directory, tmp_path / "log")
    expected = rows(raw(spark, directory, stopPosition=2 * SEGMENT))

    found = read_log(spark, directory, parquet=parquet, stopPosition=2 * SEGMENT)
    (directory / "0-0.rec").write_bytes(bytes(SEGMENT))

    assert rows(found) == expected
    assert found.count() == len(expected)
