"""The directory of a member with two groups, both recorded by real clusters, as one DataFrame."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from tests.unit.archive.streams import extract_sample
from trimaran.archive.log.group_directories import settle_group_count


def test_all_groups_are_one_data_frame(spark: SparkSession, tmp_path: Path) -> None:
    settle_group_count(tmp_path / "member", 2)
    for index, (scenario, node) in enumerate((("single-node", "node0"), ("three-node-failover", "node1"))):
        extract_sample(scenario, tmp_path)
        shutil.move(tmp_path / scenario / node, tmp_path / "member" / f"group-{index}")
    source = spark.read.format("aeron_archive")

    found = source.load(str(tmp_path / "member"))
    counts = {row["group"]: row["count"] for row in found.groupBy("group").count().collect()}
    alone = [source.load(str(tmp_path / "member" / f"group-{index}")) for index in range(2)]

    assert counts == {index: frames.count() for index, frames in enumerate(alone)}
    assert found.columns == [*alone[0].columns, "group"]
    assert found.where("group = 1").count() == counts[1]
    assert source.option("group", "1").load(str(tmp_path / "member")).count() == counts[1]
