"""Ending a Spark session so that nothing of it is left: no JVM, no open socket, no process unwaited for."""

from __future__ import annotations

from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from archive.spark.session import JVM_LOG


def stop_session(session: SparkSession) -> None:
    """Stop a session that `create_session` started, its JVM, and remove the log of that.

    Spark keeps the JVM for a next session in this process; it ends with the pipe to its standard input.
    """
    log = Path(session.conf.get(JVM_LOG) or "")
    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    assert gateway.proc.wait(timeout=30) is not None
    log.unlink()
