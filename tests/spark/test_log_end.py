"""Damage as Spark lists it is what every command says; the other readers are in `tests/interchange/test_log_end.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.interchange.ended_logs import ENDED_LOGS, EndedLog
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import MemberDirectory
from trimaran.archive.spark import problems, read_log

IN_THE_SUITE = ("in order", "one bit of frame 50, several segments", "one bit of the last frame", "missing segment")
"""The others are for the campaign: without Spark every other reader reads all of them."""


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(log, id=log.name.replace(" ", "_"), marks=[] if log.name in IN_THE_SUITE else pytest.mark.campaign)
        for log in ENDED_LOGS
    ],
)
def test_spark_lists_the_damage_that_a_log_ends_with(spark: SparkSession, tmp_path: Path, log: EndedLog) -> None:
    directory = log.write(tmp_path / "member-0")
    end = LogFile.find(MemberDirectory.find(directory)).ending()

    found = [(row.position, row.reason) for row in problems(spark, str(directory)).collect()]

    said = end.damage or end.torn_write
    assert found[:1] == ([] if said is None else [(end.position, said)])
    whole = read_log(spark, directory, mode="FAILFAST", columns="position")
    if end.damage is None:
        assert max(row.position for row in whole.collect()) < end.position
    else:
        with pytest.raises(PySparkException) as raised:
            whole.collect()
        assert f"{end.damage} (code=CORRUPT recording_id=0 position={end.position})" in str(raised.value)
