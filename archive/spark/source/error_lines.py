"""Errors of a read as Spark shows them: one line instead of a traceback.

Spark runs a data source in processes of its own and puts what it raises, traceback and all, into the message of its own
error. A mistake in an option then hides below forty lines of code that its author did not write. PySpark shows the
message alone where an environment variable says so; it is set when such an error is on its way, in a process that ends
by it. Any other exception is a fault of ours, and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

from ....service_api.errors import ClusterError

_HIDE: Final = "SPARK_HIDE_TRACEBACK"


@contextlib.contextmanager
def said_in_one_line() -> Iterator[None]:
    """Have Spark show the message alone of an error of the cluster's, or of the disk or store, raised in the block."""
    try:
        yield
    except (ClusterError, OSError):
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is not None and spec.name.startswith("pyspark."):
            os.environ[_HIDE] = "1"
        raise
