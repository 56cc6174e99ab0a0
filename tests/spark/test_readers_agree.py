"""One reader under everything: the same rows from `frames`, Spark, an export, both together, and DuckDB."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest
from pyarrow import dataset
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.unit.archive.log_kinds import OF_AERON, OURS, KindOfLog
from trimaran import archive
from trimaran.archive import ReadProblem
from trimaran.archive.spark import problems, read_log
from trimaran.cluster.cli.archive import app

IN_THE_SUITE: Final = ("three-crc32c-node0", "application-crc32c-node0", "torn-node0")
"""Of Aeron's; the others are for the campaign."""
COLUMNS: Final = (
    *("recording_id", "position", "frame_length", "flags", "type", "term_id", "session_id", "reserved_value"),
    *("template_id", "cluster_session_id", "timestamp", "payload"),
)
KINDS: Final = {**OURS, **OF_AERON}

Rows = list[tuple[Any, ...]]


def run(command: str, place: str, *arguments: object) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, [command, place, *map(str, arguments), "-o", "jsonl"])
    assert result.exit_code in (0, 10), result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def rows_of(table: Any) -> Rows:
    """The rows of a table in order; times in microseconds, as Parquet and Spark have them, as numbers."""
    names = sorted(table.column_names)
    if "timestamp" in names:
        index = table.column_names.index("timestamp")
        times = table.column("timestamp").cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64())
        table = table.set_column(index, "timestamp", times)
    rows = sorted(table.to_pylist(), key=lambda row: (row.get("group"), row["recording_id"], row["position"]))
    return [tuple(row[name] for name in names) for row in rows]


def frames_of(place: str, names: tuple[str, ...], found: Callable[[ReadProblem], None]) -> Rows:
    return rows_of(archive.frames(place, columns=names, on_problem=found).read_all())


def spark_rows(spark: SparkSession, place: str, names: tuple[str, ...], **options: Any) -> Rows:
    return rows_of(read_log(spark, place, columns=",".join(names), recordingId="all", **options).toArrow())


@pytest.mark.parametrize(
    "kind",
    [
        name if name in OURS or name in IN_THE_SUITE else pytest.param(name, marks=pytest.mark.campaign)
        for name in KINDS
        if name != "damaged"
    ],
)
def test_every_reader_has_the_same_rows(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    log = KINDS[kind](tmp_path)
    names = (*COLUMNS, "group") if kind == "groups" else COLUMNS

    counts = [check_all(spark, log, names, tmp_path / "out")]
    if log.grow is not None:
        log.grow()
        counts.append(check_all(spark, log, names, tmp_path / "out"))

    assert counts[0] > 100
    assert counts == sorted(set(counts))


def check_all(spark: SparkSession, log: KindOfLog, names: tuple[str, ...], target: Path) -> int:
    found: list[ReadProblem] = []
    expected = frames_of(log.place, names, found.append)

    def of(name: str) -> list[Any]:
        index = sorted(names).index(name)
        return [row[index] for row in expected]

    exported = run("export", log.place, "--to", target)
    files = dataset.dataset(target, partitioning="hive", exclude_invalid_files=False).to_table(columns=[*names])
    database = duckdb.connect()
    database.register("log", archive.frames(log.place, columns=["position", "payload"]))
    sums = database.sql("SELECT count(*), sum(position), sum(octet_length(payload)) FROM log").fetchall()

    assert spark_rows(spark, log.place, names) == expected
    assert rows_of(files) == expected
    assert sums == [(len(expected), sum(of("position")), sum(map(len, of("payload"))))]
    assert spark_rows(spark, log.place, names, parquet=target) == expected
    assert (found, [row for row in exported if row["remarks"]]) == ([], [])
    found_on_spark = [row.reason for row in problems(spark, log.place, recordingId="all").collect()]
    assert all(reason.startswith("ends in a torn write: ") for reason in found_on_spark)
    if "group" not in names:
        assert sum(row["frame_count"] for row in run("verify", log.place) if row["state"] == "VALID") == len(expected)
    return len(expected)


def test_every_reader_tells_of_the_same_damage(spark: SparkSession, tmp_path: Path) -> None:
    """Planted: a byte of a frame is wrong. Spark goes on in the segment, an export with the next one."""
    place = OURS["damaged"](tmp_path).place
    found: list[ReadProblem] = []

    before = frames_of(place, COLUMNS, found.append)
    exported = run("export", place, "--to", tmp_path / "out")
    files = rows_of(dataset.dataset(tmp_path / "out").to_table(columns=[*COLUMNS]))
    on_spark = spark_rows(spark, place, COLUMNS)

    (position,) = [each.position for each in found]
    assert {*before} < {*files} < {*on_spark}
    assert [row["remarks"].partition(":")[0] for row in exported if row["remarks"]] == [f"position={position}"]
    assert [row.position for row in problems(spark, place, recordingId="all").collect()] == [position]
    assert spark_rows(spark, place, COLUMNS, parquet=tmp_path / "out") == on_spark
    assert [row["verdict"] for row in run("verify", place)].count("wrong") == 1
