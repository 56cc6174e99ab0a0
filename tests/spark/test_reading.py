"""What users of the data source see: names, columns, times, modes, problems, errors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tests.facts import has_facts
from tests.unit.archive.spark.written_logs import Entry, overwrite, write_log
from tests.unit.archive.streams import extract_sample, load_truth
from trimaran.archive.spark import problems, register
from trimaran.archive.spark.session import JVM_LOG

DAMAGED_POSITION = 500 * 1088


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("reading")
    for scenario in ("single-node", "checksummed", "three-node-failover", "torn-variants"):
        extract_sample(scenario, root)
    yield root
    shutil.rmtree(root)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A log of 3,000 messages, of which one in the first of four segments is damaged."""
    descriptor = write_log(tmp_path, [Entry(bytes(1000), timestamp=index) for index in range(3000)])
    overwrite(tmp_path, descriptor, DAMAGED_POSITION + 16, b"\1\2\3\4")
    return tmp_path


def read(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("aeron_archive").options(**options).load(str(path))


def log_text(spark: SparkSession) -> str:
    return Path(spark.conf.get(JVM_LOG) or "").read_text(errors="replace")


def log_frames(node: str) -> list[dict[str, Any]]:
    (log,) = [r for r in load_truth(node)["recordings"] if r["kind"] == "log"]
    frames: list[dict[str, Any]] = log["frames"]
    return frames


def test_without_a_recording_id_it_is_the_log(spark: SparkSession, samples: Path) -> None:
    log = read(spark, samples / "three-node-failover" / "node1")

    rows = log.agg(sf.count("*"), sf.count_distinct("recording_id"), sf.min("stream_id"), sf.max("stream_id")).first()

    assert tuple(rows or ()) == (len(log_frames("three-node-failover-node1")), 1, 100, 100)


def test_sql_finds_it_by_its_name(spark: SparkSession, samples: Path) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW log USING aeron_archive "
        f"OPTIONS (path '{samples / 'single-node' / 'node0'}', messages 'true', where 'template_id = 20')"
    )

    counted = spark.sql("SELECT count(*), max(template_id) FROM log").first()

    assert counted == (66, 20)


def test_it_can_be_registered_too(spark: SparkSession, samples: Path) -> None:
    register(spark)

    assert read(spark, samples / "torn-variants" / "plain-01-clean").count() > 0


