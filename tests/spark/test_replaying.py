"""Replays on executors give what one replay gives: states, outputs, differences, verdicts; each stretch in its task."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from examples.replays_on_spark import (
    replay_outputs,
    scheduled_timers,
    snapshot_verdicts,
    states_at,
    what_if_frame,
)
from tests.s3_server import BUCKET, S3Server
from tests.unit.cluster.time_travel.ledger import FeeLedger, Ledger
from tests.unit.cluster.time_travel.recorded import Recorded, record
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.spark import register
from trimaran.archive.spark.analyses import timers
from trimaran.cluster.operating.backup.shipping import ship_backup
from trimaran.cluster.runtime.files.cluster_id_file import ClusterIdFile
from trimaran.cluster.time_travel import MemberLog, Output, OutputKind, replay_service, what_if
from trimaran.service_api import ClusteredService, ConfigurationError
from trimaran.service_api.cluster_id import NULL_CLUSTER_ID, ClusterId

LEDGER = "tests.unit.cluster.time_travel.ledger:Ledger"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return asyncio.run(record(tmp_path_factory.mktemp("recorded") / "node-0"))


@pytest.fixture(scope="module")
def outputs(recorded: Recorded) -> list[Output]:
    """What one replay gives."""
    found: list[Output] = []
    replay_service(recorded.directory, Ledger, snapshot="none", sink=found.append)
    return found


@pytest.fixture(scope="module")
def frame(spark: SparkSession, recorded: Recorded) -> DataFrame:
    return replay_outputs(spark, recorded.directory, LEDGER).orderBy("position", "ordinal")


def digest_and_balances(service: ClusteredService) -> dict[str, Any]:
    assert isinstance(service, Ledger)
    return {"digest": service.digest, "total": sum(service.balances.values())}


def test_states_are_those_that_the_member_had(spark: SparkSession, recorded: Recorded) -> None:
    positions = sorted(recorded.observed)[::25]

    found = states_at(
        spark,
        recorded.directory,
        LEDGER,
        positions,
        extract=digest_and_balances,
        schema="digest string, total long",
    )

    rows = {row.position: row for row in found.collect()}
    assert {position: row.digest for position, row in rows.items()} == {
        position: recorded.observed[position] for position in positions
    }
    assert all(row.log_position == row.position for row in rows.values())
    assert rows[positions[-1]].total > 0
    starts = {max((s for s in recorded.snapshots if s <= position), default=None) for position in positions}
    assert found.select(F.spark_partition_id().alias("task")).distinct().count() == len(starts) > 1


@pytest.mark.parametrize("scheme", ["local", "s3"])
def test_states_of_a_member_behind_a_url_are_those_of_its_directory(
    spark: SparkSession, s3: S3Server, recorded: Recorded, scheme: str
) -> None:
    """`local://` goes through fsspec, as a store does; `s3://` is a backup, over HTTP. Executors open it, too."""
    positions = sorted(recorded.observed)[::50]
    url = f"local://{recorded.directory.absolute()}" if scheme == "local" else f"s3://{BUCKET}/recorded"
    if scheme == "s3":
        known = ClusterIdFile.open(recorded.directory / "cluster", OsFileSystem())
        if known.cluster_id == NULL_CLUSTER_ID:  # a backup has one; a member that ran for a moment need not
            known.store(ClusterId(1))
        ship_backup(recorded.directory, url, clock_ms=lambda: 0)

    found = states_at(spark, url, LEDGER, positions, extract=digest_and_balances, schema="digest string, total long")

    assert {row.position: row.digest for row in found.collect()} == {
        position: recorded.observed[position] for position in positions
    }
    count = spark.read.format("aeron_archive").load(url).count()
    assert count == spark.read.format("aeron_archive").load(str(recorded.directory)).count() > 0
    assert replay_outputs(spark, url, LEDGER).count() == replay_outputs(spark, recorded.directory, LEDGER).count()
    verdicts = snapshot_verdicts(spark, url, LEDGER).collect()
    assert verdicts
    assert all(verdict.problem is None for verdict in verdicts)


def test_a_state_is_a_text_unless_told(spark: SparkSession, recorded: Recorded) -> None:
    position = sorted(recorded.observed)[40] + 1

    (row,) = states_at(spark, recorded.directory, Ledger, [position]).collect()

    replayed = replay_service(recorded.directory, Ledger, position=position)
    assert (row.position, row.log_position) == (position, replayed.log_position)
    assert row.state == repr(replayed.service)
    assert row.cluster_time.timestamp() * 1000 == pytest.approx(replayed.cluster_time)


def test_a_service_of_the_notebook_is_shipped(spark: SparkSession, recorded: Recorded) -> None:
    """A class that no module has."""
    namespace: dict[str, Any] = {"Ledger": Ledger, "__name__": "__main__"}
    exec("class Mine(Ledger):\n    def __repr__(self):\n        return f'mine {len(self.balances)}'", namespace)

    (row,) = states_at(spark, recorded.directory, namespace["Mine"], [recorded.snapshots[-1]]).collect()

    assert row.state.startswith("mine ")


def test_outputs_are_those_of_one_replay(frame: DataFrame, outputs: list[Output], recorded: Recorded) -> None:
    rows = frame.collect()

    assert [(row.position, row.kind, row.cluster_session_id, row.correlation_id, row.code) for row in rows] == [
        (o.position, str(o.kind), o.cluster_session_id, o.correlation_id, o.code) for o in outputs
    ]
    assert [bytes(row.payload) for row in rows] == [output.payload for output in outputs]
    assert [round(row.timestamp.timestamp() * 1000) for row in rows] == [output.timestamp for output in outputs]
    deadlines = [None if row.deadline is None else round(row.deadline.timestamp() * 1000) for row in rows]
    assert deadlines == [output.deadline for output in outputs]
    same = Counter(output.position for output in outputs)
    assert Counter((row.position, row.ordinal) for row in rows) == {
        (position, ordinal): 1 for position, count in same.items() for ordinal in range(count)
    }


def test_outputs_of_some_kinds_up_to_a_position(spark: SparkSession, recorded: Recorded, outputs: list[Output]) -> None:
    stop = recorded.snapshots[1] - 2000

    found = replay_outputs(spark, recorded.directory, LEDGER, kinds=["reply", OutputKind.OFFER], position=stop)

    expected = Counter(str(o.kind) for o in outputs if o.position <= stop and o.kind in ("reply", "offer"))
    assert {row.kind: row["count"] for row in found.groupBy("kind").count().collect()} == expected


def test_scheduled_timers_are_what_the_analysis_of_timers_takes(
    spark: SparkSession, recorded: Recorded, outputs: list[Output]
) -> None:
    found = scheduled_timers(spark, recorded.directory, LEDGER)

    kinds = (OutputKind.TIMER_SCHEDULED, OutputKind.TIMER_CANCELLED)
    assert found.columns == ["kind", "correlation_id", "position", "ordinal", "deadline"]
    assert sorted((row.position, row.kind, row.correlation_id) for row in found.collect()) == sorted(
        (output.position, str(output.kind), output.correlation_id) for output in outputs if output.kind in kinds
    )


def test_the_analysis_of_timers_knows_what_became_of_each(
    spark: SparkSession, recorded: Recorded, outputs: list[Output]
) -> None:
    register(spark)
    log = spark.read.format("aeron_archive").load(str(recorded.directory))

    found = timers(log, scheduled_timers(spark, recorded.directory, LEDGER))

    states = Counter(row.state for row in found.select("state").collect())
    kinds = Counter(output.kind for output in outputs)
    assert states["cancelled"] == kinds[OutputKind.TIMER_CANCELLED] > 0
    assert states.total() == kinds[OutputKind.TIMER_SCHEDULED]
    replayed = replay_service(recorded.directory, Ledger)
    assert isinstance(replayed.service, Ledger)
    assert states["fired"] == replayed.service.timers_fired > 0


@pytest.mark.parametrize("is_resumed", [True, False])
def test_differences_are_those_of_a_comparison(spark: SparkSession, recorded: Recorded, is_resumed: bool) -> None:
    found = what_if_frame(spark, recorded.directory, old=LEDGER, new=FeeLedger, is_resumed=is_resumed)

    rows = found.orderBy("position").collect()
    alone = what_if(recorded.directory, old=Ledger, new=FeeLedger, sample_limit=10_000)
    first = rows[0]
    assert alone.first is not None
    assert alone.first.old is not None
    assert (first.position, first.change, bytes(first.old_payload)) == (
        alone.first.position,
        "changed",
        alone.first.old.payload,
    )
    assert json.loads(first.new_payload)[1] == json.loads(first.old_payload)[1] - 1
    if is_resumed:
        assert {row.replayed_from for row in rows} == {0, *recorded.snapshots[:-1]}
        assert len(rows) < alone.difference_count
    else:
        assert [row.position for row in rows] == [difference.position for difference in alone.sample]


def test_the_log_alone_is_compared_with(spark: SparkSession, recorded: Recorded) -> None:
    assert what_if_frame(spark, recorded.directory, old=None, new=LEDGER).count() == 0


def test_each_snapshot_is_verified_in_its_task(spark: SparkSession, recorded: Recorded) -> None:
    good = snapshot_verdicts(spark, recorded.directory, LEDGER).orderBy("to_position").collect()
    bad = snapshot_verdicts(spark, recorded.directory, FeeLedger).where("problem IS NOT NULL")

    assert [row.to_position for row in good] == recorded.snapshots
    assert [row.problem for row in good] == [None] * 3
    assert bad.count() == 3


def test_what_cannot_be_is_said_before_anything_runs(spark: SparkSession, recorded: Recorded, tmp_path: Path) -> None:
    log = MemberLog.open(recorded.directory)
    with pytest.raises(ConfigurationError, match=rf"position={log.recorded_position + 32} expected 0 to"):
        states_at(spark, recorded.directory, LEDGER, [log.recorded_position + 32])
    with pytest.raises(ConfigurationError, match=r"names.*\['position'\]"):
        states_at(spark, recorded.directory, LEDGER, [0], schema="position long")
    with pytest.raises(ConfigurationError, match="kind='egress'"):
        replay_outputs(spark, recorded.directory, LEDGER, kinds=["egress"])
    with pytest.raises(ConfigurationError, match="service module"):
        replay_outputs(spark, recorded.directory, "no_such:Service", service_dir=tmp_path)
    assert states_at(spark, recorded.directory, LEDGER, []).count() == 0
