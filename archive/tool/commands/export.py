"""`trimaran archive export`: recordings as Parquet, Arrow IPC or JSON lines, for readers without Trimaran."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.progress import Progress

from ....service_api.errors import ConfigurationError
from ....service_api.types import TimeUnit
from ...format.descriptor import RecordingDescriptor, RecordingState
from ...log.member_directory import locate, locate_archive
from ...reading.export import (
    ExportFormat,
    ExportOptions,
    ExportPart,
    ExportRefusedError,
    PartResult,
    PartState,
    export_part,
    open_export,
    plan_parts,
)
from ...reading.frame_batches import find_archive_time_unit, make_schema
from ...reading.frame_columns import choose_columns
from ...reading.typed_export import TypedTable, export_typed
from ..output import EXIT_REFUSED, EXIT_UNHEALTHY, OutputFormat, OutputOption, fail, print_line, print_rows
from ..selection import DirectoryArgument, RecordingOption, load_catalog, select_entries
from .progress import one_bar, progress_bars
from .verify import ChecksumMode, ChecksumOption

FOLLOW_INTERVAL_S: Final = 1.0


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

TargetOption = Annotated[Path, typer.Option("--to", help="The directory for the files; created if it does not exist.")]
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
    directory: DirectoryArgument,
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

    Exit status 10 if a recording is damaged, 12 if the directory has other files.
    """
    if bound_position is not None and recording_id is None:
        fail("--bound-position needs --recording-id: positions are those of one recording")
    descriptors, faults = _find_descriptors(directory, recording_id)
    options = ExportOptions(
        format=file_format,
        messages=messages,
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
        time_unit=find_archive_time_unit(locate_archive(directory)) if time_unit is None else _TIME_UNITS[time_unit],
        checksums=None if checksum is ChecksumMode.AUTO else checksum is ChecksumMode.ON,
        bound_position=bound_position,
    )
    if typed and (messages or follow or columns is not None):
        fail("--typed is not for --messages, --columns or --follow: it writes whole messages, with their fields")
    try:
        if typed:
            tables = export_typed(locate_archive(directory), descriptors, target, options, overwrite=overwrite)
            rows = [*faults, *map(_typed_row, tables)]
            print_rows(rows, output, title=str(target), columns=_TYPED_COLUMNS, empty="no typed messages to export")
            if any(row["remarks"] for row in rows):
                raise typer.Exit(EXIT_UNHEALTHY)
            return
        _check_columns(options)
        open_export(target, options, descriptors, overwrite=overwrite)
        results = list(_export_all(directory, descriptors, target, options))
        rows = [*faults, *map(_row, results)]
        if follow:
            _print_now(rows)
            _follow(directory, recording_id, target, options, results)
        else:
            print_rows(rows, output, title=str(target), columns=_COLUMNS, empty="no frames to export")
    except ConfigurationError as error:
        fail(str(error))
    except ExportRefusedError as error:
        fail(str(error), EXIT_REFUSED)
    except OSError as error:
        fail(f"export stopped: {error}", 1)
    if any(row["remarks"] for row in rows):
        raise typer.Exit(EXIT_UNHEALTHY)


def _check_columns(options: ExportOptions) -> None:
    if options.format is ExportFormat.JSONL:
        choose_columns(options.columns)
    else:
        make_schema(options.columns, options.time_unit)


def _find_descriptors(
    directory: Path, recording_id: int | None
) -> tuple[list[RecordingDescriptor], list[dict[str, Any]]]:
    """Return the recordings to export, which are the VALID ones or the one that was named, and rows for damaged
    entries.
    """
    descriptors, faults = [], []
    for entry in select_entries(load_catalog(locate(directory)), recording_id):
        descriptor = entry.descriptor
        if descriptor is None or entry.problem is not None:
            remarks = f"catalog entry at offset={entry.offset}: {entry.problem}"
            faults.append(
                {
                    "recording_id": None if descriptor is None else descriptor.recording_id,
                    "file": None,
                    "state": PartState.DAMAGED.value,
                    "rows": 0,
                    "start_position": None,
                    "remarks": remarks,
                }
            )
        elif descriptor.state is RecordingState.VALID or recording_id is not None:
            descriptors.append(descriptor)
    return descriptors, faults


def _export_all(
    directory: Path, descriptors: list[RecordingDescriptor], target: Path, options: ExportOptions
) -> Iterator[PartResult]:
    with progress_bars() as progress:
        for descriptor in descriptors:
            parts = list(plan_parts(directory, descriptor, options.bound_position))
            yield from _export_parts(directory, parts, target, options, progress)


def _export_parts(
    directory: Path, parts: list[ExportPart], target: Path, options: ExportOptions, progress: Progress
) -> Iterator[PartResult]:
    if not parts:
        return
    start, last = parts[0].start_position, parts[-1]
    end = last.base_position + last.descriptor.segment_file_length if last.stop_position is None else last.stop_position
    with one_bar(progress, f"recording {last.descriptor.recording_id}", end - start) as advance:
        for part in parts:
            yield export_part(directory, part, target, options, lambda position: advance(position - start))


def _follow(
    directory: Path, recording_id: int | None, target: Path, options: ExportOptions, done: list[PartResult]
) -> None:
    """Export what has become full, and the rest of what has stopped, again and again until interrupted."""
    exported = {_key(result.part) for result in done}
    pause = threading.Event()
    try:
        while True:
            pause.wait(FOLLOW_INTERVAL_S)
            descriptors, _ = _find_descriptors(directory, recording_id)
            parts = [p for d in descriptors for p in plan_parts(directory, d, options.bound_position)]
            ready = [p for p in parts if (p.is_closed or p.stop_position is not None) and _key(p) not in exported]
            if not ready:
                continue
            open_export(target, options, descriptors, overwrite=False)
            for part in ready:
                exported.add(_key(part))
                _print_now([_row(export_part(directory, part, target, options))])
    except KeyboardInterrupt:
        return


def _print_now(rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        print_line(row)
    sys.stdout.flush()


def _key(part: ExportPart) -> tuple[int, int, int | None]:
    return part.descriptor.recording_id, part.base_position, part.stop_position


def _typed_row(table: TypedTable) -> dict[str, Any]:
    return {
        "recording_id": table.recording_id,
        "message": table.message,
        "file": table.file,
        "rows": table.row_count,
        "remarks": table.problem or "",
    }


def _row(result: PartResult) -> dict[str, Any]:
    return {
        "recording_id": result.part.descriptor.recording_id,
        "file": result.file,
        "state": result.state.value,
        "rows": result.row_count,
        "start_position": result.part.start_position,
        "remarks": "" if result.problem is None else f"position={result.problem.position}: {result.problem.reason}",
    }