def test_timestamps_are_utc_in_the_unit_that_the_log_names(spark: SparkSession, samples: Path) -> None:
    """The checksummed sample has nanoseconds, the other one milliseconds."""
    seen = {}
    for scenario in ("single-node", "checksummed"):
        messages = [
            m for r in load_truth(f"{scenario}-node0")["recordings"] if r["kind"] == "log" for m in r["messages"]
        ]
        times = [m["fields"]["timestamp"] for m in messages if "timestamp" in m.get("fields", {})]
        log = read(spark, samples / scenario / "node0", columns="timestamp")
        row = log.agg(sf.unix_micros(sf.min("timestamp")), sf.unix_micros(sf.max("timestamp"))).first()
        factor, divisor = {"single-node": (1000, 1), "checksummed": (1, 1000)}[scenario]
        assert tuple(row or ()) == tuple(time * factor // divisor for time in (min(times), max(times)))
        seen[scenario] = log.agg(sf.min("timestamp")).first()

    assert all(isinstance(row[0], datetime) and row[0].year == 2026 for row in seen.values() if row)


def test_columns_are_chosen_by_schema_or_option_in_any_order(spark: SparkSession, samples: Path) -> None:
    path = samples / "checksummed" / "node0"
    by_schema = spark.read.format("aeron_archive").schema("type int, position long").load(str(path))
    by_option = read(spark, path, columns="type,position")

    assert by_schema.dtypes == by_option.dtypes == [("type", "int"), ("position", "bigint")]
    assert by_schema.collect() == by_option.collect()
    assert by_schema.count() == len(log_frames("checksummed-node0"))


def test_what_is_committed_by_the_recording_log_or_up_to_a_position(spark: SparkSession, samples: Path) -> None:
    """Member 1's last term is open: only the last snapshot says how far its log is committed."""
    path = samples / "three-node-failover" / "node1"
    frames = log_frames("three-node-failover-node1")
    ends = [frame["position"] + (frame["frame_length"] + 31 & -32) for frame in frames]

    assert read(spark, path, committed="true").count() == sum(end <= 420_192 for end in ends)
    assert read(spark, path / "archive", committed="true").count() == sum(end <= 420_192 for end in ends)
    assert read(spark, path, committed="1000").count() == sum(end <= 1000 for end in ends)


def test_show_stops_no_task_but_the_first(spark: SparkSession, tmp_path: Path) -> None:
    """A worker that is stopped before its end says so in the log: one for each query at most."""
    write_log(tmp_path, [Entry(bytes(100))] * 30_000)
    before = log_text(spark).count("BrokenPipe")

    read(spark, tmp_path).show(20)
    rows = read(spark, tmp_path).take(5)

    assert [row.position for row in rows] == [0, 192, 384, 576, 768]
    assert log_text(spark).count("BrokenPipe") <= before + 2


def test_permissive_goes_on_behind_damage_and_says_so_in_the_log(spark: SparkSession, damaged: Path) -> None:
    before = log_text(spark).count("frames left out")

    rows = read(spark, damaged, splitBytes="256k").where("type = 1")

    assert rows.agg(sf.count("*"), sf.count_distinct("position")).first() == (2999, 2999)
    said = log_text(spark)
    assert said.count("frames left out") == before + 1
    assert has_facts(said, f"recording_id=0 position={DAMAGED_POSITION}:", "stream id")


def test_dropmalformed_does_so_without_a_word(spark: SparkSession, damaged: Path) -> None:
    before = log_text(spark).count("frames left out")

    assert read(spark, damaged, mode="dropmalformed").where("type = 1").count() == 2999
    assert log_text(spark).count("frames left out") == before


def test_failfast_says_where_and_why(spark: SparkSession, damaged: Path) -> None:
    with pytest.raises(PySparkException) as caught:
        read(spark, damaged, mode="FAILFAST").count()

    assert "stream_id=67305985 expected=100" in str(caught.value)
    assert f"recording_id=0 position={DAMAGED_POSITION}" in str(caught.value)


def test_failfast_reads_what_is_not_damaged(spark: SparkSession, damaged: Path) -> None:
    assert read(spark, damaged, mode="FAILFAST", where="position >= 1048576").count() > 1900


def test_problems_are_a_dataframe(spark: SparkSession, damaged: Path, samples: Path) -> None:
    found = problems(spark, str(damaged), splitBytes="256k")

    assert found.dtypes == [("recording_id", "bigint"), ("position", "bigint"), ("reason", "string")]
    (row,) = found.collect()
    assert (row.recording_id, row.position) == (0, DAMAGED_POSITION)
    assert "stream id" in row.reason
    assert problems(spark, str(samples / "single-node" / "node0"), recordingId="all").count() == 0


def test_a_damaged_entry_of_the_catalog_is_a_problem_without_a_place(
    spark: SparkSession, samples: Path, tmp_path: Path
) -> None:
    shutil.copytree(samples / "checksummed" / "node0" / "archive", tmp_path, dirs_exist_ok=True)
    with (tmp_path / "archive.catalog").open("r+b") as file:
        file.seek(32 + 8)
        file.write(b"\1\2\3\4")

    (row,) = problems(spark, str(tmp_path), recordingId="all").collect()

    assert "offset=32" in row.reason
    assert read(spark, tmp_path, recordingId="all").where("stream_id = 100").count() == 0
    with pytest.raises(PySparkException, match=r"catalog entry.*offset=32"):
        read(spark, tmp_path, recordingId="all", mode="FAILFAST").count()


def test_what_is_wrong_is_named(spark: SparkSession, samples: Path) -> None:
    path = samples / "single-node" / "node0"

    with pytest.raises(PySparkException, match=r"option='nosuch' .*path, recordingId"):
        read(spark, path, nosuch="1")
    with pytest.raises(PySparkException, match=r"known=\[0, 1, 2\]"):
        read(spark, path, recordingId="77").count()
    with pytest.raises(PySparkException, match=r"streams.*option='maxbytespertrigger'"):
        read(spark, path, maxBytesPerTrigger="1m").count()


def test_a_wrong_schema_and_a_wrong_path_are_named(spark: SparkSession, samples: Path, tmp_path: Path) -> None:
    reader = spark.read.format("aeron_archive").schema("position int")

    with pytest.raises(PySparkException, match=r"column position.*int.*bigint"):
        reader.load(str(samples / "single-node" / "node0")).count()
    with pytest.raises(PySparkException, match=r"archive\.catalog"):
        read(spark, tmp_path).count()
