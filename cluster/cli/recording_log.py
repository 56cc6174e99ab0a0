"""`trimaran recording-log DIR`: the leadership terms and snapshots that a member's `recording.log` names.

For programs an entry has the names that Aeron's own class gives its parts, so that two members, or a member and what
another tool said of it, are compared with `diff`. Nothing is changed or locked. Exit status: 0 read; 2 wrong usage, or
no recording log there; 10 the file is damaged: the file, the entry and its position are named.
"""

from __future__ import annotations

from typing import Any

from ...archive.tool.output import EXIT_UNHEALTHY, OutputFormat, OutputOption, fail, format_time, print_rows
from ...service_api.errors import ClusterError
from ...service_api.types import NULL_POSITION
from ...service_api.wire.log.recording_log import EntryType, RecordingLogEntry
from ..core.log.recording_log import RecordingLog
from ..runtime.files.recording_log_file import read_recording_log
from .shared.arguments import MemberDirectoryArgument, expect_recording_log


def recording_log(directory: MemberDirectoryArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the leadership terms and snapshots of a member, in the order of the log.

    `position` is where a term ends, - while it is open, or where the log was when a snapshot was taken; `service` is -1
    for the consensus module. `index` is the place in the file. Removed entries are not shown. JSON has Aeron's names
    and values: -1 for the end of an open term.
    """
    path = expect_recording_log(directory)
    try:
        log = read_recording_log(path)
    except ClusterError as error:
        fail(str(error), EXIT_UNHEALTHY)
    rows = map(_table_row, log.entries) if output is OutputFormat.TABLE else rows_of(log)
    print_rows(rows, output, title=str(path), empty=f"{path}: no entries")


def rows_of(log: RecordingLog) -> list[dict[str, Any]]:
    """Make an object for each entry, as Aeron names its parts; all keys are always there."""
    return [_row(entry) for entry in log.entries]


def _row(entry: RecordingLogEntry) -> dict[str, Any]:
    return {
        "entryIndex": entry.entry_index,
        "filePosition": entry.file_position,
        "length": entry.length,
        "recordingId": entry.recording_id,
        "leadershipTermId": entry.leadership_term_id,
        "termBaseLogPosition": entry.term_base_log_position,
        "logPosition": entry.log_position,
        "timestamp": entry.timestamp,
        "serviceId": entry.service_id,
        "type": int(entry.entry_type),
        "typeName": entry.entry_type.name,
        "isValid": entry.is_valid,
        "archiveEndpoint": entry.archive_endpoint or None,
    }


def _table_row(entry: RecordingLogEntry) -> dict[str, Any]:
    is_open = entry.entry_type is EntryType.TERM and entry.log_position == NULL_POSITION
    return {
        "index": entry.entry_index,
        "type": entry.entry_type.name,
        "valid": entry.is_valid,
        "term": entry.leadership_term_id,
        "base": entry.term_base_log_position,
        "position": None if is_open else entry.log_position,
        "service": entry.service_id,
        "recording": entry.recording_id,
        "time": format_time(entry.timestamp),
        "archive": entry.archive_endpoint or None,
    }
