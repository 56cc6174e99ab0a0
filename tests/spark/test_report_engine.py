"""The report's engine gives what Spark gives: each analysis runs on both, over recordings of Aeron and of ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.interchange.samples import link_directory
from tests.spark.engines import rows_where, with_changed
from tests.spark.log_truth import rows
from tests.spark.recorded_cluster import RecordedCluster
from tests.unit.archive.streams import extract_sample
from trimaran.archive.report.engine.frames import SqlDatabase
from trimaran.archive.report.engine.log_tables import list_problems, read_node_logs, scan_log
from trimaran.archive.spark import analyses, problems
from trimaran.archive.spark.analyses.sql import sql

Analysis = Callable[[DataFrame], DataFrame]


def by_position(log: DataFrame) -> DataFrame:
    return sql("SELECT * FROM log ORDER BY position", log=log)


def of_group(log: DataFrame) -> DataFrame:
    return sql("SELECT *, 1 AS `group` FROM log", log=log)


OF_A_PAGE: Mapping[str, Analysis] = {
    "summary": analyses.summary,
    "term_timeline": analyses.term_timeline,
    "elections": analyses.elections,
    "session_traffic of a second": analyses.session_traffic,
    "session_traffic of all": lambda log: analyses.session_traffic(log, interval=None),
    "session_lives": analyses.session_lives,
    "timers": analyses.timers,
    "bursts": lambda log: analyses.bursts(log, window="200 milliseconds"),
    "gaps": lambda log: analyses.gaps(log, longer_than_us=10_000),
    "payload_sizes": analyses.payload_sizes,
    "payload_histogram": analyses.payload_histogram,
}
WHOLE_MESSAGES: Mapping[str, Analysis] = {
    "whole_messages": lambda log: by_position(analyses.whole_messages(log, padding=True)),
}
OF_CAMPAIGN: Mapping[str, Analysis] = {
    "leaders": analyses.leaders,
    "session_traffic of 50 milliseconds": lambda log: analyses.session_traffic(log, interval="50 milliseconds"),
    "payload_histogram of equal bins": lambda log: analyses.payload_histogram(log, bin_bytes=100),
    "integrity": analyses.integrity,
    "group_traffic": lambda log: analyses.group_traffic(of_group(log), interval="50 milliseconds"),
}
"""Analyses that no page shows, or with options that no page uses. The suite tests them on the report's engine."""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqlDatabase]:
    database = SqlDatabase(tmp_path)
    yield database
    database.close()


def plain(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as Python's own values, which both engines can have: arrays are lists, a missing value is None."""
    columns = {name: [plain_value(value) for value in frame[name]] for name in frame.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def plain_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: plain_value(one) for name, one in value.items()}
    if hasattr(value, "asDict"):
        return plain_value(value.asDict())
    if isinstance(value, list | np.ndarray):
        return [plain_value(one) for one in value]
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if value is None or value is pd.NaT:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, datetime):
        return pd.Timestamp(value).as_unit("us").isoformat()
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.12g}")
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def assert_same(on_spark: DataFrame, on_ours: DataFrame) -> list[dict[str, Any]]:
    """Two analyses have the same columns and rows, in the same order; gives them."""
    expected, found = on_spark.toPandas(), on_ours.toPandas()
    assert list(found.columns) == list(expected.columns)
    assert plain(found) == plain(expected)
    return plain(found)


@pytest.mark.parametrize(
    ("sample", "compared"),
    [
        ("checksummed", {**OF_A_PAGE, **WHOLE_MESSAGES}),
        pytest.param("checksummed", OF_CAMPAIGN, marks=pytest.mark.campaign),
        pytest.param("three-node-failover", {**OF_A_PAGE, **WHOLE_MESSAGES, **OF_CAMPAIGN}, marks=pytest.mark.campaign),
    ],
    ids=["checksummed", "checksummed-besides", "three-node-failover"],
)
def test_an_analysis_gives_the_same_on_both_engines(
    sample: str, compared: Mapping[str, Analysis], spark: SparkSession, database: SqlDatabase, tmp_path: Path
) -> None:
    directory = str(extract_sample(sample, tmp_path) / "node0")
    on_spark = spark.read.format("aeron_archive").load(directory).persist()
    on_ours = scan_log(database, directory, {}).persist()

    empty = []
    for name, analyse in compared.items():
        if not assert_same(analyse(on_spark), analyse(on_ours)):
            empty.append(name)

    on_spark.unpersist()
    assert set(empty) <= {"integrity"}


