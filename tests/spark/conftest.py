"""One Spark session for all tests of this directory: starting one takes as long as many tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from archive.spark import create_session
from tests.spark.sessions import stop_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session; its JVM has 1 GiB and is gone when the tests are."""
    session = create_session(
        "quorate-tests",
        master="local[2]",
        config={
            "spark.driver.memory": "1g",
            # The first compiler only: these tests are short, and most of their time is Spark warming up.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        },
    )
    yield session
    stop_session(session)
