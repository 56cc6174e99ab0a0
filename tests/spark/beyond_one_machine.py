"""The program of a user whose executors have not installed Quorate; run by test_beyond_one_machine.py.

    python beyond_one_machine.py CONFIG.json PATH

Prints as JSON what it found: how the first read fails without `ship`, and with it the rows per place, the archive's
module as the executors see it, problems and analyses.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from archive.spark import create_session, problems, ship


def where_am_i(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row for each batch: the worker's process and directory, where it has the archive from, and how many rows."""
    import importlib.util
    import os

    import archive

    for batch in batches:
        yield pa.RecordBatch.from_pydict(
            {
                "pid": [os.getpid()],
                "directory": [os.getcwd()],
                "module": [archive.__file__],
                "has_pydantic": [importlib.util.find_spec("pydantic") is not None],
                "rows": [batch.num_rows],
            }
        )


def read(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.format("aeron_archive").option("splitBytes", "64k").load(path)


def main() -> None:
    config, path = json.loads(sys.argv[1]), sys.argv[2]
    spark = create_session("beyond-one-machine", config=config)
    found: dict[str, Any] = {"session": type(spark).__module__}
    ship(spark)
    log = read(spark, path)
    schema = "pid long, directory string, module string, has_pydantic boolean, rows long"
    found["places"] = [row.asDict() for row in log.mapInArrow(where_am_i, schema).collect()]
    found["count"] = log.count()
    found["counts"] = {
        str(row["template_id"]): row["count"]
        for row in log.groupBy("template_id").count().orderBy("template_id").collect()
    }
    found["problems"] = [row.asDict() for row in problems(spark, path).collect()]
    try:
        read(spark, path + "/absent").count()
    except PySparkException as error:
        found["absent"] = str(error)
    print(json.dumps(found))
    spark.stop()


main()
