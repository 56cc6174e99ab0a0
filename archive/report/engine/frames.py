"""Queries of analyses on DuckDB, which means what Spark does where the two differ."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
from duckdb.func import PythonUDFType

from ....service_api.wire.checksum import KNOWN_CHECKSUMS, ChecksumKind
from ...spark.analyses.sql import EngineFrame

_MACROS: Final = (
    "aggregate(list, initial, merge) AS list_reduce(list, merge, initial)",
    f"`array`() AS [], {', '.join(f'({names}) AS [{names}]' for names in ('a', 'a, b', 'a, b, c'))}",
    "collect_list(x) AS coalesce(list(x) FILTER (WHERE x IS NOT NULL), [])",
    "conv(digits, from_base, to_base) AS CAST(CAST(TRY_CAST('0x' || digits AS UBIGINT) AS BIT) AS BIGINT)",
    "element_at(list, place) AS list[place]",
    "explode(list) AS unnest(list)",
    "length(x BLOB) AS octet_length(x), (x VARCHAR) AS strlen(x)",
    "max_by(x, y) AS arg_max_null(x, y)",  # the other one passes over rows whose value is NULL
    "min_by(x, y) AS arg_min_null(x, y)",
    "percentile_approx(x, shares, accuracy) AS quantile_disc(x, shares)",  # exact: eight bytes of memory for each value
    "reverse(x BLOB) AS unhex(regexp_replace(system.main.reverse(hex(x)), '(.)(.)', '\\2\\1', 'g'))",
    "rpad(x, length, pad) AS x || repeat(pad, greatest(length - octet_length(x), 0))",
    "sequence(first, last, step) AS generate_series(first, last, step)",
    "slice(list, start, length) AS list[start:start + length - 1]",
    "sort_array(list) AS list_sort(list, 'ASC', 'NULLS FIRST')",
    "string(x BLOB) AS coalesce(TRY(decode(x)), CAST(x AS VARCHAR))",
    "substr(x, start, length) AS x[start:start + length - 1]",
    "transform(list, change) AS list_transform(list, change)",
    "unix_micros(time) AS epoch_us(time)",
    "window_begin(time, width) AS time_bucket(CAST(width AS INTERVAL), time, TIMESTAMP '1970-01-01')",
    """`window`(time, width) AS {
        'start': window_begin(time, width), 'end': window_begin(time, width) + CAST(width AS INTERVAL)
    }""",
    "xxhash64(x) AS hash(x)",  # another hash of 64 bits: no analysis says which one it is
)
"""Functions of Spark that DuckDB has not, or that mean something else there."""

_STRUCT: Final = re.compile(r"\bstruct\(([\w\s,]+)\)")
_LAMBDA: Final = re.compile(r"(?:\((\w+(?:, \w+)*)\)|\b(\w+)) -> ")


class SqlDatabase:
    """A database of this process: in memory, and in files of a directory where it needs more."""

    def __init__(self, directory: Path) -> None:
        self.connection = duckdb.connect(config={"temp_directory": str(directory)})
        self.connection.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        for macro in _MACROS:
            self.connection.execute(f"CREATE TEMP MACRO {macro}")
        for kind in KNOWN_CHECKSUMS:
            compute = functools.partial(_compute, kind)
            self.connection.create_function(kind.label, compute, ["BLOB"], "BIGINT", type=PythonUDFType.ARROW)
        self._numbers = count()
        self._failed: list[Exception] = []

    def close(self) -> None:
        """Drop everything."""
        self.connection.close()

    def scan(self, schema: Any, read_batches: Callable[[], Iterator[Any]]) -> SqlFrame:
        """Make a frame that is read by each query, and again for each time that the query names it.

        `read_batches` gives record batches of this `pyarrow.Schema`. What it raises, the query raises.
        """
        name = self.new_name()
        self.connection.register(name, _Scan(schema, read_batches, self._failed))
        return SqlFrame(self, f"SELECT * FROM {name}")

    def new_name(self) -> str:
        """Return a name for a table that is not there yet."""
        return f"table_{next(self._numbers)}"

    def execute(self, sql: str) -> Any:
        """Run a statement; return a `pyarrow.Table` of its rows, or None where it has none.

        Raises:
            Exception: the reader of a scan raised it.
        """
        self._failed.clear()
        try:
            found: Any = self.connection.sql(sql)  # None after a statement without rows, which its types deny
            return None if found is None else found.to_arrow_table()
        except duckdb.Error as error:
            if self._failed:
                raise self._failed[0] from error
            raise


class SqlFrame(EngineFrame):
    """A query of DuckDB; nothing runs before its rows are asked for."""

    def __init__(self, database: SqlDatabase, sql: str) -> None:
        self._database = database
        self._sql = sql

    def __repr__(self) -> str:
        return f"<SqlFrame {' '.join(self.columns)}>"

    @functools.cached_property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        described = self._database.execute(f"DESCRIBE {self._sql}")
        return [str(name) for name in described["column_name"].to_pylist()]

    def sql(self, text: str, frames: Mapping[str, SqlFrame]) -> SqlFrame:
        """Return the query of a text of Spark's SQL; see `EngineFrame`."""
        text = _STRUCT.sub(_write_struct, text)
        text = _LAMBDA.sub(lambda found: f"lambda {found[1] or found[2]}: ", text)
        return SqlFrame(self._database, text.format_map({name: f"({frame._sql})" for name, frame in frames.items()}))

    def limit(self, num: int) -> SqlFrame:
        """Keep the first rows."""
        return SqlFrame(self._database, f"{self._sql} LIMIT {num}")

    def persist(self) -> SqlFrame:
        """Run the query now and keep its rows."""
        name = self._database.new_name()
        self._database.execute(f"CREATE TEMP TABLE {name} AS {self._sql}")
        return SqlTable(self._database, name)

    def unpersist(self) -> None:
        """Do nothing: no rows are kept."""

    def collect(self) -> list[dict[str, Any]]:
        """Run the query; return its rows."""
        return list(self._collect().to_pylist())

    def toPandas(self) -> Any:  # noqa: N802 - PySpark's name
        """Run the query; return a `pandas.DataFrame`."""
        return self._collect().to_pandas()

    def _collect(self) -> Any:
        """Run the query; return a `pyarrow.Table`, in which sums of integers are integers."""
        found = self._database.execute(self._sql)
        fields = [field.with_type(pa.int64()) if pa.types.is_decimal(field.type) else field for field in found.schema]
        return found.cast(pa.schema(fields))


