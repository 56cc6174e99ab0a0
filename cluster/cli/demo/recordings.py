"""Compares the log recordings of the members, byte for byte.

One position means the same bytes everywhere: up to the shortest end, the recordings of stopped members must
be equal. Equal is not enough, an empty prefix is equal too, so the requests in the common part are counted as
well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ....archive.files.reader import MessageReader
from ....archive.log.log_file import LogFile
from ....archive.log.member_directory import MemberDirectory
from ....archive.reading.difference import find_mismatch
from ....service_api.errors import ConfigurationError
from ....service_api.wire.log.fields import read_log_fields
from ....service_api.wire.log.layout import SESSION_MESSAGE_HEADER
from .demo_errors import DemoFailedError


@dataclass(slots=True, frozen=True)
class MemberRecording:
    """One member's log as it lies on disk, stopped."""

    log: LogFile

    @property
    def stop_position(self) -> int:
        """The end of the recording, which its member has stopped."""
        assert self.log.descriptor.stop_position is not None
        return self.log.descriptor.stop_position


def find_log_recording(member_directory: Path) -> MemberRecording:
    """Find the log among a stopped member's recordings.

    Raises:
        DemoFailedError: there is none, or it was not stopped in order.
    """
    try:
        log = LogFile.find(MemberDirectory.find(member_directory))
    except ConfigurationError as error:
        raise DemoFailedError(f"no log recording found: directory={member_directory}") from error
    if log.descriptor.stop_position is None:
        raise DemoFailedError(f"log recording was not stopped: directory={log.location}")
    return MemberRecording(log)


def are_identical(recordings: Sequence[MemberRecording]) -> bool:
    """Whether the recordings hold the same frames from their start up to the shortest end."""
    first, *others = recordings
    start = first.log.descriptor.start_position
    if any(other.log.descriptor.start_position != start for other in others):
        return False
    end = min(recording.stop_position for recording in recordings)
    return all(find_mismatch(first.log, other.log, start, end) is None for other in others)


def count_session_messages(recording: MemberRecording, cluster_session_id: int) -> int:
    """How many messages of one client session the recording holds."""
    reader = recording.log.reader()
    found = [read_log_fields(message.payload) for message in MessageReader(reader)]
    end = reader.ending()
    if end.damage is not None:
        raise DemoFailedError(
            f"log recording is damaged: {recording.log.location} position={end.position}: {end.damage}"
        )
    wanted = SESSION_MESSAGE_HEADER, cluster_session_id
    return sum((fields.template_id, fields.cluster_session_id) == wanted for fields in found)
