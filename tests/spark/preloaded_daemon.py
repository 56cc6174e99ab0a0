"""Spark's daemon, which forks the workers of Python, with everything imported that a worker of the tests needs.

Spark's own imports nothing, so that each worker imports pyarrow, numpy, pandas and Trimaran for a second of a
processor. Spark starts several for a query: one that makes the data source, one that plans the read, and those that
read. A setting names the daemon of the last ones only; `write_python` makes a Python whose daemon is always this one.
Sessions of users have Spark's own, and so have those of the notebooks.
"""

from __future__ import annotations

import gc
import importlib
import runpy
import sys
from pathlib import Path
from typing import Final

PRELOADED: Final = (
    "pandas",
    "pyarrow",
    "pyspark.worker",
    "pyspark_trimaran",
)

_SCRIPT: Final = """#!/bin/sh
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    set -- -m tests.spark.preloaded_daemon "$@"
fi
exec "{python}" "$@"
"""


def write_python(directory: Path) -> Path:
    """Write the command of a Python that starts this daemon in place of Spark's; return its path."""
    script = directory / "python"
    script.write_text(_SCRIPT.format(python=sys.executable))
    script.chmod(0o755)
    return script


if __name__ == "__main__":
    for module in (*PRELOADED, *sys.argv[1:]):
        importlib.import_module(module)
    gc.freeze()  # workers would copy every page of it in their first collection
    # A data source knows by the name of the main module that it runs in a process of Spark's.
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