class SqlTable(SqlFrame):
    """Rows that are kept."""

    def __init__(self, database: SqlDatabase, name: str) -> None:
        super().__init__(database, f"SELECT * FROM {name}")
        self._name = name

    def unpersist(self) -> None:
        """Drop the rows."""
        self._database.execute(f"DROP TABLE {self._name}")


class _Scan:
    """Gives a stream of record batches each time that DuckDB asks for one, and keeps what its reader raises."""

    def __init__(self, schema: Any, read_batches: Callable[[], Iterator[Any]], failed: list[Exception]) -> None:
        self._schema = schema
        self._read_batches = read_batches
        self._failed = failed

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._watch())
        return reader.__arrow_c_stream__(requested_schema)

    def _watch(self) -> Iterator[Any]:
        try:
            yield from self._read_batches()
        except Exception as error:
            self._failed.append(error)  # DuckDB makes a text of it
            raise


def _write_struct(found: re.Match[str]) -> str:
    """Write a struct of columns, in braces that are not those of a frame."""
    fields = ", ".join(f"'{name.strip()}': {name.strip()}" for name in found[1].split(","))
    return f"{{{{{fields}}}}}"


def _compute(kind: ChecksumKind, payloads: Any) -> Any:
    values = [None if payload is None else kind.compute(payload) for payload in payloads.to_pylist()]
    return pa.array(values, pa.int64())
