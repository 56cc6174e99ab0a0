"""`trimaran archive pid|errors`: show from the mark file which process ran on a directory, and its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ...errors import ArchiveError
from ...files.mark_file import MARK_FILE_NAME, read_archive_mark_file
from ...format.error_records import error_records
from ...format.messages import ArchiveMarkFileHeader
from ..output import OutputFormat, OutputOption, fail, format_time, print_rows
from ..selection import DirectoryArgument
from .rows import printable_text

_ERROR_COLUMNS: Final = {"count": "count", "first": "first", "last": "last", "error": "error"}


def pid(directory: DirectoryArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the process that runs on a directory, or ran there last, its start time and its last activity.

    `activity` is - after an orderly stop.
    """
    header, _ = _read(directory)
    row = {
        "pid": header.pid,
        "start": format_time(header.start_timestamp),
        "activity": format_time(header.activity_timestamp),
    }
    print_rows([row], output)


def archive_errors(directory: DirectoryArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the distinct errors that an Aeron archive recorded. For a Trimaran member use `trimaran errors`."""
    _, area = _read(directory)
    rows = []
    for record in sorted(error_records(area), key=lambda record: record.last_ms):
        headline, _, trace = record.text.partition(b"\n")
        row = {"count": record.count, "first": format_time(record.first_ms), "last": format_time(record.last_ms)}
        rows.append(
            row | {"error": printable_text(headline), "trace": [printable_text(line) for line in trace.splitlines()]}
        )
    print_rows(rows, output, columns=_ERROR_COLUMNS, empty="no errors")


def _read(directory: Path) -> tuple[ArchiveMarkFileHeader, bytes]:
    try:
        return read_archive_mark_file(directory)
    except FileNotFoundError:
        fail(f"no archive has run here: directory={directory} expected {MARK_FILE_NAME} in it")
    except (ArchiveError, OSError) as error:
        fail(str(error))
