"""Which segments a hybrid read takes from an export, and which exports it refuses. No Spark runs here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.archive.streams import extract_sample
from trimaran.archive.log.member_directory import locate_archive
from trimaran.archive.reading.export import ExportOptions, export_part, open_export, plan_parts
from trimaran.archive.reading.frame_batches import find_entries
from trimaran.archive.spark.hybrid import LogPlan, plan_log
from trimaran.archive.spark.source.options import parse_options
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.types import TimeUnit

SEGMENT = 65536


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("samples")
    for scenario in ("three-node-failover", "archive-only", "checksummed"):
        extract_sample(scenario, target)
    return target


@pytest.fixture
def archive(samples: Path) -> Path:
    return samples / "three-node-failover" / "node0" / "archive"


def export(directory: Path, target: Path, options: ExportOptions | None = None) -> Path:
    options = options or ExportOptions()
    descriptors = [entry.descriptor for entry in find_entries(directory, None) if entry.descriptor is not None]
    open_export(target, options, descriptors, overwrite=False)
    for descriptor in descriptors:
        for part in plan_parts(locate_archive(directory), descriptor, options.bound_position):
            export_part(locate_archive(directory), part, target, options)
    return target


def plan(directory: Path, parquet: Path, **options: object) -> LogPlan:
    return plan_log(parse_options({"path": str(directory), **{k: str(v) for k, v in options.items()}}), parquet)


def names(found: LogPlan) -> list[str]:
    return [Path(file).name for file in found.files]


def test_full_segments_come_from_the_export_and_the_last_one_does_not(archive: Path, tmp_path: Path) -> None:
    found = plan(archive, export(archive, tmp_path / "log"))

    assert names(found) == [f"0-{SEGMENT * index}.parquet" for index in range(6)]
    assert found.ranges == ((0, 0, 6 * SEGMENT),)
    assert not found.is_all


def test_only_segments_that_are_asked_for_whole_are_taken(archive: Path, tmp_path: Path) -> None:
    parquet = export(archive, tmp_path / "log")

    between = plan(archive, parquet, startPosition=SEGMENT - 32, stopPosition=4 * SEGMENT + 32)
    committed = plan(archive, parquet, committed=3 * SEGMENT)

    assert between.ranges == ((0, SEGMENT, 4 * SEGMENT),)
    assert committed.ranges == ((0, 0, 3 * SEGMENT),)
    assert committed.is_all


def test_a_segment_that_changed_after_its_file_was_written_is_read_raw(archive: Path, tmp_path: Path) -> None:
    copy = tmp_path / "archive"
    shutil.copytree(archive, copy)
    parquet = export(copy, tmp_path / "log")
    later = (parquet / f"0-{2 * SEGMENT}.parquet").stat().st_mtime_ns + 1
    os.utime(copy / f"0-{2 * SEGMENT}.rec", ns=(later, later))

    found = plan(copy, parquet)

    assert found.ranges == ((0, 0, 2 * SEGMENT), (0, 3 * SEGMENT, 6 * SEGMENT))


def test_a_file_that_is_missing_is_read_raw(archive: Path, tmp_path: Path) -> None:
    parquet = export(archive, tmp_path / "log")
    (parquet / "0-0.parquet").unlink()

    found = plan(archive, parquet)

    assert found.ranges == ((0, SEGMENT, 6 * SEGMENT),)


def test_damaged_segments_are_read_raw(archive: Path, tmp_path: Path) -> None:
    copy = tmp_path / "archive"
    shutil.copytree(archive, copy)
    with (copy / f"0-{SEGMENT}.rec").open("r+b") as file:
        file.write(b"\xff" * 64)

    found = plan(copy, export(copy, tmp_path / "log"))

    assert found.ranges == ((0, 0, SEGMENT), (0, 2 * SEGMENT, 6 * SEGMENT))


def test_all_recordings_of_an_archive_are_planned(samples: Path, tmp_path: Path) -> None:
    directory = samples / "archive-only" / "node0" / "archive"
    parquet = export(directory, tmp_path / "log")

    found = plan(directory, parquet, recordingId="all")

    # 7 is exactly one full segment; of 4 the front was purged.
    assert {recording_id for recording_id, _, _ in found.ranges} >= {4, 7}
    assert len(found.files) == len(set(found.files)) > 5
    assert not found.is_all


def test_other_exports_are_refused_with_one_clear_line(archive: Path, samples: Path, tmp_path: Path) -> None:
    other = export(samples / "checksummed" / "node0" / "archive", tmp_path / "other")
    messages = export(archive, tmp_path / "messages", ExportOptions(messages=True))
    few = export(archive, tmp_path / "few", ExportOptions(columns=("position", "timestamp")))
    (tmp_path / "none").mkdir()
    refused = {
        "another archive: recording_id=0": (other, {}),
        "messages=True expected False": (messages, {}),
        "messages=False expected True": (few, {"messages": "true"}),
        "no column recording_id": (few, {}),
        "no column type": (few, {"columns": "position", "padding": "false"}),
        "time_unit=MILLIS expected MICROS": (few, {"columns": "timestamp", "timeUnit": "us"}),
        "no export: parquet=": (tmp_path / "none", {}),
    }

    for text, (parquet, options) in refused.items():
        with pytest.raises(ConfigurationError, match=text):
            plan(archive, parquet, **options)


def test_parquet_in_nanoseconds_has_microseconds_which_spark_reads(samples: Path, tmp_path: Path) -> None:
    directory = samples / "checksummed" / "node0" / "archive"

    parquet = export(directory, tmp_path / "log", ExportOptions(time_unit=TimeUnit.NANOS))

    for file in plan(directory, parquet).files:
        assert pq.read_schema(file).field("timestamp").type == pa.timestamp("us", tz="UTC")


def test_file_in_nanoseconds_of_another_writer_is_refused(samples: Path, tmp_path: Path) -> None:
    directory = samples / "checksummed" / "node0" / "archive"
    parquet = export(directory, tmp_path / "log", ExportOptions(time_unit=TimeUnit.NANOS))
    pq.write_table(pa.table({"timestamp": pa.array([1], pa.timestamp("ns", tz="UTC"))}), parquet / "0-0.parquet")

    with pytest.raises(ConfigurationError, match=r"nanoseconds.*--overwrite"):
        plan(directory, parquet)


def test_export_writes_a_segment_again_that_changed(archive: Path, tmp_path: Path) -> None:
    copy = tmp_path / "archive"
    shutil.copytree(archive, copy)
    parquet = export(copy, tmp_path / "log")
    before = {path.name: path.stat().st_ino for path in parquet.glob("*[0-9].parquet")}
    later = (copy / "0-0.rec").stat().st_mtime_ns + 1
    os.utime(copy / "0-0.rec", ns=(later, later))

    export(copy, parquet)

    after = {path.name: path.stat().st_ino for path in parquet.glob("*[0-9].parquet")}
    assert {name for name in before if before[name] != after[name]} == {"0-0.parquet"}
