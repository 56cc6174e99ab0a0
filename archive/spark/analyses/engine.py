"""The engine that analyses run on: Spark, unless a caller says otherwise.

An analysis is written once, in PySpark's words: `F.max("timestamp").over(Window.partitionBy("recording_id"))`. `F` and
`Window` are those of the engine in use, so what has the same words runs the same analysis. The report brings one that
needs no Java. An analysis builds its whole query while it is called; the engine must be in use then, not when the query
runs.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

__all__ = ["Column", "DataFrame", "Engine", "F", "SparkSession", "Window", "WindowSpec", "use_engine"]

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
    from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program gives it


@dataclass(slots=True, frozen=True)
class Engine:
    """What stands for `pyspark.sql.functions` and for `pyspark.sql.Window`."""

    functions: Any  # a module with PySpark's functions
    window: Any  # a class with the methods of PySpark's Window


@contextlib.contextmanager
def use_engine(engine: Engine) -> Iterator[None]:
    """Build analyses for another engine, in this thread or task, until the block ends."""
    token = _in_use.set(engine)
    try:
        yield
    finally:
        _in_use.reset(token)


_in_use: Final[ContextVar[Engine | None]] = ContextVar("engine", default=None)


@functools.cache
def _spark() -> Engine:
    from .. import extra  # noqa: F401 - says what to install
    from pyspark.sql import Window, functions  # isort: skip

    return Engine(functions=functions, window=Window)


if not TYPE_CHECKING:
    Column = DataFrame = SparkSession = WindowSpec = Any

    class _InUse:
        """Passes on to a part of the engine in use."""

        def __init__(self, part: str) -> None:
            self._part = part

        def __getattr__(self, name: str) -> Any:
            return getattr(getattr(_in_use.get() or _spark(), self._part), name)

    F = _InUse("functions")
    Window = _InUse("window")
