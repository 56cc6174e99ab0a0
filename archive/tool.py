"""`quorate archive describe|verify|dump DIR`: look into an archive directory without changing it.

Exit status: 0 fine, 10 `verify` found something wrong, 2 the directory or an option cannot be used.
`build_app` takes the messages that `dump --messages` decodes; `app` knows every message class that the program
has imported.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from service_api.wire.message import MESSAGES

from .catalog import CatalogEntry
from .dump import build_dump
from .file_system import OsFileSystem
from .layout import parse_segment_file_name
from .message_view import Vocabulary
from .output import EXIT_UNHEALTHY, OutputFormat, OutputOption, print_rows
from .selection import DirectoryArgument, RecordingOption, load_catalog, select_entries
from .verify import RecordingVerdict, verify_recording


class ChecksumMode(StrEnum):
    """Whether frames are checked against a CRC-32: as the catalog says, always, or never."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


ChecksumOption = Annotated[ChecksumMode, typer.Option("--checksum", help="Whether frames carry a CRC-32.")]


def build_app(vocabulary: Vocabulary) -> typer.Typer:
    """Make the command group; `vocabulary` holds the messages that `dump --messages` decodes."""
    group = typer.Typer(
        help="Look into recordings: describe, verify, dump.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group.command()(describe)
    group.command()(verify)
    group.command()(build_dump(vocabulary))
    return group


def describe(
    directory: DirectoryArgument,
    recording_id: RecordingOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print what the catalog says about each recording."""
    content = load_catalog(directory)
    entries = select_entries(content, recording_id)
    segments = _segment_counts(directory)
    rows = [_describe_row(entry, segments) for entry in entries]
    columns = {
        "recording_id": "id",
        "state": "state",
        "start_position": "start",
        "stop_position": "stop",
        "stream_id": "stream",
        "segments": "segments",
        "checksummed": "crc",
        "original_channel": "channel",
    }
    print_rows(rows, output, title=str(directory), columns=columns)


def verify(
    directory: DirectoryArgument,
    recording_id: RecordingOption = None,
    checksum: ChecksumOption = ChecksumMode.AUTO,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Check every frame of every recording; exit status 10 when something is wrong."""
    entries = select_entries(load_catalog(directory), recording_id)
    checksums = None if checksum is ChecksumMode.AUTO else checksum is ChecksumMode.ON
    with Progress(
        TextColumn("recording {task.fields[recording_id]}"),
        BarColumn(),
        TextColumn("{task.completed:,} bytes"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as progress:
        verdicts = [_verify_entry(directory, entry, checksums, progress) for entry in entries]
    columns = {
        "recording_id": "id",
        "verdict": "verdict",
        "frame_count": "frames",
        "start_position": "start",
        "stop_position": "stop",
        "checksummed": "crc",
        "remarks": "remarks",
    }
    print_rows((_verdict_row(verdict) for verdict in verdicts), output, title=str(directory), columns=columns)
    if not all(verdict.is_ok for verdict in verdicts):
        raise typer.Exit(EXIT_UNHEALTHY)


app: Final = build_app(Vocabulary(MESSAGES, {}))
"""The command group, decoding every message class that the program has imported."""


def _segment_counts(directory: Path) -> dict[int, int]:
    counts: dict[int, int] = {}
    for name in OsFileSystem().list_directory(directory):
        parsed = parse_segment_file_name(name)
        if parsed is not None:
            counts[parsed[0]] = counts.get(parsed[0], 0) + 1
    return counts


def _describe_row(entry: CatalogEntry, segments: dict[int, int]) -> dict[str, Any]:
    if entry.descriptor is None:
        return {"offset": entry.offset, "state": "UNREADABLE", "problem": entry.problem}
    row = asdict(entry.descriptor)
    row["state"] = entry.descriptor.state.name
    row["segments"] = segments.get(entry.descriptor.recording_id, 0)
    row["entry_offset"] = entry.offset
    row["entry_checksum"] = entry.checksum
    if entry.problem is not None:
        row["problem"] = entry.problem
    return row


def _verify_entry(directory: Path, entry: CatalogEntry, checksums: bool | None, progress: Progress) -> RecordingVerdict:
    descriptor = entry.descriptor
    total = None
    if descriptor is not None and descriptor.stop_position is not None:
        total = descriptor.stop_position - descriptor.start_position
    task = progress.add_task("verify", total=total, recording_id="?" if descriptor is None else descriptor.recording_id)
    start_position = 0 if descriptor is None else descriptor.start_position

    def on_progress(position: int) -> None:
        progress.update(task, completed=position - start_position)

    try:
        return verify_recording(OsFileSystem(), directory, entry, checksums=checksums, on_progress=on_progress)
    except OSError as error:
        recording_id = -1 if descriptor is None else descriptor.recording_id
        return RecordingVerdict(recording_id, None, problems=[f"not readable: {error}"])
    finally:
        progress.remove_task(task)


def _verdict_row(verdict: RecordingVerdict) -> dict[str, Any]:
    return {
        "recording_id": verdict.recording_id,
        "verdict": "skipped" if verdict.skipped else "ok" if verdict.is_ok else "wrong",
        "state": None if verdict.state is None else verdict.state.name,
        "frame_count": verdict.frame_count,
        "start_position": verdict.start_position,
        "stop_position": verdict.stop_position,
        "checksummed": verdict.checksummed,
        "problems": verdict.problems,
        "warnings": verdict.warnings,
        "remarks": "; ".join([*verdict.problems, *verdict.warnings]),
    }
