"""The messages of typed services as tables: a folder of Parquet or Arrow files for each class, with a column a field.

    Deposit/0.parquet     the commands of the class Deposit in recording 0, all versions of the class together
    Deposited/0.parquet   published events
    _export.json          that this is such an export, and its files

Columns are those of a message in the log, then the fields of the class. A field that has the name of one of those is
`message_NAME`. Each run writes everything again: a newer version of a class may change its columns. Each file is
written under a working name, synced and renamed.

Memory: `ROWS` rows of each class, and one batch of the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...service_api.errors import ConfigurationError, RemoteProtocolError
from ...service_api.typed.log_schemas import read_values
from ...service_api.typed.schema import Schema
from ...service_api.wire.payload_header import PayloadKind
from ..format.descriptor import RecordingDescriptor
from ..log.log_file import is_log
from ..log.member_directory import ArchiveLocation
from .export import MANIFEST_NAME, ExportFormat, ExportOptions, ExportRefusedError, publish, read_manifest
from .export_files import open_table_writer
from .frame_batches import FrameSelection, ReadProblem
from .schema_search import SchemaSearch
from .typed_messages import RecordedTypedMessage, read_typed_messages

ROWS: Final = 8_192
_KINDS: Final = {PayloadKind.COMMAND: "command", PayloadKind.EVENT: "event"}
_UNKNOWN: Final = "no schema in the log: fingerprint="


class TypedTable(NamedTuple):
    """The file of one class of a recording; `message` and `file` are None for messages without a known schema."""

    recording_id: int | None
    message: str | None
    file: str | None
    row_count: int
    problem: str | None = None
    """The first message that could not be read, or the damage that ended the recording."""


def export_typed(
    location: ArchiveLocation,
    descriptors: Iterable[RecordingDescriptor],
    target: Path,
    options: ExportOptions,
    *,
    overwrite: bool,
    on_progress: Callable[[int], None] = lambda position: None,
) -> list[TypedTable]:
    """Write the commands and events of logs to a directory, which is new, empty or, with `overwrite`, such an export.

    Raises:
        ConfigurationError: there is no log, or the format has no tables.
        ExportRefusedError: the directory holds something else.
        ClusterError: the catalog is damaged.
        OSError: a file cannot be read or written.
    """
    if options.format is ExportFormat.JSONL:
        raise ConfigurationError("format=jsonl expected parquet or arrow: typed messages are tables")
    logs = [each for each in descriptors if is_log(each)]
    if not logs:
        raise ConfigurationError(f"no log of a cluster in {location}: typed messages are in logs")
    _prepare(target, overwrite=overwrite)
    search = SchemaSearch.of((location, each.recording_id) for each in logs)
    tables: list[TypedTable] = []
    for descriptor in logs:
        tables += _RecordingTables(descriptor, target, options, search).write(location, on_progress)
    manifest = {"typed": [each.file for each in tables if each.file is not None], "recordings": {}}
    working_path = target / f".{MANIFEST_NAME}.partial"
    working_path.write_text(json.dumps(manifest, indent=2) + "\n")
    publish(working_path, target / MANIFEST_NAME)
    return tables


def _prepare(target: Path, *, overwrite: bool) -> None:
    target.mkdir(parents=True, exist_ok=True)
    names = [each.name for each in target.iterdir() if not each.name.startswith(".")]
    found = read_manifest(target / MANIFEST_NAME)
    files = None if found is None else found.get("typed")
    if names and not (overwrite and isinstance(files, list)):
        raise ExportRefusedError(
            f"{target} holds files, such as {sorted(names)[0]}: expected an empty or new directory, or --overwrite for "
            "one that an export with --typed wrote"
        )
    for name in files or ():
        path = (target / str(name)).resolve()
        if path.is_relative_to(target.resolve()):
            path.unlink(missing_ok=True)


class _RecordingTables:
    """The tables of one recording while they are written."""

    def __init__(
        self, descriptor: RecordingDescriptor, target: Path, options: ExportOptions, search: SchemaSearch
    ) -> None:
        self._descriptor = descriptor
        self._target = target
        self._options = options
        self._schemas = search.schemas.of_class()
        self._tables: dict[str, _Table] = {}

    def write(self, location: ArchiveLocation, on_progress: Callable[[int], None]) -> list[TypedTable]:
        options, damage = self._options, list[ReadProblem]()
        selection = FrameSelection(
            bound_position=options.bound_position, checksums=options.checksums, reassemble=True, padding=False
        )
        unknown: dict[str, int] = {}
        recording_id = self._descriptor.recording_id
        try:
            for message in read_typed_messages(
                location, self._descriptor, selection, options.time_unit, damage.append, on_progress
            ):
                schema = self._schemas.get(message.typed.fingerprint)
                if schema is None:
                    fingerprint = message.typed.fingerprint.hex()
                    unknown[fingerprint] = unknown.get(fingerprint, 0) + 1
                else:
                    self._table_of(schema).add(message, schema)
            results = [table.finish(recording_id) for table in self._tables.values()]
        finally:
            for table in self._tables.values():
                table.abandon()
        results += [TypedTable(recording_id, None, None, count, _UNKNOWN + each) for each, count in unknown.items()]
        results += [
            TypedTable(recording_id, None, None, 0, f"position={each.position}: {each.reason}") for each in damage
        ]
        return results

    def _table_of(self, schema: Schema) -> _Table:
        name = schema["name"]
        if name not in self._tables:
            versions = [each for each in self._schemas.values() if each["name"] == name]
            self._tables[name] = _Table(name, versions, self._target, self._descriptor.recording_id, self._options)
        return self._tables[name]


class _Table:
    """One file: the rows of a class that are not written yet, and the writer."""

    def __init__(
        self, name: str, versions: list[Schema], target: Path, recording_id: int, options: ExportOptions
    ) -> None:
        import pyarrow as pa

        from .vector.columns import frame_schema
        from .vector.typed_columns import merged_fields

        time_type = frame_schema(("timestamp",), time_unit=options.time_unit).field(0).type
        self._given = {
            "recording_id": pa.int64(),
            "position": pa.int64(),
            "timestamp": time_type,
            "cluster_session_id": pa.int64(),
            "request_sequence": pa.int64(),
            "topic": pa.string(),
            "service_id": pa.int16(),
            "kind": pa.string(),
        }
        self._last = {"bytes": pa.binary(), "problem": pa.string()}
        self._name, self._recording_id = name, recording_id
        self._merged = merged_fields(versions)
        self._columns: dict[bytes, Any] = {}
        fields = [(self._column_name(each.name), each.arrow_type) for each in self._merged]
        self._schema = pa.schema([*self._given.items(), *fields, *self._last.items()])
        self._file = f"{name}/{recording_id}.{options.format.value}"
        self._path = target / self._file
        self._path.parent.mkdir(exist_ok=True)
        self._working_path = self._path.with_name(f".{self._path.name}.partial")
        self._writer = open_table_writer(self._working_path, options.format.value, self._schema)
        self._rows: list[dict[str, Any]] = []
        self._row_count = 0
        self._problem: str | None = None
        self._is_open = True

    def add(self, message: RecordedTypedMessage, schema: Schema) -> None:
        from .vector.typed_columns import TypedColumns

        fingerprint = message.typed.fingerprint
        if fingerprint not in self._columns:
            self._columns[fingerprint] = TypedColumns(schema, self._merged)
        row: dict[str, Any] = {
            "recording_id": self._recording_id,
            "position": message.position,
            "timestamp": message.timestamp,
            "cluster_session_id": message.cluster_session_id,
            "request_sequence": message.request_sequence,
            "topic": message.topic,
            "service_id": message.typed.service_id,
            "kind": _KINDS[PayloadKind(message.typed.kind)],
        }
        try:
            values = self._columns[fingerprint].convert(read_values(schema, message.typed.body))
            row |= {self._column_name(name): value for name, value in values.items()}
        except RemoteProtocolError as error:
            row |= {"bytes": message.payload, "problem": str(error)}
            self._problem = self._problem or f"position={message.position}: {error}"
        self._rows.append(row)
        if len(self._rows) >= ROWS:
            self._flush()

    def finish(self, recording_id: int) -> TypedTable:
        """Write what is left, and give the file its name."""
        self._flush()
        self._is_open = False
        self._writer.close()
        publish(self._working_path, self._path)
        return TypedTable(recording_id, self._name, self._file, self._row_count, self._problem)

    def abandon(self) -> None:
        """Remove the file if it is not finished."""
        if self._is_open:
            self._writer.close()
            self._working_path.unlink(missing_ok=True)

    def _column_name(self, field: str) -> str:
        return f"message_{field}" if field in self._given or field in self._last else field

    def _flush(self) -> None:
        import pyarrow as pa

        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
            self._row_count += len(self._rows)
            self._rows = []
