"""Ending a Spark session so that nothing of it is left: no JVM, no open socket, no process unwaited for."""

from __future__ import annotations

from pyspark.sql import SparkSession

from trimaran.archive.spark.session import end_jvm


def stop_session(session: SparkSession) -> None:
    """Stop a session that `create_session` started, and its JVM; the log of that goes when the tests end."""
    session.stop()
    end_jvm()
