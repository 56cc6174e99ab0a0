"""PySpark's functions, as many as the report's analyses call: each makes an expression of DuckDB's SQL.

Names and arguments are PySpark's: `pyspark.sql.functions` documents them. Most are a function of DuckDB under another
name (`DIRECT`); the docstrings of the others say what would not be the same.
"""

# ruff: noqa: A001 - the names are PySpark's

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from .columns import SqlCase, SqlColumn, literal, to_column, to_columns
from .columns import column as col
from .columns import literal as lit

__all__ = ["DIRECT", "MACROS", "col", "lit"]  # and what is defined below

MACROS: Final = (
    "CREATE TEMP MACRO byte_count(x BLOB) AS octet_length(x), (x VARCHAR) AS strlen(x)",
    "CREATE TEMP MACRO as_text(x BLOB) AS coalesce(TRY(decode(x)), CAST(x AS VARCHAR)), (x) AS CAST(x AS VARCHAR)",
    "CREATE TEMP MACRO shiftleft(x, bits) AS x << bits",
    "CREATE TEMP MACRO hex_to_long(x) AS CAST(CAST(TRY_CAST('0x' || x AS UBIGINT) AS BIT) AS BIGINT)",
)
"""What is asked of a connection before any expression of this module is."""

DIRECT: Final[Mapping[str, str]] = {
    **{
        name: name for name in ("avg", "bit_xor", "bool_or", "coalesce", "count", "crc32", "crc32c", "first", "flatten")
    },
    **{
        name: name for name in ("greatest", "hex", "lag", "lead", "least", "max", "min", "reverse", "row_number", "sum")
    },
    "length": "byte_count",
    "max_by": "arg_max_null",  # the other one passes over rows whose value is NULL
    "min_by": "arg_min_null",
    "size": "len",
    "unix_micros": "epoch_us",
    "xxhash64": "hash",  # another hash of 64 bits: no analysis says which one it is
}
"""DuckDB's functions, and macros of ours, by PySpark's names; `frames` makes crc32 and crc32c."""


def __getattr__(name: str) -> Callable[..., SqlColumn]:
    if name not in DIRECT:
        raise AttributeError(f"the report's engine has no function {name!r}: expected one of this module's")
    return partial(_call, DIRECT[name])


def _call(name: str, *given: Any) -> SqlColumn:
    return SqlColumn(f"{name}({', '.join(one.text for one in to_columns(given))})")


def broadcast(frame: Any) -> Any:
    """A hint to Spark."""
    return frame


def expr(text: str) -> SqlColumn:
    """SQL that both understand."""
    return SqlColumn(f"({text})")


def when(condition: SqlColumn, value: Any) -> SqlCase:
    """Begin CASE; `SqlCase` goes on."""
    return SqlCase([(condition, value)])


def desc(given: Any) -> SqlColumn:
    """The greatest first."""
    one = to_column(given)
    return SqlColumn(one.text, one.name, is_descending=True)


def floor(given: Any) -> SqlColumn:
    """A whole number, where DuckDB's is a float."""
    return SqlColumn(f"CAST(floor({to_column(given).text}) AS BIGINT)")


def pmod(dividend: Any, divisor: Any) -> SqlColumn:
    """The remainder, which is never negative."""
    a, b = (one.text for one in to_columns((dividend, divisor)))
    return SqlColumn(f"((({a} % {b}) + {b}) % {b})")


def try_divide(left: Any, right: Any) -> SqlColumn:
    """NULL where the divisor is 0; DuckDB gives infinity."""
    a, b = (one.text for one in to_columns((left, right)))
    return SqlColumn(f"({a} / nullif({b}, 0))")


def shiftleft(given: Any, bits: int) -> SqlColumn:
    """What leaves the 64 bits is lost; DuckDB's own refuses that."""
    one = f"CAST({to_column(given).text} AS BIGINT)"
    if bits == 0:
        return SqlColumn(one)
    rest = f"(({one} & {(1 << (63 - bits)) - 1}) << {bits})"
    sign = f"CAST({-(1 << 63)} AS BIGINT)"
    return SqlColumn(f"(CASE WHEN {one} & {1 << (63 - bits)} = 0 THEN {rest} ELSE {rest} + {sign} END)")


def shiftright(given: Any, bits: int) -> SqlColumn:
    """The sign comes in from the left."""
    return SqlColumn(f"(CAST({to_column(given).text} AS BIGINT) >> {bits})")


def substr(given: Any, position: Any, count: Any) -> SqlColumn:
    """A part of bytes or of a text, counted from 1; what lies behind the end is left out."""
    x, p, n = (one.text for one in to_columns((given, position, count)))
    return SqlColumn(f"({x})[{p}:{p} + {n} - 1]")


