"""The session that `create_session` starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.places import ROOT
from tests.waiting import patient
from trimaran.archive.spark import create_session
from trimaran.archive.spark.session import JVM_LOG, _open_log
from trimaran.service_api.errors import ConfigurationError


def test_it_is_in_utc_on_loopback_and_without_a_web_page(spark: SparkSession) -> None:
    settings = {
        key: spark.conf.get(key) for key in ("spark.sql.session.timeZone", "spark.driver.host", "spark.ui.enabled")
    }

    assert settings == {
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }


def test_shuffles_have_a_partition_for_each_core(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_what_the_jvm_prints_is_in_a_file_of_its_own(spark: SparkSession) -> None:
    log = Path(spark.conf.get(JVM_LOG) or "")

    assert "WARN" in log.read_text()


def test_a_running_session_is_given_back_with_what_can_be_set_set(spark: SparkSession) -> None:
    again = create_session(config={"spark.sql.shuffle.partitions": "3"})

    try:
        assert again is spark
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


def test_a_running_session_is_refused_what_is_set_at_the_start(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"runs already.*spark\.master='local\[7\]' expected 'local\[2\]'"):
        create_session(master="local[7]")


PROGRAM = """
from trimaran.archive.spark import create_session
from trimaran.archive.spark.session import JVM_LOG, end_jvm

for memory, log in (("512m", {}), ("600m", {JVM_LOG: "kept.log"})):
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    spark = create_session(master="local[1]", config={"spark.driver.memory": memory, **quick, **log})
    heap = spark._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
    print(memory, heap, spark.conf.get(JVM_LOG))
    spark.stop()
end_jvm()
"""


@pytest.mark.campaign
def test_a_session_after_a_stop_has_a_jvm_of_its_own_and_only_a_log_with_a_name_is_left(tmp_path: Path) -> None:
    """Spark would keep the old one, and its memory."""
    root = ROOT
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(root)}

    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=patient(170),
    )  # fmt: skip

    assert (result.returncode, result.stderr) == (0, "")
    first, second = (line.split() for line in result.stdout.splitlines())
    assert (first[0], second[0]) == ("512m", "600m")
    assert int(first[1]) <= 512 < int(second[1]) <= 600
    assert Path(first[2]).parent == tmp_path
    assert second[2] == "kept.log"
    assert [path.name for path in tmp_path.glob("*.log")] == ["kept.log"]
    assert "WARN" in (tmp_path / "kept.log").read_text()


def test_a_log_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    from pyspark import SparkConf

    conf = SparkConf(loadDefaults=False).set(JVM_LOG, str(tmp_path / "none" / "jvm.log"))

    with pytest.raises(ConfigurationError, match=r"jvmLog='.*/none/jvm.log'"):
        _open_log(conf)
