"""`trimaran archive mark-valid|mark-invalid|compact|capacity|delete-orphaned-segments`: what changes a catalog.

Refused (12) where an archive runs on the directory, except for what only looks. A crash leaves the catalog as it was or
as it should be.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from ...errors import ArchiveError, ArchiveErrorCode
from ...format.catalog import CatalogEntry
from ...format.descriptor import RecordingState
from ...log.member_directory import locate
from ...store.maintenance import OfflineArchive
from ..output import OutputFormat, OutputOption, print_rows
from ..selection import DirectoryArgument, load_catalog, select_entries
from .describe import entry_state_name
from .offline import offline_archive

RecordingArgument = Annotated[int, typer.Argument(metavar="ID", min=0, help="The recording.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")]
CapacityArgument = Annotated[int | None, typer.Argument(metavar="BYTES", min=0, help="The minimum length of the file.")]

_FILE_COLUMNS: Final = {"name": "file", "recording_id": "id", "length_bytes": "bytes", "reason": "reason"}
_ENTRY_COLUMNS: Final = {
    "recording_id": "id",
    "state": "state",
    "original_channel": "channel",
    "file_count": "files",
    "length_bytes": "bytes",
}


def mark_invalid(directory: DirectoryArgument, recording_id: RecordingArgument) -> None:
    """Mark a valid recording INVALID: no command reads, replays or extends it, and `compact` removes it."""
    _mark(directory, recording_id, wanted=RecordingState.VALID, new=RecordingState.INVALID)


def mark_valid(directory: DirectoryArgument, recording_id: RecordingArgument) -> None:
    """Mark an INVALID recording VALID again. The command checks nothing: run `verify` first."""
    _mark(directory, recording_id, wanted=RecordingState.INVALID, new=RecordingState.VALID)


def compact(
    directory: DirectoryArgument, dry_run: DryRunOption = False, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Remove INVALID and DELETED recordings from the catalog, delete their files, and print which.

    Their data is lost. Their ids are not used again.
    """
    with offline_archive(directory, is_changing=not dry_run) as archive:
        rows = _compact_rows(archive)
        if not dry_run:
            archive.compact()
    print_rows(rows, output, columns=_ENTRY_COLUMNS, title=_title(rows, dry_run), empty="nothing to remove")


def capacity(
    directory: DirectoryArgument, length_bytes: CapacityArgument = None, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Show how long the catalog file is and how much of it is used, or make it longer for more recordings."""
    if length_bytes is not None:
        with offline_archive(directory) as archive:
            archive.set_capacity(length_bytes)
    content = load_catalog(locate(directory))
    row = {
        "capacity_bytes": content.file_length,
        "used_bytes": content.end_offset,
        "entries": len(content.entries),
        "next_recording_id": content.header.next_recording_id,
    }
    print_rows([row], output)


def delete_orphaned_segments(
    directory: DirectoryArgument, dry_run: DryRunOption = False, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Delete files that belong to no recording: detached, of deleted recordings, or left by a crash.

    This also deletes segments that were detached on purpose: attach them first, or list them with --dry-run.
    """
    with offline_archive(directory, is_changing=not dry_run) as archive:
        files = list(archive.superfluous_files())
        if not dry_run:
            archive.remove_files(files)
    rows = [{name: getattr(file, name) for name in _FILE_COLUMNS} for file in files]
    print_rows(rows, output, columns=_FILE_COLUMNS, title=_title(rows, dry_run), empty="no orphaned segments")


def _mark(directory: DirectoryArgument, recording_id: int, *, wanted: RecordingState, new: RecordingState) -> None:
    entries = select_entries(load_catalog(locate(directory)), recording_id)
    with offline_archive(directory) as archive:
        states = {entry_state_name(entry) for entry in entries}
        if states == {new.name}:
            typer.echo(f"recording_id={recording_id} is {new.name} already")
            return
        if states != {wanted.name}:
            raise ArchiveError(
                f"recording cannot be marked {new.name}: state={sorted(states)} expected={wanted.name}",
                code=ArchiveErrorCode.UNKNOWN_RECORDING,
                recording_id=recording_id,
            )
        problem = next((entry.problem for entry in entries if entry.problem is not None), None)
        if problem is not None and new is RecordingState.VALID:
            raise ArchiveError(f"recording cannot be marked VALID: {problem}", recording_id=recording_id)
        archive.set_state({recording_id}, new)
    typer.echo(f"recording_id={recording_id} is {new.name}, was {wanted.name}")


def _compact_rows(archive: OfflineArchive) -> list[dict[str, Any]]:
    return [_compact_row(archive, entry) for entry in archive.compactable()]


def _compact_row(archive: OfflineArchive, entry: CatalogEntry) -> dict[str, Any]:
    descriptor = entry.descriptor
    assert descriptor is not None
    files = archive.files_of(descriptor.recording_id)
    return {
        "recording_id": descriptor.recording_id,
        "state": descriptor.state.name,
        "start_position": descriptor.start_position,
        "stop_position": descriptor.stop_position,
        "original_channel": descriptor.original_channel,
        "file_count": len(files),
        "length_bytes": sum(length for _, length in files),
    }


def _title(rows: list[dict[str, Any]], is_dry_run: bool) -> str:
    total = sum(row["length_bytes"] for row in rows)
    return f"{'would be ' if is_dry_run else ''}removed: {len(rows)}, {total:,} bytes in files"
