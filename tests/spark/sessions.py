"""Ending a Spark session so that nothing of it is left, and running a streaming query to its end."""

from __future__ import annotations

from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.waiting import Deadline
from trimaran.archive.spark.session import end_jvm

START_LIMIT_S: Final = 60
SLOW_START: Final = "failed to connect back"
"""How a query ends whose process of Python did not start within ten seconds, which no setting of Spark changes."""


def stop_session(session: SparkSession) -> None:
    """Stop a session that `create_session` started, and its JVM; the log of that goes when the tests end."""
    session.stop()
    end_jvm()


def run_to_end(writer: DataStreamWriter) -> None:
    """Start a query and wait for its end; where the machine is too busy for Spark's limit, start it again.

    Raises:
        StreamingQueryException: the query failed otherwise, or started too slowly until the deadline had passed.
    """
    deadline = Deadline(START_LIMIT_S)
    while True:
        try:
            writer.start().awaitTermination()
            return
        except StreamingQueryException as error:
            if SLOW_START not in str(error) or deadline.has_passed():
                raise
