"""The program of a user whose executors have not installed Trimaran; run by test_beyond_one_machine.py.

    python beyond_one_machine.py CONFIG PATH

CONFIG is the session's, as JSON. Prints as JSON what it found: how a read fails before `ship`, and after it where the
rows were read and how many there are; over Spark Connect also problems, an analysis, and a path that is wrong.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from trimaran.archive.spark import create_session, problems, register, ship
from trimaran.archive.spark.analyses import term_timeline

PLACE = "pid long, directory string, module string, has_pydantic boolean, row_count long"


def where_am_i(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row for each batch: the worker's process and directory, where it has the archive from, and how many rows."""
    import importlib.util
    import os

    from trimaran import archive

    for batch in batches:
        yield pa.RecordBatch.from_pydict(
            {
                "pid": [os.getpid()],
                "directory": [os.getcwd()],
                "module": [archive.__file__],
                "has_pydantic": [importlib.util.find_spec("pydantic") is not None],
                "row_count": [batch.num_rows],
            }
        )


def read(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.format("aeron_archive").option("splitBytes", "128k").load(path)


def failure_of(log: Any) -> str:
    """What an action says that cannot succeed."""
    try:
        log()
    except PySparkException as error:
        return str(error)
    return "succeeded"


def main() -> None:
    config, path = json.loads(sys.argv[1]), sys.argv[2]
    spark = create_session("beyond-one-machine", config=config)

    def read_unshipped() -> None:
        register(spark)
        read(spark, path).count()

    found: dict[str, Any] = {"session": type(spark).__module__, "unshipped": failure_of(read_unshipped)}
    ship(spark)
    log = read(spark, path)
    found["places"] = [row.asDict() for row in log.mapInArrow(where_am_i, PLACE).collect()]
    found["templates"] = sorted(([r[0], r[1]] for r in log.groupBy("template_id").count().collect()), key=str)
    if "spark.remote" in config:
        found["problems"] = [row.asDict() for row in problems(spark, path).collect()]
        found["terms"] = [row["leadership_term_id"] for row in term_timeline(log).collect()]
        found["absent"] = failure_of(lambda: read(spark, path + "/absent").count())
    print(json.dumps(found))
    spark.stop()


main()
