"""One Spark session for all tests of this directory: starting one takes as long as many tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.interchange.samples import sample_of
from tests.s3_server import S3Server, s3_server
from tests.spark.recorded_cluster import RecordedCluster, record_cluster
from tests.spark.sessions import stop_session
from tests.unit.archive.streams import extract_sample
from trimaran.archive.spark import create_session


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server. It is there before the JVM, whose workers inherit how it is found."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def spark(s3: S3Server) -> Iterator[SparkSession]:
    """The session; its JVM has 1 GiB and is gone when the tests are."""
    session = create_session(
        "trimaran-tests",
        master="local[2]",
        config={
            "spark.driver.memory": "1g",
            # The first compiler only: these tests are short, and most of their time is Spark warming up.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        },
    )
    yield session
    stop_session(session)


@pytest.fixture(scope="session")
def sample_log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], DataFrame]:
    """The log of a node of the Aeron samples, such as "single-node-node0", with all columns; read once."""
    root = tmp_path_factory.mktemp("aeron")
    logs: dict[str, DataFrame] = {}

    def load(name: str) -> DataFrame:
        if name not in logs:
            scenario = name.rpartition("-")[0]
            if not (root / scenario).exists():
                extract_sample(scenario, root)
            directory = sample_of(root, name).directory
            logs[name] = spark.read.format("aeron_archive").load(str(directory)).persist()
        return logs[name]

    return load


@pytest.fixture(scope="session")
def recorded_cluster(tmp_path_factory: pytest.TempPathFactory) -> RecordedCluster:
    """What a cluster left that lost its leader; it ran once, for all tests that look at it."""
    return asyncio.run(record_cluster(tmp_path_factory.mktemp("cluster")))


@pytest.fixture(scope="session")
def recorded_log(spark: SparkSession, recorded_cluster: RecordedCluster) -> Callable[[int], DataFrame]:
    """The log of a member of that cluster, with all columns; read again by each query."""

    def load(member_id: int) -> DataFrame:
        directory = recorded_cluster.directory_of(member_id)
        return spark.read.format("aeron_archive").load(str(directory))

    return load
