"""Spark's daemon, which forks the workers of Python, with everything imported that a worker of the tests needs.

Spark's own imports nothing, so that each worker imports pyarrow, numpy and Trimaran for a second of a processor, and
Spark starts several for a query. Sessions of users have Spark's own, and so have those of the notebooks.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Final

PRELOADED: Final = (
    "pandas",
    "pyarrow",
    "pyspark.worker",
    "trimaran.archive.spark.source",
)

if __name__ == "__main__":
    from pyspark.daemon import manager

    for module in (*PRELOADED, *sys.argv[1:]):
        importlib.import_module(module)
    gc.freeze()  # workers would copy every page of it in their first collection
    manager()
