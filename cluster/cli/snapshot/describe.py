"""`trimaran snapshot describe DIR`: what the consensus module wrote into its newest valid snapshot, message by message.

Nothing is changed or locked. Exit status: 0 shown; 2 wrong usage, or there is no valid snapshot; 10 the recording log,
the catalog or the snapshot is damaged.
"""

from __future__ import annotations

from typing import Any, Final

from ....archive.errors import CorruptionError
from ....archive.files.reader import MessageReader
from ....archive.log.log_file import LogFile
from ....archive.log.member_directory import MemberDirectory
from ....archive.reading.message_view import MessageViewer
from ....archive.tool.output import EXIT_UNHEALTHY, OutputFormat, OutputOption, fail, print_rows
from ....service_api.errors import ClusterError, ConfigurationError
from ....service_api.types import CONSENSUS_MODULE_SNAPSHOT_STREAM_ID
from ....service_api.wire.log.recording_log import CONSENSUS_MODULE_SERVICE_ID, RecordingLogEntry
from ...runtime.files.recording_log_file import read_recording_log
from ..archive import VOCABULARY
from ..shared.arguments import MemberDirectoryArgument, expect_recording_log

_COLUMNS: Final = {"position": "position", "name": "message", "what": "what it says"}


def describe_snapshots(directory: MemberDirectoryArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the consensus module's newest valid snapshot: its marks, ids, sessions, timers and pending messages.

    JSON has an object for each message, as `trimaran archive dump --messages`.
    """
    path = expect_recording_log(directory)
    try:
        log = read_recording_log(path)
        entry = log.latest_snapshot(CONSENSUS_MODULE_SERVICE_ID)
        if entry is None:
            fail(f"no valid snapshot: directory={directory}")
        rows = _messages(MemberDirectory.find(directory), entry)
    except ConfigurationError:
        raise
    except ClusterError as error:
        fail(str(error), EXIT_UNHEALTHY)
    title = f"log_position={entry.log_position} leadership_term_id={entry.leadership_term_id}"
    if output is OutputFormat.TABLE:
        rows = [row | {"what": _as_text(row)} for row in rows]
    print_rows(rows, output, columns=_COLUMNS, title=f"{title} recording_id={entry.recording_id}")


def _messages(member: MemberDirectory, entry: RecordingLogEntry) -> list[dict[str, Any]]:
    """Read all messages of the module's snapshot, which is as long as there are sessions, timers and messages in it.

    Raises:
        CorruptionError: it is not there, cannot be read to its end, or holds what is no such message.
    """
    readable = member.read_catalog().readable
    descriptor = next((found for found in readable if found.recording_id == entry.recording_id), None)
    if descriptor is None or descriptor.stream_id != CONSENSUS_MODULE_SNAPSHOT_STREAM_ID:
        raise CorruptionError("the archive does not have this snapshot", recording_id=entry.recording_id)
    reader = LogFile(member.archive, descriptor).reader()
    messages = list(MessageReader(reader))
    end = reader.ending()
    damage = end.damage or end.fault
    viewer = MessageViewer.of(VOCABULARY, descriptor.stream_id, messages, is_whole=True)
    rows = [{"recording_id": int(entry.recording_id)} | viewer.view(message) for message in messages]
    wrong = next((row for row in rows if "problem" in row), None)
    if wrong is not None:
        raise _unreadable(entry, str(wrong["problem"]), int(wrong["position"]))
    if damage is not None or not rows:
        raise _unreadable(entry, damage or "it is empty", reader.position)
    return rows


def _unreadable(entry: RecordingLogEntry, reason: str, position: int) -> CorruptionError:
    return CorruptionError(f"snapshot cannot be read: {reason}", recording_id=entry.recording_id, position=position)


def _as_text(row: dict[str, Any]) -> str:
    facts = [f"{name}={value}" for name, value in row["fields"].items()]
    if "payload_length" in row:
        facts.append(f"and {row['payload_length']} bytes of payload")
    return " ".join(facts)
