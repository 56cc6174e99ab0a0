"""Expressions over columns as text of DuckDB's SQL, with the methods of PySpark's `Column` and `Window`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

_TYPES: Final = {"short": "SMALLINT", "int": "INTEGER", "long": "BIGINT", "timestamp": "TIMESTAMP"}
_FULL_INT32: Final = 1 << 31


class SqlColumn:
    """An expression, and the name of the column that it makes."""

    __hash__ = None  # type: ignore[assignment]  # == makes an expression, as PySpark's does

    def __init__(self, text: str, name: str = "", *, is_descending: bool = False) -> None:
        self.text = text
        self.name = name
        self.is_descending = is_descending

    def __repr__(self) -> str:
        return f"<SqlColumn {self.text}>"

    @property
    def named(self) -> str:
        """The expression as an item of SELECT."""
        return f"{self.text} AS {quote(self.name)}" if self.name else self.text

    @property
    def ordered(self) -> str:
        """The expression as an item of ORDER BY; NULL is before everything else, as in Spark."""
        return f"{self.text} {'DESC NULLS LAST' if self.is_descending else 'ASC NULLS FIRST'}"

    def alias(self, name: str) -> SqlColumn:
        """Give the column a name."""
        return SqlColumn(self.text, name)

    def cast(self, to: str) -> SqlColumn:
        """Turn values into another type; bytes become the text that they are, not one that shows them."""
        text = f"as_text({self.text})" if to == "string" else f"CAST({self.text} AS {_TYPES.get(to, to)})"
        return SqlColumn(text, self.name)

    def try_cast(self, to: str) -> SqlColumn:
        """Turn values into another type; NULL where that cannot be."""
        return SqlColumn(f"TRY_CAST({self.text} AS {_TYPES.get(to, to)})", self.name)

    def over(self, window: SqlWindow) -> SqlColumn:
        """Compute an aggregate over the rows of a window."""
        return SqlColumn(f"{self.text} OVER ({window.text})")

    def isin(self, *values: Any) -> SqlColumn:
        """Whether it is one of some values."""
        listed = values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values
        texts = [literal(value).text for value in listed]
        return SqlColumn(f"({self.text} IN ({', '.join(texts)}))" if texts else f"({self.text} IS NULL AND NULL)")

    def getField(self, name: str) -> SqlColumn:  # noqa: N802 - PySpark's name
        """A field of a struct, or of each struct of a list."""
        return SqlColumn(f"list_transform({self.text}, lambda s: s.{quote(name)})")

    def isNull(self) -> SqlColumn:  # noqa: N802 - PySpark's name
        """Whether it is NULL."""
        return SqlColumn(f"({self.text} IS NULL)")

    def isNotNull(self) -> SqlColumn:  # noqa: N802 - PySpark's name
        """Whether it is not NULL."""
        return SqlColumn(f"({self.text} IS NOT NULL)")

    def eqNullSafe(self, other: Any) -> SqlColumn:  # noqa: N802 - PySpark's name
        """Whether two values are the same, NULL and NULL included."""
        return self._with("IS NOT DISTINCT FROM", other)

    def bitwiseAND(self, other: Any) -> SqlColumn:  # noqa: N802 - PySpark's name
        """The bits that both have."""
        return self._with("&", other)

    def bitwiseXOR(self, other: Any) -> SqlColumn:  # noqa: N802 - PySpark's name
        """The bits that one of the two has."""
        return SqlColumn(f"xor({self.text}, {literal(other).text})")

    def __getitem__(self, index: int) -> SqlColumn:
        return SqlColumn(f"({self.text})[{index + 1}]")

    def __eq__(self, other: Any) -> SqlColumn:  # type: ignore[override]
        return self._with("=", other)

    def __ne__(self, other: Any) -> SqlColumn:  # type: ignore[override]
        return self._with("<>", other)

    def __lt__(self, other: Any) -> SqlColumn:
        return self._with("<", other)

    def __le__(self, other: Any) -> SqlColumn:
        return self._with("<=", other)

    def __gt__(self, other: Any) -> SqlColumn:
        return self._with(">", other)

    def __ge__(self, other: Any) -> SqlColumn:
        return self._with(">=", other)

    def __and__(self, other: Any) -> SqlColumn:
        return self._with("AND", other)

    def __or__(self, other: Any) -> SqlColumn:
        return self._with("OR", other)

    def __invert__(self) -> SqlColumn:
        return SqlColumn(f"(NOT {self.text})")

    def __add__(self, other: Any) -> SqlColumn:
        return self._with("+", other)

    def __radd__(self, other: Any) -> SqlColumn:
        return literal(other)._with("+", self)

    def __sub__(self, other: Any) -> SqlColumn:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> SqlColumn:
        return literal(other)._with("-", self)

    def __mul__(self, other: Any) -> SqlColumn:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> SqlColumn:
        return literal(other)._with("*", self)

    def __truediv__(self, other: Any) -> SqlColumn:
        return self._with("/", other)

    def __mod__(self, other: Any) -> SqlColumn:
        return self._with("%", other)

    def _with(self, operator: str, other: Any) -> SqlColumn:
        return SqlColumn(f"({self.text} {operator} {literal(other).text})")


class SqlCase(SqlColumn):
    """What `when` begins: conditions in order, the value of the first that is true."""

    def __init__(self, branches: Sequence[tuple[SqlColumn, Any]]) -> None:
        self._branches = tuple(branches)
        super().__init__(self._write())

    def when(self, condition: SqlColumn, value: Any) -> SqlCase:
        """Add a condition."""
        return SqlCase((*self._branches, (condition, value)))

    def otherwise(self, value: Any) -> SqlColumn:
        """Say what the value is where no condition is true; NULL without it."""
        return SqlColumn(self._write(f" ELSE {literal(value).text}"))

    def _write(self, last: str = "") -> str:
        branches = [f"WHEN {condition.text} THEN {literal(value).text}" for condition, value in self._branches]
        return f"(CASE {' '.join(branches)}{last} END)"


class SqlWindow:
    """The rows that an aggregate looks at: PySpark's `Window`, and what its methods give."""

    unboundedPreceding: Final = -(1 << 63)  # noqa: N815 - PySpark's name

    def __init__(self, partition: str = "", order: str = "", rows: str = "") -> None:
        self._partition = partition
        self._order = order
        self._rows = rows

    @property
    def text(self) -> str:
        """What stands between the parentheses of OVER."""
        return " ".join(part for part in (self._partition, self._order, self._rows) if part)

    @staticmethod
    def partitionBy(*columns: Any) -> SqlWindow:  # noqa: N802 - PySpark's name
        """Rows with the same values of these columns."""
        return SqlWindow(f"PARTITION BY {', '.join(column.text for column in to_columns(columns))}")

    def orderBy(self, *columns: Any) -> SqlWindow:  # noqa: N802 - PySpark's name
        """Put them in order; an aggregate then looks at those up to the row itself."""
        return SqlWindow(self._partition, order_by(columns), self._rows)

    def rowsBetween(self, start: int, end: int) -> SqlWindow:  # noqa: N802 - PySpark's name
        """Look from the first of them to `end`, which is 0 for the row itself and negative for rows before it."""
        if start != self.unboundedPreceding or end > 0:
            raise NotImplementedError(f"no analysis asks for such rows: start={start} end={end}")
        last = f"{-end} PRECEDING" if end else "CURRENT ROW"
        return SqlWindow(self._partition, self._order, f"ROWS BETWEEN UNBOUNDED PRECEDING AND {last}")


