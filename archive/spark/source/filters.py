"""Filters that are evaluated while reading: of the option `where`, and those that Spark pushes down.

A filter is turned into a `Condition`, which needs no pyspark, can be pickled, and is evaluated by pyarrow on a batch
of the columns that conditions are about, before payloads are copied. What a condition says of `position`,
`leadership_term_id`, `timestamp` or `recording_id` is also an interval, by which files are left unopened.

As in SQL a comparison with NULL is not true: such rows are left out, also by a negated comparison. Timestamps are
compared in microseconds, as Spark would compare them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import datasource as sources

from trimaran.service_api.quantities import microseconds_of

from ...reading.frame_columns import FRAME_COLUMNS

UNHANDLED_COLUMNS: Final = frozenset({"payload"})
"""Those whose filters are left to Spark."""

_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1

_COMPARISONS: Final[dict[type[sources.Filter], str]] = {
    sources.EqualTo: "equal",
    sources.EqualNullSafe: "equal",
    sources.GreaterThan: "greater",
    sources.GreaterThanOrEqual: "greater_equal",
    sources.LessThan: "less",
    sources.LessThanOrEqual: "less_equal",
    sources.In: "in",
    sources.IsNull: "is_null",
    sources.IsNotNull: "is_valid",
}

_SQL_COMPARISONS: Final = {"equal": "=", "greater": ">", "greater_equal": ">=", "less": "<", "less_equal": "<="}


@dataclass(slots=True, frozen=True)
class Interval:
    """The values from `low` to `high`, both included; empty where `low` is the greater one."""

    low: int = _INT64_MIN
    high: int = _INT64_MAX

    def narrow(self, other: Self) -> Interval:
        """Return what lies in both."""
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def meets(self, low: int, high: int) -> bool:
        """Whether a value from `low` to `high` lies in it."""
        return low <= self.high and high >= self.low and self.low <= self.high


ANY_VALUE: Final = Interval()


@dataclass(slots=True, frozen=True)
class Condition:
    """What a row must be: `column` compared with `values` (one, or those of "in"), or the opposite of it."""

    column: str
    comparison: str
    values: tuple[int, ...] = ()
    is_negated: bool = False
    is_null_safe: bool = False
    """A missing value is different from any other, which only matters for the opposite."""

    def is_true(self, column: Any) -> Any:
        """Evaluate it on an Arrow array of integers; gives a boolean array without nulls."""
        if column.type != pa.int64() and any(not -(1 << 15) <= value < 1 << 15 for value in self.values):
            column = column.cast(pa.int64())  # the shorter type may not hold what it is compared with
        if self.comparison in ("is_null", "is_valid"):
            found = getattr(pc, self.comparison)(column)
        elif self.comparison == "outside":
            low, high = self.values
            found = pc.or_(pc.less(column, low), pc.greater(column, high))
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
        elif self.comparison == "outside":
            text = f"{self.column} NOT BETWEEN {values[0]} AND {values[1]}"
        elif self.comparison == "in":
            text = f"{self.column} IN ({', '.join(values)})"
        else:
            text = f"{self.column} {'<=>' if self.is_null_safe else _SQL_COMPARISONS[self.comparison]} {values[0]}"
        return f"NOT ({text})" if self.is_negated else f"({text})"

    @property
    def interval(self) -> Interval:
        """The values that a row can have for which this is true."""
        if self.is_negated or self.comparison == "outside" or not self.values:
            return ANY_VALUE
        value = self.values[0]
        intervals = {
            "equal": Interval(value, value),
            "greater": Interval(low=value + 1),
            "greater_equal": Interval(low=value),
            "less": Interval(high=value - 1),
            "less_equal": Interval(high=value),
            "in": Interval(min(self.values), max(self.values)),
        }
        return intervals[self.comparison]


@dataclass(slots=True, frozen=True)
class Conditions:
    """What all rows must be: every one of the conditions is true of them."""

    conditions: tuple[Condition, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns they are about, in the order of a frame's."""
        named = {condition.column for condition in self.conditions}
        return tuple(name for name in FRAME_COLUMNS if name in named)

    @property
    def sql(self) -> str:
        """The same for Spark; true where there are none."""
        return " AND ".join(condition.sql for condition in self.conditions) or "true"

    def interval(self, column: str) -> Interval:
        """Return the values of a column that a row can have."""
        interval = ANY_VALUE
        for condition in self.conditions:
            if condition.column == column:
                interval = interval.narrow(condition.interval)
        return interval

    def also(self, other: Self) -> Conditions:
        """Return what is true where both are."""
        return Conditions(self.conditions + other.conditions)

    def find_rows(self, batch: Any) -> NDArray[np.bool_]:
        """Mark the rows of a batch with the columns of `columns`, timestamps in microseconds."""
        rows: NDArray[np.bool_] = np.ones(batch.num_rows, np.bool_)
        for condition in self.conditions:
            column = batch.column(condition.column)
            if pa.types.is_timestamp(column.type):
                column = column.view(pa.int64())
            found = condition.is_true(column)
            rows &= found.to_numpy(zero_copy_only=False)
        return rows


NO_CONDITIONS: Final = Conditions()


def push_down(filters: Sequence[sources.Filter]) -> tuple[Conditions, list[sources.Filter]]:
    """Take over the filters that can be handled here; gives their conditions, and those that Spark has to evaluate."""
    conditions, left = [], []
    for pushed in filters:
        condition = translate(pushed)
        if condition is None:
            left.append(pushed)
        else:
            conditions.append(condition)
    return Conditions(tuple(conditions)), left


def translate(pushed: sources.Filter) -> Condition | None:
    """Turn a filter into a condition; None if it is of a kind, or about a column or value, that is not handled."""
    is_negated = isinstance(pushed, sources.Not)
    plain = pushed.child if isinstance(pushed, sources.Not) else pushed
    comparison = _COMPARISONS.get(type(plain))
    if comparison is None:
        return None
    attribute: tuple[str, ...] = plain.attribute  # type: ignore[attr-defined]  # every filter of the table has it
    if len(attribute) != 1 or attribute[0] not in FRAME_COLUMNS or attribute[0] in UNHANDLED_COLUMNS:
        return None
    column = attribute[0]
    if comparison in ("is_null", "is_valid"):
        return Condition(column, comparison, is_negated=is_negated)
    given = plain.value  # type: ignore[attr-defined]
    values = _integers(column, given if comparison == "in" else (given,))
    if not values:
        return None
    return Condition(column, comparison, values, is_negated, isinstance(plain, sources.EqualNullSafe))


def _integers(column: str, given: Iterable[Any]) -> tuple[int, ...] | None:
    """Take the values of a filter as the numbers that a column holds; None if one is none that it can hold.

    An integer column can hold its own type's values only, to which Spark has reduced the filter.
    """
    values = []
    for value in given:
        if column == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
            values.append(microseconds_of(value))
        elif column != "timestamp" and isinstance(value, int) and not isinstance(value, bool):
            values.append(value)
        else:
            return None
    return tuple(values)
