"""`trimaran archive describe|count-entries`: show the catalog. Nothing is changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from ...format.catalog import CatalogEntry
from ...format.descriptor import RecordingState
from ...log.log_file import LogFile
from ...log.member_directory import ArchiveLocation
from ..output import EXIT_UNHEALTHY, OutputFormat, OutputOption, fail, print_rows
from ..selection import ArchiveArgument, RecordingOption, find_location, load_catalog, select_entries

UNREADABLE: Final = "UNREADABLE"

_COLUMNS: Final = {
    "recording_id": "id",
    "state": "state",
    "start_position": "start",
    "stop_position": "stop",
    "stream_id": "stream",
    "segments": "segments",
    "checksum": "checksum",
    "original_channel": "channel",
}


CHANNEL_LENGTH: Final = 80
"""How much of a channel the table shows: Aeron's may have thousands of characters. JSON has all of it."""

AllOption = Annotated[bool, typer.Option("--all", help="Also those that are INVALID or DELETED.")]


def describe(
    directory: ArchiveArgument,
    recording_id: RecordingOption = None,
    every: AllOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the catalog entry of each valid recording, or of the named recording in any state."""
    archive = find_location(directory)
    entries = select_entries(load_catalog(archive), recording_id)
    if recording_id is None and not every:
        entries = [entry for entry in entries if entry_state_name(entry) in (RecordingState.VALID.name, UNREADABLE)]
    rows = [_entry_row(archive, entry) for entry in entries]
    if output is OutputFormat.TABLE:
        rows = [row | {"original_channel": _beginning(row.get("original_channel", ""))} for row in rows]
    print_rows(rows, output, title=str(archive), columns=_COLUMNS)
    problems = [f"catalog entry at offset={entry.offset}: {entry.problem}" for entry in entries if entry.problem]
    if problems:
        fail("; ".join(problems), EXIT_UNHEALTHY)


def count_entries(directory: ArchiveArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Count the entries of the catalog by state."""
    counts = Counter(entry_state_name(entry) for entry in load_catalog(find_location(directory)).entries)
    row = {name.lower(): counts[name] for name in ("VALID", "INVALID", "DELETED", UNREADABLE)}
    print_rows([row | {"total": counts.total()}], output)


def entry_state_name(entry: CatalogEntry) -> str:
    """Name the state of an entry, `UNREADABLE` for one of which the bytes say nothing."""
    return UNREADABLE if entry.descriptor is None else entry.descriptor.state.name


def _beginning(channel: str) -> str:
    return channel if len(channel) <= CHANNEL_LENGTH else f"{channel[: CHANNEL_LENGTH - 1]}…"


def _entry_row(archive: ArchiveLocation, entry: CatalogEntry) -> dict[str, Any]:
    if entry.descriptor is None:
        return {"offset": entry.offset, "state": UNREADABLE, "problem": entry.problem}
    row = asdict(entry.descriptor)
    del row["checksum_kind"], row["unknown_checksum"]
    row["checksum"] = entry.descriptor.checksum_label
    row["state"] = entry.descriptor.state.name
    row["segments"] = len(LogFile(archive, entry.descriptor).segment_base_positions())
    row["entry_offset"] = entry.offset
    row["entry_checksum"] = entry.checksum
    if entry.problem is not None:
        row["problem"] = entry.problem
    return row
