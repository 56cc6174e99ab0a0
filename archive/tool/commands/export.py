"""`trimaran archive export`: recordings as Parquet, Arrow IPC or JSON lines, for readers without Trimaran."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.progress import Progress

from ....service_api.errors import ConfigurationError
from ....service_api.types import TimeUnit
from ...disk_errors import StoreFailure
from ...format.descriptor import RecordingDescriptor, RecordingState
from ...log.member_directory import ArchiveLocation, path_on_disk
from ...log.member_groups import group_path, read_group_count
from ...reading.export import (
    ExportFormat,
    ExportOptions,
    ExportPart,
    ExportRefusedError,
    PartState,
    export_part,
    find_holes,
    open_export,
    plan_parts,
)
from ...reading.frame_batches import find_archive_time_unit, make_schema
from ...reading.frame_columns import GROUP_COLUMN, choose_columns
from ...reading.typed_export import TypedTable, export_typed
from ..output import EXIT_REFUSED, EXIT_UNHEALTHY, OutputFormat, OutputOption, fail, print_line, print_rows
from ..selection import ArchiveArgument, RecordingOption, find_location, load_catalog, select_entries
from .progress import Advance, one_bar, progress_bars
from .verify import ChecksumMode, ChecksumOption

FOLLOW_INTERVAL_S: Final = 1.0
_NOTED_LIMIT: Final = 1
"""One row with a remark decides the exit status; the others were printed."""


class TimeUnitName(StrEnum):
    """The unit of the cluster's clock, as its configuration has it."""

    MS = "ms"
    US = "us"
    NS = "ns"


_TIME_UNITS: Final = {
    TimeUnitName.MS: TimeUnit.MILLIS,
    TimeUnitName.US: TimeUnit.MICROS,
    TimeUnitName.NS: TimeUnit.NANOS,
}
_COLUMNS: Final = {
    "recording_id": "id",
    "file": "file",
    "state": "state",
    "rows": "rows",
    "start_position": "start",
    "remarks": "remarks",
}

_TYPED_COLUMNS: Final = {
    "recording_id": "id",
    "message": "message",
    "file": "file",
    "rows": "rows",
    "remarks": "remarks",
}


def _take_target(text: str) -> Path:
    """Take the directory for the files; the URL of a store ends the command."""
    target = path_on_disk(text)
    if target is None:
        fail(
            f"--to {text}: expected a directory of this machine; export there, and copy the files with the tools of "
            "that store"
        )
    return target


TargetOption = Annotated[
    Path,
    typer.Option(
        "--to", parser=_take_target, metavar="DIR", help="The directory for the files; created if it does not exist."
    ),
]
FormatOption = Annotated[ExportFormat, typer.Option("--format", help="The kind of files.")]
MessagesOption = Annotated[bool, typer.Option("--messages", help="Complete messages instead of frames.")]
ColumnsOption = Annotated[
    str | None, typer.Option("--columns", help="Only these columns, separated by commas; default: all.")
]
TimeUnitOption = Annotated[
    TimeUnitName | None,
    typer.Option("--time-unit", help="The unit of the timestamps; by default the one that the log names."),
]
BoundOption = Annotated[
    int | None,
    typer.Option("--bound-position", min=0, help="Omit frames that end after this position. Needs --recording-id."),
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Remove the existing export first.")]
TypedOption = Annotated[
    bool, typer.Option("--typed", help="A folder of tables for each class of typed messages, with a column a field.")
]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="Keep running: export each segment once it is full, until interrupted.")
]