def test_an_option_of_a_read_holds_for_both(spark: SparkSession, database: SqlDatabase, tmp_path: Path) -> None:
    directory = str(extract_sample("three-node-failover", tmp_path) / "node0")
    for options in (
        {"messages": "true", "padding": "false"},
        {"committed": "true"},
        {"recordingId": "1"},
        {"where": "template_id IN (21, 22, 24)", "columns": "recording_id,position,template_id,timestamp,payload"},
    ):
        on_spark = spark.read.format("aeron_archive").options(**options).load(directory)
        on_ours = scan_log(database, directory, options)

        assert assert_same(by_position(on_spark), by_position(on_ours))


def test_messages_without_a_time_are_in_no_interval_on_both(
    spark: SparkSession, database: SqlDatabase, tmp_path: Path
) -> None:
    """All recordings of an archive: those of snapshots hold session messages of services without a timestamp."""
    directory = str(extract_sample("single-node", tmp_path) / "node0")
    options = {"recordingId": "all"}
    on_spark = spark.read.format("aeron_archive").options(**options).load(directory)
    found = analyses.session_traffic(scan_log(database, directory, options))

    rows_of_both = assert_same(analyses.session_traffic(on_spark), found)
    assert all(row["from_timestamp"] is not None for row in rows_of_both)


def test_members_are_compared_the_same_on_both(spark: SparkSession, database: SqlDatabase, tmp_path: Path) -> None:
    """One member has another byte in a message, which its checksums say is damage of a disk, and one ends sooner."""
    failover = extract_sample("three-node-failover", tmp_path)
    changed = link_directory(failover / "node2", failover / "changed", copied="0-327680.rec")
    segment = changed / "archive" / "0-327680.rec"
    content = bytearray(segment.read_bytes())
    content[5_000] ^= 1
    segment.write_bytes(content)
    paths = {"node0": failover / "node0", "node1": failover / "node1", "it's changed": changed}
    on_spark = {name: spark.read.format("aeron_archive").load(str(path)) for name, path in paths.items()}
    on_ours = {name: scan_log(database, str(path), {}) for name, path in paths.items()}
    for logs in (on_ours, on_spark):
        logs["node1"] = rows_where(logs["node1"], "position < 400000")

    found = assert_same(analyses.compare_members(on_spark), analyses.compare_members(on_ours))
    frames = analyses.differing_frames(on_ours["node0"], on_ours["it's changed"])

    assert {row["verdict"] for row in found} == {"a is longer", "different"}
    assert {row["member_b"] for row in found} == {"node1", "it's changed"}
    assert len(assert_same(analyses.differing_frames(on_spark["node0"], on_spark["it's changed"]), frames)) == 1


def test_members_with_crc32c_and_without_are_compared_the_same_on_both(
    spark: SparkSession, database: SqlDatabase, tmp_path: Path
) -> None:
    directory = str(extract_sample("three-crc32c", tmp_path) / "node0")
    on_spark = spark.read.format("aeron_archive").load(directory)
    on_ours = scan_log(database, directory, {})
    of_spark, of_ours = (
        analyses.compare_members({"a": log, "b": with_changed(log, session_id="7"), "c": log})
        for log in (on_spark, on_ours)
    )

    found = assert_same(of_spark, of_ours)
    assert [row["verdict"] for row in found] == ["equal"] * 3


def test_what_members_logged_says_the_same_on_both(
    spark: SparkSession, database: SqlDatabase, recorded_cluster: RecordedCluster
) -> None:
    on_spark = analyses.read_node_logs(spark, recorded_cluster.node_logs)
    on_ours = read_node_logs(database, recorded_cluster.node_logs)
    directory = str(recorded_cluster.directory_of(recorded_cluster.second.leader_member_id))
    log_on_spark = spark.read.format("aeron_archive").load(directory)

    names = ", ".join(name for name in on_spark.columns if name != "line_number")
    lines = f"SELECT {names} FROM logs ORDER BY line"
    assert_same(sql(lines, logs=on_spark), sql(lines, logs=on_ours))
    for analyse in (analyses.election_states, analyses.member_elections, analyses.refusals):
        assert_same(analyse(on_spark), analyse(on_ours))
    changes = analyses.elections(scan_log(database, directory, {}), on_ours)
    assert assert_same(analyses.elections(log_on_spark, on_spark), changes)


def test_problems_are_the_same_on_both(spark: SparkSession, tmp_path: Path) -> None:
    node = extract_sample("checksummed", tmp_path) / "node0"
    segment = node / "archive" / "0-131072.rec"
    content = bytearray(segment.read_bytes())
    content[9_000] ^= 1
    segment.write_bytes(content)

    found = [(found.recording_id, found.position, found.reason) for found in list_problems(str(node), {})]

    expected = [(row["recording_id"], row["position"], row["reason"]) for row in rows(problems(spark, str(node)))]
    assert len(found) == 1
    assert found == expected
