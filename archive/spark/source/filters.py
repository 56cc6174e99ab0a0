"""The filter of a read, evaluated while reading: a tree of conditions that are joined by AND and OR.

A filter needs no pyspark, can be pickled, and is evaluated by pyarrow on a batch of the columns that it is about,
before payloads are copied. What it says of `position`, `leadership_term_id`, `timestamp` or `recording_id` is also a
set of intervals, by which files, and parts of them, are left unread.

As in SQL a comparison with NULL is not true: such rows are left out, also by a negated comparison. So there is no NOT
in the tree: `negate` turns AND into OR and back, and ends at the conditions (De Morgan's laws hold for SQL's three
values, too). What is left is true or false, for NULL counts as false. Timestamps are compared in microseconds, as Spark
would compare them.

The column `group` is of a log and not of its rows: `bind_group` decides what a filter says of it, before a row is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...reading.frame_columns import FRAME_COLUMNS, GROUP_COLUMN
from .intervals import ANY_VALUE, Interval, Intervals, join

UNHANDLED_COLUMNS: Final = frozenset({"payload"})
"""Those that no filter of a read can be about."""

_SQL_COMPARISONS: Final = {"equal": "=", "greater": ">", "greater_equal": ">=", "less": "<", "less_equal": "<="}


@dataclass(slots=True, frozen=True)
class Condition:
    """What a row must be: `column` compared with `values` (one, or those of "in"), or the opposite of it."""

    column: str
    comparison: str
    values: tuple[int, ...] = ()
    is_negated: bool = False
    is_null_safe: bool = False
    """A missing value is different from any other, which only matters for the opposite."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The column it is about."""
        return (self.column,)

    def negate(self) -> Condition:
        """Return what is true where this is false."""
        return replace(self, is_negated=not self.is_negated)

    def bind_group(self, group_index: int) -> RowFilter:
        """Return what is left of it for the rows of one group."""
        if self.column != GROUP_COLUMN:
            return self
        return EVERY_ROW if self._is_true(pa.array([group_index], pa.int64()))[0].as_py() else NO_ROW

    def find_rows(self, batch: Any) -> NDArray[np.bool_]:
        """Mark the rows of a batch with this column for which it is true; timestamps are in microseconds."""
        column = batch.column(self.column)
        if pa.types.is_timestamp(column.type):
            column = column.view(pa.int64())
        found: NDArray[np.bool_] = self._is_true(column).to_numpy(zero_copy_only=False)
        return found

    def _is_true(self, column: Any) -> Any:
        """Evaluate it on an Arrow array of integers; gives a boolean array without nulls."""
        if column.type != pa.int64() and any(not -(1 << 15) <= value < 1 << 15 for value in self.values):
            column = column.cast(pa.int64())  # the shorter type may not hold what it is compared with
        if self.comparison in ("is_null", "is_valid"):
            found = getattr(pc, self.comparison)(column)
        elif self.comparison == "in":
            # Unlike a comparison, it says false of a missing value, whose opposite would be true.
            found = pc.if_else(column.is_valid(), pc.is_in(column, pa.array(self.values, column.type)), None)
        else:
            found = getattr(pc, self.comparison)(column, pa.scalar(self.values[0], column.type))
        if self.is_null_safe:
            found = pc.fill_null(found, False)
        if self.is_negated:
            found = pc.invert(found)
        return pc.fill_null(found, False)

    @property
    def sql(self) -> str:
        """The same for Spark, whatever the time zone of its session."""
        values = [f"timestamp_micros({value})" if self.column == "timestamp" else str(value) for value in self.values]
        if self.comparison in ("is_null", "is_valid"):
            text = f"{self.column} IS {'NOT ' if self.comparison == 'is_valid' else ''}NULL"
        elif self.comparison == "in":
            text = f"{self.column} IN ({', '.join(values)})"
        else:
            text = f"{self.column} {'<=>' if self.is_null_safe else _SQL_COMPARISONS[self.comparison]} {values[0]}"
        return f"NOT ({text})" if self.is_negated else f"({text})"

    def values_of(self, column: str) -> Intervals:
        """Return the values of a column that a row can have for which this is true; any, if it may be missing."""
        if column != self.column or self.comparison in ("is_null", "is_valid"):
            return ANY_VALUE
        value = self.values[0]
        plain = {
            "equal": lambda: Intervals.of(Interval(value, value)),
            "greater": lambda: Intervals.of(Interval(low=value + 1)),
            "greater_equal": lambda: Intervals.of(Interval(low=value)),
            "less": lambda: Intervals.of(Interval(high=value - 1)),
            "less_equal": lambda: Intervals.of(Interval(high=value)),
            "in": lambda: Intervals.of(*(Interval(number, number) for number in self.values)),
        }[self.comparison]()
        if not self.is_negated:
            return plain
        return ANY_VALUE if self.is_null_safe else plain.invert()


