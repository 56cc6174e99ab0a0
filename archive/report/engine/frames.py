"""Tables and queries of DuckDB with the methods of PySpark's `DataFrame`: each step is a query over the one before."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import PythonUDFType

from ....service_api.wire.checksum import KNOWN_CHECKSUMS, ChecksumKind
from .columns import SqlColumn, order_by, quote, to_column, to_columns
from .functions import MACROS


class SqlDatabase:
    """A database of this process: in memory, and in files of a directory where it needs more."""

    def __init__(self, directory: Path) -> None:
        self.connection = duckdb.connect(config={"temp_directory": str(directory)})
        for macro in MACROS:
            self.connection.execute(macro)
        for kind in KNOWN_CHECKSUMS:
            compute = functools.partial(_compute, kind)
            self.connection.create_function(kind.label, compute, ["BLOB"], "BIGINT", type=PythonUDFType.ARROW)
        self._numbers = count()
        self._scans: dict[str, Callable[[], Any]] = {}

    def close(self) -> None:
        """Drop everything."""
        self.connection.close()

    def create_table(self, batches: Any) -> SqlFrame:
        """Keep the rows of a `pyarrow.RecordBatchReader`."""
        return self.scan(lambda: batches).persist()

    def scan(self, open_batches: Callable[[], Any]) -> SqlFrame:
        """Make a frame that is read by each query, and again for each time that the query names it.

        `open_batches` gives a `pyarrow.RecordBatchReader`. What it raises, the query raises.
        """
        name = f"scan_{next(self._numbers)}"
        self._scans[name] = open_batches
        return SqlFrame(self, f"SELECT * FROM <{name}>")

    def new_name(self) -> str:
        """A name for a table that there is not yet."""
        return f"table_{next(self._numbers)}"

    def query(self, sql: str) -> Any:
        """Run a query; gives a `pyarrow.Table`.

        Raises:
            Exception: what the reader of a scan raised.
        """
        with self._opened(sql) as opened:
            return self.connection.sql(opened).to_arrow_table()

    def execute(self, sql: str) -> None:
        """Run a statement that has no rows.

        Raises:
            Exception: what the reader of a scan raised.
        """
        with self._opened(sql) as opened:
            self.connection.execute(opened)

    @contextlib.contextmanager
    def _opened(self, sql: str) -> Iterator[str]:
        """Open what a statement scans, once for each time that it names it: a reader is at its end after one pass."""
        failed: list[Exception] = []
        names: list[str] = []
        for name, open_batches in self._scans.items():
            while f"<{name}>" in sql:
                names.append(f"opened_{next(self._numbers)}")
                sql = sql.replace(f"<{name}>", names[-1], 1)
                self.connection.register(names[-1], _watched(open_batches(), failed))
        try:
            yield sql
        except duckdb.Error as error:
            if failed:
                raise failed[0] from error
            raise
        finally:
            for name in names:
                self.connection.unregister(name)


class SqlFrame:
    """A query; nothing runs before its rows are asked for."""

    def __init__(
        self, database: SqlDatabase, sql: str, names: Callable[[], list[str]] | None = None, *, order: str = ""
    ) -> None:
        self._database = database
        self._sql = sql
        self._names = names
        self._order = order
        self._table: str | None = None

    def __repr__(self) -> str:
        return f"<SqlFrame {' '.join(self.columns)}>"

    @functools.cached_property
    def columns(self) -> list[str]:
        """The names of the columns, in order: DuckDB needs up to a second to find them in a long query."""
        return list(self._types) if self._names is None else self._names()

    @property
    def schema(self) -> Mapping[str, Any]:
        """The type of each column, in DuckDB's words, as the attribute dataType."""
        return {name: _SqlField(of_type) for name, of_type in self._types.items()}

    @functools.cached_property
    def _types(self) -> Mapping[str, str]:
        rows = self._database.query(f"DESCRIBE {self._sql}").select([0, 1]).to_pylist()
        return {str(name): str(of_type) for name, of_type in (row.values() for row in rows)}

    def select(self, *given: Any) -> SqlFrame:
        """Compute these columns of each row."""
        chosen = to_columns(given)

        def names() -> list[str]:
            return [name for one in chosen for name in ([one.name] if one.name else self.columns)]

        is_known = all(one.name or one.text == "*" for one in chosen)
        return self._from(", ".join(one.named for one in chosen), names=names if is_known else None)

    def where(self, condition: SqlColumn | str) -> SqlFrame:
        """Keep the rows of which it is true."""
        text = condition if isinstance(condition, str) else condition.text
        return self._from("*", f" WHERE {text}", lambda: self.columns)

    def withColumn(self, name: str, value: SqlColumn) -> SqlFrame:  # noqa: N802 - PySpark's name
        """Add a column, or replace the one of that name."""
        return self.withColumns({name: value})

    def withColumns(self, values: Mapping[str, SqlColumn]) -> SqlFrame:  # noqa: N802 - PySpark's name
        """Add columns, or replace those of these names; none sees another."""
        kept = [name for name in self.columns if name not in values]
        return self.select(*kept, *(value.alias(name) for name, value in values.items()))

    def withColumnRenamed(self, old: str, new: str) -> SqlFrame:  # noqa: N802 - PySpark's name
        """Give a column another name."""
        return self.select(*(to_column(name).alias(new if name == old else name) for name in self.columns))

    def drop(self, *names: str) -> SqlFrame:
        """Leave columns out."""
        return self.select(*(name for name in self.columns if name not in names))

    def groupBy(self, *given: Any) -> SqlGroups:  # noqa: N802 - PySpark's name
        """Put rows together that have the same values of these."""
        return SqlGroups(self, to_columns(given))

    def agg(self, *given: SqlColumn) -> SqlFrame:
        """Put all rows together."""
        return SqlGroups(self, []).agg(*given)

    def join(self, other: SqlFrame, on: Any, how: str) -> SqlFrame:
        """Join by columns of these names, which come once and first, or where a condition is true."""
        sides = f"({self._sql}) {how.replace('_outer', '').upper()} JOIN ({other._sql})"
        if isinstance(on, SqlColumn):
            return SqlFrame(
                self._database, f"SELECT * FROM {sides} ON {on.text}", lambda: [*self.columns, *other.columns]
            )
        keys = [on] if isinstance(on, str) else list(on)
        names = [*keys, *(name for name in (*self.columns, *other.columns) if name not in keys)]
        chosen, using = (", ".join(map(quote, chosen)) for chosen in (names, keys))
        return SqlFrame(self._database, f"SELECT {chosen} FROM {sides} USING ({using})", lambda: names)

    def unionByName(self, other: SqlFrame) -> SqlFrame:  # noqa: N802 - PySpark's name
        """The rows of both, which have the same columns."""
        return SqlFrame(self._database, f"({self._sql}) UNION ALL BY NAME ({other._sql})", lambda: self.columns)

    def orderBy(self, *given: Any) -> SqlFrame:  # noqa: N802 - PySpark's name
        """Put the rows in order, as long as nothing but `limit` follows."""
        return SqlFrame(self._database, self._sql, lambda: self.columns, order=f" {order_by(given)}")

    def limit(self, limit: int) -> SqlFrame:
        """Keep the first rows."""
        sql = f"SELECT * FROM ({self._sql}){self._order} LIMIT {limit}"
        return SqlFrame(self._database, sql, lambda: self.columns, order=self._order)

    def persist(self) -> SqlFrame:
        """Run the query now and keep its rows."""
        name = self._database.new_name()
        self._database.execute(f"CREATE TEMP TABLE {name} AS {self._sql}")
        kept = SqlFrame(self._database, f"SELECT * FROM {name}", lambda: self.columns)
        kept._table = name
        return kept

    def unpersist(self) -> None:
        """Drop the rows that `persist` kept."""
        if self._table is not None:
            self._database.execute(f"DROP TABLE {self._table}")

    def toPandas(self) -> Any:  # noqa: N802 - PySpark's name
        """Run the query; gives a `pandas.DataFrame`."""
        return self._collect().to_pandas()

    def first(self) -> SqlRow:
        """Run the query; gives its first row."""
        return self.limit(1).collect()[0]

    def collect(self) -> list[SqlRow]:
        """Run the query; gives its rows."""
        return [SqlRow(row) for row in self._collect().to_pylist()]

    def _collect(self) -> Any:
        """Run the query; gives a `pyarrow.Table`, in which sums of integers are integers."""
        found = self._database.query(f"SELECT * FROM ({self._sql}){self._order}")
        fields = [field.with_type(pa.int64()) if pa.types.is_decimal(field.type) else field for field in found.schema]
        return found.cast(pa.schema(fields))

    def _from(self, items: str, rest: str = "", names: Callable[[], list[str]] | None = None) -> SqlFrame:
        return SqlFrame(self._database, f"SELECT {items} FROM ({self._sql}){rest}", names)


