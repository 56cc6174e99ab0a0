"""`trimaran archive verify`: every frame of every recording, or of the last segments. Nothing is changed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from rich.progress import Progress

from ...format.catalog import CatalogEntry
from ...format.descriptor import RecordingState
from ...log.member_directory import ArchiveLocation
from ...reading.verify import RecordingVerdict, verify_recording
from ..output import EXIT_UNHEALTHY, OutputFormat, OutputOption, print_rows
from ..selection import ArchiveArgument, RecordingOption, expect_directory, find_location, load_catalog, select_entries
from .offline import offline_archive
from .progress import one_bar, progress_bars


class ChecksumMode(StrEnum):
    """Whether frames are checked against a checksum: as the catalog says, always, or never."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


ChecksumOption = Annotated[ChecksumMode, typer.Option("--checksum", help="Whether frames carry a checksum.")]
LastSegmentOption = Annotated[bool, typer.Option("--last-segment", help="Only the last segment of each recording.")]
FaultTolerantOption = Annotated[
    bool,
    typer.Option(
        "--fault-tolerant", help="After an invalid frame, continue at the next valid one, and name every gap."
    ),
]
MarkInvalidOption = Annotated[
    bool, typer.Option("--mark-invalid", help="Mark damaged recordings INVALID; refused while an archive runs.")
]


_COLUMNS: Final = {
    "recording_id": "id",
    "verdict": "verdict",
    "frame_count": "frames",
    "start_position": "start",
    "stop_position": "stop",
    "checksum": "checksum",
    "remarks": "remarks",
}


def verify(
    directory: ArchiveArgument,
    recording_id: RecordingOption = None,
    checksum: ChecksumOption = ChecksumMode.AUTO,
    last_segment: LastSegmentOption = False,
    fault_tolerant: FaultTolerantOption = False,
    mark_invalid: MarkInvalidOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Check every frame of every recording; exit status 10 if one is wrong. Changes nothing without --mark-invalid."""
    archive = find_location(directory)
    entries = select_entries(load_catalog(archive), recording_id)
    checksums = None if checksum is ChecksumMode.AUTO else checksum is ChecksumMode.ON

    def verify_all() -> list[RecordingVerdict]:
        options = {"is_last_segment_only": last_segment, "is_fault_tolerant": fault_tolerant}
        with progress_bars() as progress:
            return [_verify_entry(archive, entry, progress, checksums=checksums, **options) for entry in entries]

    if mark_invalid:
        with offline_archive(expect_directory(archive)) as offline:
            entries = select_entries(offline.read(), recording_id)
            verdicts = verify_all()
            wrong = {verdict.recording_id for verdict in verdicts if verdict.is_damaged}
            if wrong:
                offline.set_state(wrong, RecordingState.INVALID)
    else:
        verdicts = verify_all()
    print_rows(map(_verdict_row, verdicts), output, title=str(archive), columns=_COLUMNS)
    if not all(verdict.is_ok for verdict in verdicts):
        raise typer.Exit(EXIT_UNHEALTHY)


def _verify_entry(
    archive: ArchiveLocation, entry: CatalogEntry, progress: Progress, *, checksums: bool | None, **options: bool
) -> RecordingVerdict:
    descriptor = entry.descriptor
    if descriptor is None:
        return verify_recording(*archive, entry)
    start, stop = descriptor.start_position, descriptor.stop_position
    name = f"recording {descriptor.recording_id}"
    with one_bar(progress, name, None if stop is None else stop - start) as advance:
        try:
            return verify_recording(
                archive.file_system,
                archive.directory,
                entry,
                checksums=checksums,
                on_progress=lambda position: advance(position - start),
                **options,
            )
        except OSError as error:
            return RecordingVerdict(descriptor.recording_id, None, problems=[f"not readable: {error}"])


def _verdict_of(verdict: RecordingVerdict) -> str:
    if verdict.skipped:
        return "skipped"
    if verdict.is_ok:
        return "ok"
    return "wrong" if verdict.is_damaged else "unknown"


def _verdict_row(verdict: RecordingVerdict) -> dict[str, Any]:
    return {
        "recording_id": verdict.recording_id,
        "verdict": _verdict_of(verdict),
        "state": None if verdict.state is None else verdict.state.name,
        "frame_count": verdict.frame_count,
        "start_position": verdict.start_position,
        "stop_position": verdict.stop_position,
        "checksummed": verdict.checksummed,
        "checksum": verdict.checksum,
        "problems": verdict.problems,
        "warnings": verdict.warnings,
        "remarks": "; ".join([*verdict.problems, *verdict.warnings]),
    }
