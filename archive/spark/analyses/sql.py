"""Asks frames in SQL: on Spark, or on an engine that needs no Java, such as the report's.

An analysis is a text of SQL, written once. Spark runs it as it is; the report's engine, DuckDB, has macros for the
functions of Spark that it lacks. A test runs each analysis on both. These rules keep a text readable for both:

- `array` and `window` are keywords of DuckDB. As functions they are between backticks, and so are columns with the name
  of a keyword, such as `group`.
- `struct(...)` takes names of columns only, and FILTER goes with `count`, `sum`, `min` and `max` only.
- Indexes begin at different numbers in the two: use `element_at`.
- GROUP BY names columns of its FROM, or places of its SELECT.
- A long condition is a column of a subquery with a window, not part of WHERE: Spark's optimizer doubles a condition for
  each name that a SELECT below gives to a part of it.

Rejected: PySpark's DataFrame and functions, written again for DuckDB; SQLFrame, which lacks ten of the functions and
plans for 0.9 s an analysis.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, cast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
else:
    DataFrame = SparkSession = Any

__all__ = ["DataFrame", "EngineFrame", "SparkSession", "is_on_spark", "sql", "text_of"]


class EngineFrame(ABC):
    """A query of an engine other than Spark.

    To type checkers it is what it stands for, PySpark's DataFrame. It has those methods of it that analyses and reports
    call: columns, limit, persist, unpersist, collect, toPandas.
    """

    @abstractmethod
    def sql(self, text: str, frames: Mapping[str, Any]) -> Self:
        """Return the query of a text in which `{name}` stands for a frame; `{{` is a brace."""


def sql(text: str, **frames: DataFrame) -> DataFrame:
    """Return what a text of SQL asks of frames, which FROM and JOIN call by the names of the arguments.

    Nothing runs until the rows are asked for. All frames are of one engine.
    """
    names = re.compile(rf"\b(FROM|JOIN) ({'|'.join(frames)})\b")
    filled = names.sub(r"\1 {\2}", text.replace("{", "{{").replace("}", "}}"))
    frame = next(iter(frames.values()))
    if isinstance(frame, EngineFrame):
        return cast("DataFrame", frame.sql(filled, frames))
    named: dict[str, Any] = {**frames}
    return frame.sparkSession.sql(filled, **named)


def is_on_spark(frame: DataFrame) -> bool:
    """Return whether Spark runs the queries of this frame."""
    return not isinstance(frame, EngineFrame)


def text_of(value: str) -> str:
    """Write any text as an expression of SQL: quotes inside a literal mean different things to the engines."""
    return f"string(x'{value.encode().hex()}')"