class SqlGroups:
    """What `groupBy` gives."""

    def __init__(self, frame: SqlFrame, keys: Sequence[SqlColumn]) -> None:
        self._frame = frame
        self._keys = keys

    def agg(self, *given: SqlColumn) -> SqlFrame:
        """Compute these of each group, after what the groups have in common."""
        chosen = [*self._keys, *given]
        rest = f" GROUP BY {', '.join(str(place) for place, _ in enumerate(self._keys, 1))}" if self._keys else ""
        return self._frame._from(", ".join(one.named for one in chosen), rest, lambda: [one.name for one in chosen])


class SqlRow(dict[str, Any]):
    """A row by the names of its columns."""

    def asDict(self, recursive: bool = True) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """The same; structs are dictionaries."""
        del recursive
        return dict(self)


class _SqlField:
    """A column's type."""

    def __init__(self, of_type: str) -> None:
        self.dataType = of_type  # - PySpark's name


def _watched(reader: Any, failed: list[Exception]) -> Any:
    """Keep what a reader raises: DuckDB makes a text of it."""

    def watch() -> Iterator[Any]:
        try:
            yield from reader
        except Exception as error:
            failed.append(error)
            raise

    return pa.RecordBatchReader.from_batches(reader.schema, watch())


def _compute(kind: ChecksumKind, payloads: Any) -> Any:
    values = [None if payload is None else kind.compute(payload) for payload in payloads.to_pylist()]
    return pa.array(values, pa.int64())
