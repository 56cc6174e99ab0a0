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


@pytest.mark.parametrize("log", ENDED_LOGS, ids=lambda log: log.name.replace(" ", "_"))
def test_spark_lists_the_damage_that_a_log_ends_with(spark: SparkSession, tmp_path: Path, log: EndedLog) -> None:
    directory = log.write(tmp_path / "member-0")
    end = LogFile.find(MemberDirectory.find(directory)).ending()

    found = [(row.position, row.reason) for row in problems(spark, str(directory)).collect()]

    assert found[:1] == ([] if end.damage is None else [(end.position, end.damage)])
    whole = read_log(spark, directory, mode="FAILFAST", columns="position")
    if end.damage is None:
        assert max(row.position for row in whole.collect()) < end.position
    else:
        with pytest.raises(PySparkException) as raised:
            whole.collect()
        assert f"{end.damage} (code=CORRUPT recording_id=0 position={end.position})" in str(raised.value)
