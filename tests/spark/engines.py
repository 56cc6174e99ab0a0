"""The engines that the analyses run on, as their tests see them: Spark, and the report's, which needs no Java.

An analysis is written once, for both. `test_report_engine` holds the engines against each other; what an analysis
finds is tested on the report's, in a tenth of the time, and all of it on Spark in the campaign. What a test computes
itself it writes with `F`, which is that of the engine in use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession

from trimaran.archive.report.engine import ENGINE
from trimaran.archive.report.engine.frames import SqlDatabase
from trimaran.archive.report.engine.log_tables import read_node_logs, scan_log
from trimaran.archive.spark import analyses
from trimaran.archive.spark.analyses.engine import use_engine

ENGINES: Final = ("report", "spark")
"""Both, for a test of what `test_report_engine` does not compare: `parametrize("engine", ENGINES, indirect=True)`."""


class AnalysisEngine(Protocol):
    """What reads logs into frames, to which analyses apply while it is in use."""

    def in_use(self) -> Any:
        """A context manager: analyses are built for this engine."""

    def read_log(self, path: Path, **options: str) -> DataFrame:
        """The log of a member; `options` are those of `aeron_archive`."""

    def read_node_logs(self, paths: Sequence[Path]) -> DataFrame:
        """What members logged."""


class SparkEngine:
    """Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @contextmanager
    def in_use(self) -> Iterator[None]:
        yield

    def read_log(self, path: Path, **options: str) -> DataFrame:
        return self._spark.read.format("aeron_archive").options(**options).load(str(path))

    def read_node_logs(self, paths: Sequence[Path]) -> DataFrame:
        return analyses.read_node_logs(self._spark, list(paths))


class ReportEngine:
    """The report's."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    @contextmanager
    def in_use(self) -> Iterator[None]:
        with use_engine(ENGINE):
            yield

    def read_log(self, path: Path, **options: str) -> DataFrame:
        return scan_log(self._database, str(path), options)

    def read_node_logs(self, paths: Sequence[Path]) -> DataFrame:
        return read_node_logs(self._database, paths)
