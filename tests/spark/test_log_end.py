"""Damage as Spark lists it is what every command says; the other readers are in `tests/interchange/test_log_end.py`."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.interchange.ended_logs import ENDED_LOGS
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import MemberDirectory
from trimaran.archive.spark import problems


def test_spark_lists_the_damage_that_a_log_ends_with(spark: SparkSession, tmp_path: Path) -> None:
    names = ("one bit of frame 50", "one bit of the last frame", "missing segment")
    for log in (log for log in ENDED_LOGS if log.name in names):
        directory = log.write(tmp_path / log.name.replace(" ", "-"))
        end = LogFile.find(MemberDirectory.find(directory)).ending()

        found = [(row.position, row.reason) for row in problems(spark, str(directory)).collect()]

        assert found == ([] if end.damage is None else [(end.position, end.damage)])