def quote(name: str) -> str:
    """Write a name of a column, or the path to a field of it, such as "a.position" or "a.*"."""
    parts = ["*" if part == "*" else '"{}"'.format(part.replace('"', '""')) for part in name.split(".")]
    return ".".join(parts)


def column(name: str) -> SqlColumn:
    """A column, or a field of one, by its name."""
    last = name.rpartition(".")[2]
    return SqlColumn(quote(name), "" if last == "*" else last)


def literal(value: Any) -> SqlColumn:
    """A value as it is; a column stays one."""
    if isinstance(value, SqlColumn):
        return value
    if value is None:
        return SqlColumn("NULL")
    if isinstance(value, bool):
        return SqlColumn("TRUE" if value else "FALSE")
    if isinstance(value, int):
        return SqlColumn(str(value) if 0 <= value < _FULL_INT32 else f"CAST({value} AS BIGINT)")
    if isinstance(value, float):
        return SqlColumn(f"CAST({value!r} AS DOUBLE)")
    if isinstance(value, bytes):
        return SqlColumn("CAST('{}' AS BLOB)".format("".join(f"\\x{byte:02X}" for byte in value)))
    return SqlColumn("'{}'".format(str(value).replace("'", "''")))


def to_columns(given: Iterable[Any]) -> list[SqlColumn]:
    """Take texts for the names of columns."""
    return [to_column(one) for one in given]


def to_column(given: Any) -> SqlColumn:
    """Take a text for the name of a column."""
    return column(given) if isinstance(given, str) else literal(given)


def order_by(columns: Iterable[Any]) -> str:
    """Write ORDER BY with these columns."""
    return f"ORDER BY {', '.join(one.ordered for one in to_columns(columns))}"