def regexp_replace(given: Any, pattern: str, replacement: str) -> SqlColumn:
    """Replace all matches; groups are $1, $2 in the replacement."""
    return _call("regexp_replace", given, literal(pattern), literal(replacement.replace("$", "\\")), literal("g"))


def conv(given: Any, from_base: int, to_base: int) -> SqlColumn:
    """Read a number of up to 64 bits in hexadecimal, whose sign is the highest of them."""
    if (from_base, to_base) != (16, -10):
        raise NotImplementedError(f"no analysis asks for this: from_base={from_base} to_base={to_base}")
    return _call("hex_to_long", given)


def concat(*given: Any) -> SqlColumn:
    """Texts or lists, one after the other; NULL if one of them is, which DuckDB's function of this name passes over."""
    return SqlColumn(f"({' || '.join(one.text for one in to_columns(given))})")


def concat_ws(separator: str, *given: Any) -> SqlColumn:
    """Texts with a separator between them."""
    return _call("concat_ws", literal(separator), *given)


def rpad(given: Any, count: Any, pad: Any) -> SqlColumn:
    """Bytes, with others behind them up to a length; what is longer stays so."""
    x, n, p = (one.text for one in to_columns((given, count, pad)))
    return SqlColumn(f"({x} || repeat({p}, greatest({n} - byte_count({x}), 0)))")


def window(given: Any, interval: str) -> SqlColumn:
    """The interval that a time lies in, counted from 1970 on, as a struct of start and end."""
    length = f"INTERVAL {literal(interval).text}"
    begin = f"time_bucket({length}, {to_column(given).text}, TIMESTAMP '1970-01-01')"
    return SqlColumn(f"list_transform([{begin}], lambda b: {{'start': b, 'end': b + {length}}})[1]", "window")


def struct(*given: Any) -> SqlColumn:
    """A struct whose fields have the columns' names."""
    fields = [f"{literal(one.name).text}: {one.text}" for one in to_columns(given)]
    return SqlColumn(f"{{{', '.join(fields)}}}")


def array(*given: Any) -> SqlColumn:
    """A list of values."""
    return SqlColumn(f"[{', '.join(one.text for one in to_columns(given))}]")


def array_compact(given: Any) -> SqlColumn:
    """A list without its NULLs."""
    return SqlColumn(f"list_filter({to_column(given).text}, lambda e: e IS NOT NULL)")


def sort_array(given: Any) -> SqlColumn:
    """A list in order."""
    return SqlColumn(f"list_sort({to_column(given).text}, 'ASC', 'NULLS FIRST')")


def slice(given: Any, start: int, count: int) -> SqlColumn:
    """A part of a list, counted from 1."""
    return SqlColumn(f"({to_column(given).text})[{start}:{start + count - 1}]")


def inline(given: Any) -> SqlColumn:
    """A row for each struct of a list, a column for each field."""
    return SqlColumn(f"unnest({to_column(given).text}, max_depth := 2)")


def aggregate(given: Any, initial: Any, merge: Callable[[Any, Any], SqlColumn]) -> SqlColumn:
    """Go through a list, with what there is so far and the next one."""
    merged = merge(SqlColumn("so_far"), SqlColumn("one")).text
    return SqlColumn(f"list_reduce({to_column(given).text}, lambda so_far, one: {merged}, {to_column(initial).text})")


def count_if(given: Any) -> SqlColumn:
    """How many rows a condition is true of."""
    return SqlColumn(f"count(*) FILTER (WHERE {to_column(given).text})")


def count_distinct(given: Any) -> SqlColumn:
    """How many values there are."""
    return SqlColumn(f"count(DISTINCT {to_column(given).text})")


def collect_list(given: Any) -> SqlColumn:
    """All values but NULL, an empty list if there are none."""
    one = to_column(given).text
    return SqlColumn(f"coalesce(list({one}) FILTER (WHERE {one} IS NOT NULL), [])")


def percentile_approx(given: Any, percentages: Sequence[float], accuracy: int) -> SqlColumn:
    """The exact ones: `accuracy` says how wrong they may be. Eight bytes of memory for each value."""
    del accuracy
    return SqlColumn(f"quantile_disc({to_column(given).text}, [{', '.join(map(str, percentages))}])")


def last(given: Any, ignorenulls: bool = False) -> SqlColumn:
    """The last value of a window."""
    return SqlColumn(f"last_value({to_column(given).text}{' IGNORE NULLS' if ignorenulls else ''})")
