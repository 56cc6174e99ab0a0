"""`log_messages` through Spark: the rows of the truth, names and types that a Spark user expects, and bad messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.interchange.samples import sample_of
from tests.unit.archive.spark.expected import wire_fields
from tests.unit.archive.streams import extract_sample
from tests.unit.service_api.wire.test_golden_messages import MESSAGES_ENTRIES
from trimaran import archive
from trimaran.archive.format.messages import RecordingSignalEvent
from trimaran.archive.spark import log_messages, message_schema
from trimaran.archive.spark.source.timestamps import TIME_UNITS
from trimaran.cluster.messages import (
    ClusterMembersExtendedResponse,
    ClusterSessionSnapshot,
    MarkFileHeader,
    NewLeadershipTermEvent,
    RemoveMember,
    SessionCloseEvent,
    SessionOpenEvent,
)
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.wire.message import Message


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("samples")
    for scenario in ("single-node", "checksummed"):
        extract_sample(scenario, target)
    return target


def log_of(spark: SparkSession, directory: Path, recording_id: int, unit: str = "ms") -> DataFrame:
    """Complete messages with all columns of a log."""
    frames = archive.frames(directory, recording_id=recording_id, reassemble=True, time_unit=TIME_UNITS[unit])
    return spark.createDataFrame(frames.read_all())


def payloads(spark: SparkSession, payloads: list[bytes]) -> DataFrame:
    """A log made of payloads alone."""
    table = pa.table(
        {
            "recording_id": pa.array([7] * len(payloads), pa.int64()),
            "position": pa.array(range(0, 64 * len(payloads), 64), pa.int64()),
            "payload": pa.array(payloads, pa.binary()),
        }
    )
    return spark.createDataFrame(table)


def golden(message: type[Message]) -> list[bytes]:
    return [
        bytes.fromhex(e["hex"])
        for e in MESSAGES_ENTRIES
        if (e["schema_id"], e["template_id"]) == (message.SCHEMA_ID, message.TEMPLATE_ID)
    ]


def as_numbers(df: DataFrame) -> list[dict[str, Any]]:
    times = [f.name for f in df.schema.fields if f.dataType.typeName() == "timestamp"]
    rows = df.withColumns({name: F.unix_millis(name) for name in times}).collect()
    return [row.asDict(recursive=True) for row in rows]


@pytest.mark.parametrize(("name", "unit", "ticks"), [("single-node", "ms", 1), ("checksummed", "ns", 1_000_000)])
def test_messages_of_a_log_are_those_of_the_truth(
    spark: SparkSession, root: Path, name: str, unit: str, ticks: int
) -> None:
    sample = sample_of(root, f"{name}-node0")
    truth = [m for m in sample.truth["recordings"][0]["messages"] if m["name"] == "SessionOpenEvent"]

    rows = as_numbers(log_messages(log_of(spark, sample.directory, 0, unit), SessionOpenEvent))
    told = as_numbers(log_messages(log_of(spark, sample.directory, 0, unit), SessionOpenEvent, time_unit=unit))

    expected = {m["position"]: m["fields"] | {"timestamp": m["fields"]["timestamp"] // ticks} for m in truth}
    assert {row["position"]: wire_fields(SessionOpenEvent, row) for row in rows} == expected
    assert {row["recording_id"] for row in rows} == {0}
    assert told == rows


def test_messages_of_a_snapshot_are_read_too(spark: SparkSession, root: Path) -> None:
    sample = sample_of(root, "single-node-node0")
    (snapshot,) = [r for r in sample.truth["recordings"] if r["kind"] == "snapshot:consensus-module"]
    truth = {m["position"]: m["fields"] for m in snapshot["messages"] if m["name"] == "ClusterSession"}

    rows = as_numbers(log_messages(log_of(spark, sample.directory, snapshot["recording_id"]), ClusterSessionSnapshot))

    assert {row["position"]: wire_fields(ClusterSessionSnapshot, row) for row in rows} == truth
    assert len(rows) == 2


def test_columns_have_the_models_order_types_for_sql_and_comments(spark: SparkSession) -> None:
    schema = message_schema(NewLeadershipTermEvent)

    assert schema.simpleString() == (
        "struct<recording_id:bigint,position:bigint,leadership_term_id:bigint,log_position:bigint,timestamp:timestamp,"
        "term_base_log_position:bigint,leader_member_id:int,log_session_id:int,time_unit:string,app_version:int>"
    )
    assert schema["time_unit"].metadata["comment"] == (
        "NewLeadershipTermEvent.timeUnit: One of MILLIS, MICROS, NANOS. "
        "NULL in messages older than version 4 of the schema."
    )
    assert message_schema(RemoveMember)["is_passive"].dataType.simpleString() == "boolean"
    found = log_messages(payloads(spark, golden(NewLeadershipTermEvent)), NewLeadershipTermEvent)
    assert found.schema == schema


def test_groups_are_arrays_of_structs(spark: SparkSession) -> None:
    log = payloads(spark, golden(ClusterMembersExtendedResponse))

    rows = log_messages(log, ClusterMembersExtendedResponse).selectExpr("position", "active_members").collect()

    expected = [
        ClusterMembersExtendedResponse.decode(data).active_members for data in golden(ClusterMembersExtendedResponse)
    ]
    assert [len(row.active_members) for row in rows] == [len(members) for members in expected]
    assert [[m.ingress_endpoint for m in row.active_members] for row in rows] == [
        [member.ingress_endpoint for member in members] for members in expected
    ]


def test_field_called_as_a_column_of_the_log_has_another_name(spark: SparkSession) -> None:
    log = payloads(spark, golden(RecordingSignalEvent)[:1])

    (row,) = log_messages(log, RecordingSignalEvent).collect()

    signal = RecordingSignalEvent.decode(golden(RecordingSignalEvent)[0])
    assert (row.recording_id, row.position) == (7, 0)
    assert (row.message_recording_id, row.message_position) == (signal.recording_id, signal.position)
    assert row.signal == signal.signal.name if signal.signal is not None else row.signal is None


def test_class_that_never_occurs_gives_an_empty_frame(spark: SparkSession, root: Path) -> None:
    log = log_of(spark, sample_of(root, "single-node-node0").directory, 0)

    assert log_messages(log, RemoveMember).collect() == []


def test_message_that_cannot_be_read_ends_the_query_with_its_position(spark: SparkSession) -> None:
    whole = golden(SessionCloseEvent)[0]
    log = payloads(spark, [whole, whole[:30]])

    with pytest.raises(PySparkException) as failed:
        log_messages(log, SessionCloseEvent).collect()

    assert "recording_id=7 position=64 SessionCloseEvent block: length=28 available=22" in str(failed.value)


def test_message_that_cannot_be_read_is_left_out_or_null_when_asked(spark: SparkSession) -> None:
    whole = golden(SessionCloseEvent)[0]
    log = payloads(spark, [whole, whole[:30], whole])

    dropped = log_messages(log, SessionCloseEvent, mode="DROPMALFORMED").collect()
    kept = log_messages(log, SessionCloseEvent, mode="PERMISSIVE").collect()

    assert [row.position for row in dropped] == [0, 128]
    assert [(row.position, row.cluster_session_id is None) for row in kept] == [(0, False), (64, True), (128, False)]
    reason = "SessionCloseEvent block: length=28 available=22"
    assert [row.problem for row in kept] == [None, reason, None]


def test_what_cannot_be_meant_is_one_clear_line(spark: SparkSession) -> None:
    log = payloads(spark, [])
    calls: dict[str, tuple[DataFrame, Any, dict[str, str]]] = {
        "MarkFileHeader .*110.*cluster-mark.dat": (log, MarkFileHeader, {}),
        "mode='LAX' .*PERMISSIVE, DROPMALFORMED, FAILFAST": (log, SessionOpenEvent, {"mode": "LAX"}),
        "time_unit='s' .*ms, us, ns": (log, SessionOpenEvent, {"time_unit": "s"}),
        "missing=payload found=recording_id,position": (log.drop("payload"), SessionOpenEvent, {}),
        "message class: 'SessionOpenEvent'": (log, "SessionOpenEvent", {}),
    }

    for text, (df, message, options) in calls.items():
        with pytest.raises(ConfigurationError, match=text):
            log_messages(df, message, **options)