@dataclass(slots=True, frozen=True)
class AllOf:
    """Every part is true of a row; without parts every row is meant."""

    parts: tuple[RowFilter, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it is about, in the order of a frame's."""
        return _columns_of(self.parts)

    def negate(self) -> AnyOf:
        """Return what is true where this is false."""
        return AnyOf(tuple(part.negate() for part in self.parts))

    def bind_group(self, group_index: int) -> RowFilter:
        """Return what is left of it for the rows of one group."""
        bound = [part.bind_group(group_index) for part in self.parts]
        return NO_ROW if NO_ROW in bound else AllOf(tuple(part for part in bound if part != EVERY_ROW))

    def find_rows(self, batch: Any) -> NDArray[np.bool_]:
        """Mark the rows of a batch with the columns of `columns` for which it is true."""
        return reduce(np.logical_and, (part.find_rows(batch) for part in self.parts), np.ones(batch.num_rows, np.bool_))

    @property
    def sql(self) -> str:
        """The same for Spark; true where there are no parts."""
        return " AND ".join(f"({part.sql})" for part in self.parts) or "true"

    def values_of(self, column: str) -> Intervals:
        """Return the values of a column that a row can have for which this is true; any, if it may be missing."""
        return reduce(Intervals.narrow, (part.values_of(column) for part in self.parts), ANY_VALUE)


@dataclass(slots=True, frozen=True)
class AnyOf:
    """One part at least is true of a row."""

    parts: tuple[RowFilter, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it is about, in the order of a frame's."""
        return _columns_of(self.parts)

    def negate(self) -> AllOf:
        """Return what is true where this is false."""
        return AllOf(tuple(part.negate() for part in self.parts))

    def bind_group(self, group_index: int) -> RowFilter:
        """Return what is left of it for the rows of one group."""
        bound = [part.bind_group(group_index) for part in self.parts]
        return EVERY_ROW if EVERY_ROW in bound else AnyOf(tuple(part for part in bound if part != NO_ROW))

    def find_rows(self, batch: Any) -> NDArray[np.bool_]:
        """Mark the rows of a batch with the columns of `columns` for which it is true."""
        return reduce(np.logical_or, (part.find_rows(batch) for part in self.parts), np.zeros(batch.num_rows, np.bool_))

    @property
    def sql(self) -> str:
        """The same for Spark."""
        return " OR ".join(f"({part.sql})" for part in self.parts) or "false"

    def values_of(self, column: str) -> Intervals:
        """Return the values of a column that a row can have for which this is true; any, if it may be missing."""
        return join(part.values_of(column) for part in self.parts)


RowFilter = Condition | AllOf | AnyOf

EVERY_ROW: Final = AllOf()
NO_ROW: Final = AnyOf(())


def _columns_of(parts: Iterable[RowFilter]) -> tuple[str, ...]:
    named = {name for part in parts for name in part.columns}
    return tuple(name for name in (*FRAME_COLUMNS, GROUP_COLUMN) if name in named)
