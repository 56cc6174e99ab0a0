"""Ending a Spark session so that nothing of it is left: no JVM, no open socket, no process unwaited for."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from archive.spark.session import JVM_LOG, end_jvm


def stop_session(session: SparkSession) -> None:
    """Stop a session that `create_session` started, and its JVM, and remove the log of that."""
    log = Path(session.conf.get(JVM_LOG) or "")
    session.stop()
    end_jvm()
    log.unlink()
