"""The Spark benchmark from end to end, on a log of one term, with the session of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from trimaran.benchmarks.scenarios.spark import QUERIES, SparkParameters, run


@pytest.mark.campaign
def test_the_log_is_measured_beside_parquet(spark: SparkSession, tmp_path: Path) -> None:
    names = ("all columns",)

    report = run(SparkParameters(mib=16, rounds=1, only=names), directory=tmp_path, keep=False, session=spark)

    assert {"log, s", "hybrid, s", "parquet, s", "log, times of parquet", "log, cold, s"} <= report[
        "all columns"
    ].keys()
    assert all(value > 0 for name in names for value in report[name].values())
    assert report["log"]["frames"] > 80_000
    assert 200 < report["log"]["bytes a frame"] < 215
    assert report["log"]["segments opened for a position range"] == 1
    assert set(QUERIES) & report.keys() == set(names)