def export(
    directory: ArchiveArgument,
    target: TargetOption,
    file_format: FormatOption = ExportFormat.PARQUET,
    recording_id: RecordingOption = None,
    messages: MessagesOption = False,
    columns: ColumnsOption = None,
    time_unit: TimeUnitOption = None,
    checksum: ChecksumOption = ChecksumMode.AUTO,
    bound_position: BoundOption = None,
    overwrite: OverwriteOption = False,
    follow: FollowOption = False,
    typed: TypedOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Write frames or messages to files, one for each segment. Existing files of full segments are kept.

    Exit status 10 if a recording is damaged or was purged before it was exported, 12 if the directory has other files.
    """
    if bound_position is not None and recording_id is None:
        fail("--bound-position needs --recording-id: positions are those of one recording")
    logs = _find_logs(directory, target)
    if bound_position is not None and len(logs) > 1:
        fail(f"--bound-position: positions are those of one log: {len(logs)} groups; name one, such as {logs[0].name}")
    unit = None if time_unit is None else _TIME_UNITS[time_unit]
    options = ExportOptions(
        format=file_format,
        messages=messages,
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
        time_unit=unit or TimeUnit.MILLIS,
        checksums=None if checksum is ChecksumMode.AUTO else checksum is ChecksumMode.ON,
        bound_position=bound_position,
    )
    if typed and (messages or follow or columns is not None):
        fail("--typed is not for --messages, --columns or --follow: it writes whole messages, with their fields")
    try:
        if not typed:
            _check_columns(options)
        exports = []
        for log in logs:
            location = log.locate()
            own = options if unit is not None else replace(options, time_unit=find_archive_time_unit(location))
            exports.append(_Export(log, own, recording_id))
        group = {} if logs[0].group_index is None else {GROUP_COLUMN: GROUP_COLUMN}
        if typed:
            rows = [row for each in exports for row in each.run_typed(overwrite=overwrite)]
            columns_shown, empty = {**group, **_TYPED_COLUMNS}, "no typed messages to export"
            print_rows(rows, output, title=str(target), columns=columns_shown, empty=empty)
        else:
            for each in exports:
                each.open(overwrite=overwrite)
            if follow:
                rows = _follow(exports)
            else:
                rows = [row for each in exports for row in each.run()]
                columns_shown, empty = {**group, **_COLUMNS}, "no frames to export"
                print_rows(rows, output, title=str(target), columns=columns_shown, empty=empty)
    except StoreFailure:
        raise
    except ConfigurationError as error:
        fail(str(error))
    except ExportRefusedError as error:
        fail(str(error), EXIT_REFUSED)
    except OSError as error:
        fail(f"export stopped: {error}", 1)
    if any(row["remarks"] for row in rows):
        raise typer.Exit(EXIT_UNHEALTHY)


def _find_logs(name: str, target: Path) -> list[_Log]:
    """Find the logs of a directory: those of all groups, if it has groups."""
    try:
        group_count = read_group_count(name)
    except ConfigurationError as error:
        fail(str(error))
    if group_count is None:
        return [_Log(name, target, None)]
    return [_Log(group_path(name, index), target / f"{GROUP_COLUMN}={index}", index) for index in range(group_count)]


def _check_columns(options: ExportOptions) -> None:
    if options.format is ExportFormat.JSONL:
        choose_columns(options.columns)
    else:
        make_schema(options.columns, options.time_unit)


class _Log(NamedTuple):
    """One log to export: the only one of a directory, or that of a group."""

    name: str
    """A path or a URL. It is looked at again each time: segments go to cold storage, and a backup grows."""
    target: Path
    group_index: int | None

    def locate(self) -> ArchiveLocation:
        return find_location(self.name)


class _Fault(NamedTuple):
    """A damaged entry of the catalog."""

    recording_id: int | None
    remarks: str


class _Export:
    """The export of one log, look by look."""

    def __init__(self, log: _Log, options: ExportOptions, recording_id: int | None) -> None:
        self._log = log
        self._options = options
        self._recording_id = recording_id
        self._done: set[tuple[int, int, int | None]] = set()
        self._holes: set[tuple[int, int]] = set()
        """Recording and where the hole ends, of those that were told."""

    def __repr__(self) -> str:
        return f"<_Export {self._log.name} parts={len(self._done)}>"

    def open(self, *, overwrite: bool) -> None:
        """Make the directory of the files, or check that they are of this log."""
        open_export(self._log.target, self._options, self._find_descriptors()[0], overwrite=overwrite)

    def run(self) -> Iterator[dict[str, Any]]:
        """Export all that is there, and yield a row for each file, hole, and damaged entry of the catalog."""
        location = self._log.locate()
        descriptors, faults = self._find_descriptors()
        for fault in faults:
            yield self._row(remarks=fault.remarks, state=PartState.DAMAGED, recording_id=fault.recording_id)
        with progress_bars() as progress:
            for descriptor in descriptors:
                yield from self._find_holes(descriptor)
                parts = list(plan_parts(location, descriptor, self._options.bound_position))
                yield from self._export_parts(location, parts, progress)

    def run_typed(self, *, overwrite: bool) -> Iterator[dict[str, Any]]:
        """Write the typed messages as tables, and yield a row for each table and damaged entry of the catalog."""
        descriptors, faults = self._find_descriptors()
        for fault in faults:
            yield self._typed_row(TypedTable(fault.recording_id, None, None, 0, fault.remarks))
        location = self._log.locate()
        for table in export_typed(location, descriptors, self._log.target, self._options, overwrite=overwrite):
            yield self._typed_row(table)

    def look(self) -> Iterator[dict[str, Any]]:
        """Export what has become full, and the rest of what has stopped."""
        location = self._log.locate()
        descriptors, _ = self._find_descriptors()
        parts = [part for each in descriptors for part in plan_parts(location, each, self._options.bound_position)]
        ready = [p for p in parts if (p.is_closed or p.stop_position is not None) and _key(p) not in self._done]
        for descriptor in descriptors:
            yield from self._find_holes(descriptor)
        if ready:
            open_export(self._log.target, self._options, descriptors, overwrite=False)
        for part in ready:
            yield self._export_part(location, part, lambda position: None)

    def _find_descriptors(self) -> tuple[list[RecordingDescriptor], list[_Fault]]:
        """Return the recordings to export, which are the VALID ones or the one that was named, and damaged entries."""
        descriptors, faults = [], []
        for entry in select_entries(load_catalog(self._log.locate()), self._recording_id):
            descriptor = entry.descriptor
            if descriptor is None or entry.problem is not None:
                recording_id = None if descriptor is None else descriptor.recording_id
                faults.append(_Fault(recording_id, f"catalog entry at offset={entry.offset}: {entry.problem}"))
            elif descriptor.state is RecordingState.VALID or self._recording_id is not None:
                descriptors.append(descriptor)
        return descriptors, faults

    def _find_holes(self, descriptor: RecordingDescriptor) -> Iterator[dict[str, Any]]:
        recording_id = descriptor.recording_id
        for start, end in find_holes(self._log.target, descriptor):
            if (recording_id, end) not in self._holes:
                self._holes.add((recording_id, end))
                yield self._row(
                    recording_id=recording_id,
                    state=PartState.PURGED,
                    start_position=start,
                    remarks=f"positions {start} to {end} were purged before they were exported whole",
                )

    def _export_parts(
        self, location: ArchiveLocation, parts: list[ExportPart], progress: Progress
    ) -> Iterator[dict[str, Any]]:
        if not parts:
            return
        start, last = parts[0].start_position, parts[-1]
        segment_end = last.base_position + last.descriptor.segment_file_length
        end = segment_end if last.stop_position is None else last.stop_position
        with one_bar(progress, f"recording {last.descriptor.recording_id}", end - start) as advance:
            for part in parts:
                yield self._export_part(location, part, lambda position: advance(position - start))

    def _export_part(self, location: ArchiveLocation, part: ExportPart, on_progress: Advance) -> dict[str, Any]:
        result = export_part(location, part, self._log.target, self._options, on_progress)
        self._done.add(_key(part))
        return self._row(
            recording_id=part.descriptor.recording_id,
            file=result.file,
            state=result.state,
            rows=result.row_count,
            start_position=part.start_position,
            remarks="" if result.problem is None else f"position={result.problem.position}: {result.problem.reason}",
        )

    def _row(
        self,
        *,
        recording_id: int | None,
        state: PartState,
        remarks: str,
        file: str | None = None,
        rows: int | None = 0,
        start_position: int | None = None,
    ) -> dict[str, Any]:
        return self._group() | {
            "recording_id": recording_id,
            "file": file,
            "state": state.value,
            "rows": rows,
            "start_position": start_position,
            "remarks": remarks,
        }

    def _typed_row(self, table: TypedTable) -> dict[str, Any]:
        return self._group() | {
            "recording_id": table.recording_id,
            "message": table.message,
            "file": table.file,
            "rows": table.row_count,
            "remarks": table.problem or "",
        }

    def _group(self) -> dict[str, Any]:
        return {} if self._log.group_index is None else {GROUP_COLUMN: self._log.group_index}


def _follow(exports: Sequence[_Export]) -> list[dict[str, Any]]:
    """Export and print all that is there, and what becomes full, until interrupted; return the rows with remarks."""
    noted: list[dict[str, Any]] = []
    pause = threading.Event()

    def tell(rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            if row["remarks"] and len(noted) < _NOTED_LIMIT:
                noted.append(row)  # first: who reads the line may interrupt at once
            print_line(row)
            sys.stdout.flush()

    try:
        for each in exports:
            tell(each.run())
        while True:
            pause.wait(FOLLOW_INTERVAL_S)
            for each in exports:
                tell(each.look())
    except KeyboardInterrupt:
        return noted


def _key(part: ExportPart) -> tuple[int, int, int | None]:
    return part.descriptor.recording_id, part.base_position, part.stop_position
