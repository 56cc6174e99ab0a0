"""The engines that the analyses run on, as their tests see them: Spark, and the report's, which needs no Java.

An analysis is written once, for both. `test_report_engine` holds the engines against each other; what an analysis
finds is tested on the report's, in a tenth of the time, and all of it on Spark in the campaign. A test that computes
frames itself does so with `sql`, which asks the engine that a frame is of.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from pyspark.sql import DataFrame, SparkSession

from trimaran.archive.report.engine.frames import SqlDatabase
from trimaran.archive.report.engine.log_tables import read_node_logs, scan_log
from trimaran.archive.spark import analyses
from trimaran.archive.spark.analyses.sql import sql

ENGINES: Final = ("report", "spark")
"""Both, for a test of what `test_report_engine` does not compare: `parametrize("engine", ENGINES, indirect=True)`."""


def rows_where(log: DataFrame, condition: str) -> DataFrame:
    """Keep the rows of a frame of either engine of which a condition is true."""
    return sql(f"SELECT * FROM log WHERE {condition}", log=log)


def without(log: DataFrame, name: str) -> DataFrame:
    """Leave a column of a frame of either engine out."""
    return sql(f"SELECT * EXCEPT ({name}) FROM log", log=log)


def with_changed(log: DataFrame, **columns: str) -> DataFrame:
    """Compute some columns of a frame of either engine again."""
    items = (f"{columns[name]} AS {name}" if name in columns else name for name in log.columns)
    return sql(f"SELECT {', '.join(items)} FROM log", log=log)


class AnalysisEngine(Protocol):
    """What reads logs into frames, to which analyses apply."""

    def read_log(self, path: Path, **options: str) -> DataFrame:
        """The log of a member; `options` are those of `aeron_archive`."""

    def read_node_logs(self, paths: Sequence[Path]) -> DataFrame:
        """What members logged."""


class SparkEngine:
    """Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read_log(self, path: Path, **options: str) -> DataFrame:
        return self._spark.read.format("aeron_archive").options(**options).load(str(path))

    def read_node_logs(self, paths: Sequence[Path]) -> DataFrame:
        return analyses.read_node_logs(self._spark, list(paths))


class ReportEngine:
    """The report's."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    def read_log(self, path: Path, **options: str) -> DataFrame:
        return scan_log(self._database, str(path), options)

    def read_node_logs(self, paths: Sequence[Path]) -> DataFrame:
        return read_node_logs(self._database, paths)
