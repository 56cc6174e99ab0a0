"""The directory of a member with two groups, both recorded by real clusters, as one DataFrame."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.sessions import run_to_end
from tests.unit.archive.streams import make_member_of_samples


def test_all_groups_are_one_data_frame(spark: SparkSession, tmp_path: Path) -> None:
    make_member_of_samples(tmp_path)
    source = spark.read.format("aeron_archive")

    found = source.load(str(tmp_path / "node-0"))
    counts = {row["group"]: row["count"] for row in found.groupBy("group").count().collect()}
    alone = [source.load(str(tmp_path / "node-0" / f"group-{index}")) for index in range(2)]

    assert counts == {index: frames.count() for index, frames in enumerate(alone)}
    assert found.columns == [*alone[0].columns, "group"]
    assert found.where("group = 1").count() == counts[1]
    assert source.option("group", "1").load(str(tmp_path / "node-0")).count() == counts[1]


@pytest.mark.slow
def test_all_groups_are_one_stream_that_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """Two groups recorded by real clusters; the second query begins where the first one ended, and finds nothing."""
    member = make_member_of_samples(tmp_path)
    given: list[list[tuple[int, int]]] = []

    def sink(batch: DataFrame, batch_id: int) -> None:
        given.append([(row.group, row.position) for row in batch.collect()])

    def run(**options: str) -> None:
        stream = spark.readStream.format("aeron_archive").options(columns="group,position", **options).load(str(member))
        writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        run_to_end(writer.trigger(availableNow=True).foreachBatch(sink))

    run(maxBytesPerTrigger="256k")
    count = len(given)
    run(maxBytesPerTrigger="256k")

    frames = spark.read.format("aeron_archive").options(columns="group,position", committed="true").load(str(member))
    rows = [row for batch in given for row in batch]
    assert sorted(rows) == sorted((row.group, row.position) for row in frames.collect())
    assert {group for group, _ in rows} == {0, 1}
    assert 1 < count == len(given)
    with pytest.raises(StreamingQueryException, match=r"groups=0,1 expected=1"):
        run(group="1")
