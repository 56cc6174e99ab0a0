"""One Spark session for all tests of this directory: starting one takes as long as many tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.interchange.samples import sample_of
from tests.s3_server import S3Server, s3_server
from tests.spark.engines import AnalysisEngine, ReportEngine, SparkEngine
from tests.spark.preloaded_daemon import write_python
from tests.spark.recorded_cluster import RecordedCluster, record_cluster
from tests.spark.sessions import stop_session
from tests.unit.archive.streams import extract_sample
from trimaran.archive.report.engine.frames import SqlDatabase
from trimaran.archive.spark import create_session


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server. It is there before the JVM, whose workers inherit how it is found."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def spark(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session; its JVM has 1 GiB and is gone when the tests are."""
    python = str(write_python(tmp_path_factory.mktemp("python")))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):  # the session and its JVM keep them
            patch.setenv(name, python)
        session = create_session(
            "trimaran-tests",
            master="local[2]",
            config={
                "spark.driver.memory": "1g",
                # These tests are short, and mostly Spark warms up: the first compiler only, one thread that collects,
                # and neither whole stages compiled nor plans made again while they run. The notebooks have both.
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.adaptive.enabled": "false",
            },
        )
    yield session
    stop_session(session)


@pytest.fixture(scope="session")
def _spark_engine(spark: SparkSession) -> SparkEngine:
    return SparkEngine(spark)


@pytest.fixture(scope="session")
def _report_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReportEngine]:
    database = SqlDatabase(tmp_path_factory.mktemp("database"))
    yield ReportEngine(database)
    database.close()


@pytest.fixture(params=["report", pytest.param("spark", marks=pytest.mark.campaign)])
def engine(request: pytest.FixtureRequest) -> AnalysisEngine:
    """The engine that reads what the test analyses: see `engines`."""
    chosen: AnalysisEngine = request.getfixturevalue(f"_{request.param}_engine")
    return chosen


@pytest.fixture(scope="session")
def _read_logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[AnalysisEngine, str], DataFrame]]:
    """Where the samples are, and the logs that were read."""
    return tmp_path_factory.mktemp("aeron"), {}


@pytest.fixture
def sample_log(
    engine: AnalysisEngine, _read_logs: tuple[Path, dict[tuple[AnalysisEngine, str], DataFrame]]
) -> Callable[[str], DataFrame]:
    """The log of a node of the Aeron samples, such as "single-node-node0", with all columns; read once."""
    root, logs = _read_logs

    def load(name: str) -> DataFrame:
        if (engine, name) not in logs:
            scenario = name.rpartition("-")[0]
            if not (root / scenario).exists():
                extract_sample(scenario, root)
            logs[engine, name] = engine.read_log(sample_of(root, name).directory).persist()
        return logs[engine, name]

    return load


@pytest.fixture(scope="session")
def recorded_cluster(tmp_path_factory: pytest.TempPathFactory) -> RecordedCluster:
    """What a cluster left that lost its leader; it ran once, for all tests that look at it."""
    return asyncio.run(record_cluster(tmp_path_factory.mktemp("cluster")))


@pytest.fixture
def recorded_log(engine: AnalysisEngine, recorded_cluster: RecordedCluster) -> Callable[[int], DataFrame]:
    """The log of a member of that cluster, with all columns; read again by each query."""

    def load(member_id: int) -> DataFrame:
        return engine.read_log(recorded_cluster.directory_of(member_id))

    return load
