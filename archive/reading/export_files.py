"""One file of an export while it is written: Parquet and Arrow IPC from record batches, JSON lines without either."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

from ...service_api.types import TimeUnit
from ...service_api.wire.frame import FLAG_BEGIN, HEADER_LENGTH, TYPE_DATA, UNFRAGMENTED
from ...service_api.wire.log.fields import read_log_fields
from ..files.reader import Frame, MessageReader
from ..format.descriptor import RecordingDescriptor
from ..log.log_file import LogFile
from ..log.member_directory import ArchiveLocation
from .frame_batches import FrameSelection, ReadProblem, find_problem, make_schema, read_batches
from .frame_columns import COLUMNS, ColumnType, Encoding, choose_columns

OnProblem = Callable[[ReadProblem], None]
OnProgress = Callable[[int], None]

ROW_GROUP_BYTES: Final = 64 << 20
"""How much of a table is gathered before it is written: readers skip whole groups, so many small ones cost more."""

_PROGRESS_INTERVAL_ROWS: Final = 4096


class PartFile(Protocol):
    """Takes the rows of one part of a recording."""

    row_count: int

    def write_part(
        self,
        location: ArchiveLocation,
        descriptor: RecordingDescriptor,
        selection: FrameSelection,
        on_problem: OnProblem,
        on_progress: OnProgress,
    ) -> None:
        """Write all rows of the selection; tell what ended it too early, and the position now and then."""

    def close(self) -> None:
        """End the file."""


def open_part_file(path: Path, kind: str, columns: Sequence[str] | None, time_unit: TimeUnit) -> PartFile:
    """Begin a file of this kind: "parquet", "arrow" or "jsonl".

    Raises:
        ConfigurationError: there is no such column, or pyarrow is needed and not there.
        OSError: the file cannot be made.
    """
    if kind == "jsonl":
        return _JsonLinesFile(path, choose_columns(columns))
    return _ArrowFile(path, kind, make_schema(columns, time_unit))


class _ArrowFile:
    """Batches of a pyarrow schema, gathered into tables of a good size."""

    def __init__(self, path: Path, kind: str, schema: Any) -> None:
        self.row_count = 0
        self._schema = schema
        self._writer = open_table_writer(path, kind, schema)
        self._pending: list[Any] = []
        self._pending_bytes = 0

    def write_part(
        self,
        location: ArchiveLocation,
        descriptor: RecordingDescriptor,
        selection: FrameSelection,
        on_problem: OnProblem,
        on_progress: OnProgress,
    ) -> None:
        for batch in read_batches(location, descriptor, selection, self._schema, on_problem, on_progress):
            self._pending.append(batch)
            self._pending_bytes += batch.nbytes
            self.row_count += batch.num_rows
            if self._pending_bytes >= ROW_GROUP_BYTES:
                self._flush()

    def close(self) -> None:
        if self._pending:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        table = pa.Table.from_batches(self._pending, schema=self._schema).combine_chunks()
        self._writer.write_table(table)
        self._pending.clear()
        self._pending_bytes = 0


def open_table_writer(path: Path, kind: str, schema: Any) -> Any:
    """Begin a file of this kind, "parquet" or "arrow", for tables of a `pyarrow.Schema`; the caller closes it.

    Raises:
        OSError: the file cannot be made.
    """
    return _open_parquet(path, schema) if kind == "parquet" else _open_ipc(path, schema)


def _open_parquet(path: Path, schema: Any) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    names = [name for name in schema.names if name in COLUMNS]
    # Spark reads no nanoseconds.
    has_nanoseconds = any(field.type == pa.timestamp("ns", tz="UTC") for field in schema)
    return parquet.ParquetWriter(
        path,
        schema,
        compression="zstd",
        coerce_timestamps="us" if has_nanoseconds else None,
        allow_truncated_timestamps=True,
        use_dictionary=[name for name in names if COLUMNS[name].encoding is Encoding.DICTIONARY],
        column_encoding={n: "DELTA_BINARY_PACKED" for n in names if COLUMNS[n].encoding is Encoding.DELTA},
    )


def _open_ipc(path: Path, schema: Any) -> Any:
    from pyarrow import ipc

    return ipc.new_file(path, schema, options=ipc.IpcWriteOptions(compression="zstd"))


class _JsonLinesFile:
    """One object a line: payloads as hex, timestamps as the numbers that they are in the log."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        self.row_count = 0
        self._columns = [COLUMNS[name] for name in columns]
        self._file: TextIO = path.open("w", encoding="ascii")

    def write_part(
        self,
        location: ArchiveLocation,
        descriptor: RecordingDescriptor,
        selection: FrameSelection,
        on_problem: OnProblem,
        on_progress: OnProgress,
    ) -> None:
        reader = LogFile(location, descriptor).reader(
            selection.start_position, stop_position=selection.stop_position, checksummed=selection.checksums
        )
        bound = selection.bound_position
        frames = _up_to(iter(reader), bound)
        for frame in _whole_messages(frames) if selection.reassemble else frames:
            self._file.write(json.dumps(self._row(descriptor.recording_id, frame)) + "\n")
            self.row_count += 1
            if self.row_count % _PROGRESS_INTERVAL_ROWS == 0:
                on_progress(reader.position)
        is_at_bound = bound is not None and reader.position >= bound
        problem = None if is_at_bound else find_problem(descriptor, selection, reader.ending())
        if problem is not None:
            on_problem(problem)

    def close(self) -> None:
        self._file.close()

    def _row(self, recording_id: int, frame: Frame) -> dict[str, Any]:
        begins = frame.type == TYPE_DATA and frame.flags & FLAG_BEGIN
        fields = read_log_fields(frame.payload if begins else b"")
        values: dict[str, Any] = {"recording_id": recording_id} | frame._asdict() | fields._asdict()
        return {
            column.name: values[column.name].hex() if column.type is ColumnType.BINARY else values[column.name]
            for column in self._columns
        }


def _up_to(frames: Iterator[Frame], bound_position: int | None) -> Iterator[Frame]:
    for frame in frames:
        if bound_position is not None and frame.end_position > bound_position:
            return
        yield frame


def _whole_messages(frames: Iterator[Frame]) -> Iterator[Frame]:
    """Give each message as the frame that would have been written had the mtu been long enough."""
    begun: list[Frame] = []

    def noting() -> Iterator[Frame]:
        for frame in frames:
            if frame.type == TYPE_DATA and frame.flags & FLAG_BEGIN:
                begun[:] = [frame]
            yield frame

    for message in MessageReader(noting()):
        length = HEADER_LENGTH + len(message.payload)
        yield begun[0]._replace(frame_length=length, flags=UNFRAGMENTED, payload=message.payload)
