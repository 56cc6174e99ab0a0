"""`quorate recording-log DIR`: the leadership terms and snapshots that a member's `recording.log` names.

Nothing is changed or locked. Exit status: 0 read; 2 wrong usage, or no recording log there; 10 the file is damaged: the
file, the entry and its position are named.
"""

from __future__ import annotations

from typing import Any

from cluster.core.recording_log import EntryType, RecordingLog, RecordingLogEntry
from cluster.runtime.recording_log_file import read_recording_log
from service_api.errors import ClusterError
from service_api.types import NULL_POSITION

from .log.entry import format_time
from .member_directory import MemberDirectoryArgument, expect_recording_log
from .output import EXIT_UNHEALTHY, OutputFormat, OutputOption, fail, print_rows

_COLUMNS = {
    "entry_index": "index",
    "type": "type",
    "valid": "valid",
    "leadership_term_id": "term",
    "term_base_log_position": "base",
    "log_position": "position",
    "service_id": "service",
    "recording_id": "recording",
    "time": "time",
    "archive_endpoint": "archive",
}


def recording_log(directory: MemberDirectoryArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the leadership terms and snapshots of a member, in the order of the log; the member may run or not.

    `position` is where a term ends, - while it is open, or where the log was when a snapshot was taken; `service` is -1
    for the consensus module. `index` is the place in the file. What was removed is not shown.
    """
    path = expect_recording_log(directory)
    try:
        log = read_recording_log(path)
    except ClusterError as error:
        fail(EXIT_UNHEALTHY, str(error))
    print_rows(rows_of(log), output, columns=_COLUMNS, title=str(path), empty=f"{path}: no entries")


def rows_of(log: RecordingLog) -> list[dict[str, Any]]:
    """Make an object for each entry; all keys are always there."""
    return [_row(entry) for entry in log.entries]


def _row(entry: RecordingLogEntry) -> dict[str, Any]:
    is_open = entry.entry_type is EntryType.TERM and entry.log_position == NULL_POSITION
    return {
        "entry_index": entry.entry_index,
        "type": entry.entry_type.name,
        "valid": entry.is_valid,
        "leadership_term_id": entry.leadership_term_id,
        "term_base_log_position": entry.term_base_log_position,
        "log_position": None if is_open else entry.log_position,
        "service_id": entry.service_id,
        "recording_id": entry.recording_id,
        "timestamp": entry.timestamp,
        "time": format_time(entry.timestamp),
        "archive_endpoint": entry.archive_endpoint or None,
    }
