"""Logs, and what members logged, as tables of DuckDB: read as the data source of Spark reads them, in one process.

To type checkers a frame is what it stands for: PySpark's DataFrame.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa

from ....service_api.types import TimeUnit
from ...reading.frame_batches import ReadProblem
from ...reading.frame_columns import choose_columns
from ...reading.vector.columns import frame_schema
from ...spark.analyses.node_logs import NODE_LOG_FIELDS
from ...spark.analyses.sql import DataFrame
from ...spark.source.batch_reader import find_problems, read_partition
from ...spark.source.options import parse_options
from ...spark.source.partitions import plan_read
from ...spark.source.timestamps import MICROSECONDS
from .frames import SqlDatabase

_TIMES: Final = pa.timestamp("us")
"""Without a time zone, which all are in UTC: DuckDB asks for its extension ICU to compute with the others."""
_NODE_LOG_TYPES: Final = {"string": pa.string(), "int": pa.int32(), "long": pa.int64()}
_ROWS_AT_ONCE: Final = 1 << 16


def scan_log(database: SqlDatabase, path: str, options: Mapping[str, str]) -> DataFrame:
    """Make the frame of a log, which each query reads again; `options` are those of `aeron_archive`.

    What cannot be read is left out without a word: `list_problems` says what that is.
    """

    parsed = parse_options({**options, "path": path})
    columns = choose_columns(parsed.columns)
    schema = frame_schema(columns, time_unit=TimeUnit.MICROS)
    given = pa.schema([field.with_type(_TIMES) if field.type == MICROSECONDS else field for field in schema])

    def read() -> Iterator[Any]:
        for partition in plan_read(parsed, tuple(columns)).partitions:
            for batch in read_partition(partition, schema, _pass_over):
                yield batch.cast(given)

    return cast("DataFrame", database.scan(given, read))


def list_problems(path: str, options: Mapping[str, str]) -> list[ReadProblem]:
    """Check every frame of a log; list what a read of it leaves out.

    Raises:
        ConfigurationError: an option is wrong, or what it asks for is not there.
        ArchiveError: no such directory or recording.
        OSError: the disk or the store refused.
    """
    plan = plan_read(parse_options({**options, "path": path}), ("position",))
    found = list(plan.problems)
    for partition in plan.partitions:
        find_problems(partition, found.append)
    return found


def read_node_logs(database: SqlDatabase, paths: Sequence[Path]) -> DataFrame:
    """Read the JSON lines that members logged into a table, as `analyses.read_node_logs` does on Spark.

    Raises:
        OSError: a file cannot be read.
    """
    types = [(name, _NODE_LOG_TYPES[of_type]) for name, of_type in map(str.split, NODE_LOG_FIELDS)]
    fields = [(name, _TIMES if name == "timestamp" else of_type) for name, of_type in types]
    schema = pa.schema([*fields, ("file", pa.string()), ("line_number", pa.int64()), ("line", pa.string())])

    def read() -> Iterator[Any]:
        rows: list[dict[str, Any]] = []
        for file_number, path in enumerate(paths):
            with path.open(encoding="utf-8", errors="replace") as lines:
                for number, line in enumerate(lines, file_number << 32):
                    event = _parse_event(line)
                    if event is not None:
                        rows.append(event | {"file": path.name, "line_number": number, "line": line.rstrip("\n")})
                    if len(rows) == _ROWS_AT_ONCE:
                        yield pa.RecordBatch.from_pylist(rows, schema=schema)
                        rows = []
        yield pa.RecordBatch.from_pylist(rows, schema=schema)

    return cast("DataFrame", database.scan(schema, read).persist())


def _pass_over(problem: ReadProblem) -> None:
    pass


def _parse_event(line: str) -> dict[str, Any] | None:
    """Return the fields of a member's event that have a column; None for a line that is none."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    event = {name: _READERS[of_type](found.get(name)) for name, of_type in map(str.split, NODE_LOG_FIELDS)}
    if event["event"] is None or event["member_id"] is None:
        return None
    return event | {"timestamp": _parse_time(event["timestamp"])}


def _read_text(value: object) -> str | None:
    return value if isinstance(value, str) or value is None else json.dumps(value)


def _make_reader(bits: int) -> Callable[[object], int | None]:
    limit = 1 << (bits - 1)

    def read(value: object) -> int | None:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return value if is_whole and -limit <= value < limit else None  # type: ignore[operator, return-value]

    return read


_READERS: Final[Mapping[str, Callable[[object], Any]]] = {
    "string": _read_text,
    "int": _make_reader(32),
    "long": _make_reader(64),
}


def _parse_time(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)
