"""Reads what the members of a simulated cluster have on their disks: their logs and their candidate terms.

No member is asked: everything is as a power loss would leave it now.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from ....service_api.types import MemberId
from ....service_api.wire.log.recording_log import RECORDING_LOG_FILE_NAME, RecordingLogEntry
from ....service_api.wire.message import decode_message, registry_of
from ...core.log.recording_log import RecordingLog
from ...messages.nodestate import CandidateTerm
from ...runtime.files.node_state_file import NODE_STATE_FILE_NAME
from ...runtime.repair.coming_back import ASIDE_SUFFIX
from .cluster import DIRECTORY, Member
from .kept_log import KeptLog, read_kept_log

_CANDIDATE_TERM_OFFSET: Final = 8
_CANDIDATE_TERM_LENGTH: Final = 40


class MemberDisks:
    """The disks of all members of one cluster."""

    def __init__(self) -> None:
        self.kept_logs: dict[MemberId, tuple[tuple[object, ...], KeptLog]] = {}
        """Where the log of each member begins, and what was looked at to know."""
        self._paths: dict[tuple[int, int], Path] = {}
        """Segment files by recording and base position; making a path takes longer than reading from it."""

    def __repr__(self) -> str:
        return f"<MemberDisks {self.kept_logs}>"

    def durable_log(self, member: Member, begin: int, end: int) -> bytes:
        """Read the log of a member, as a power loss would leave it; shorter where it ends."""
        return self._read_log(member, begin, end, member.machine.disk.durable_read)

    def is_durable(self, member: Member, begin: int, end: int) -> bool:
        """Whether a power loss would leave the log of a member there as the member reads it itself, all of it."""
        read = member.machine.disk.durable_as_visible
        return len(self._read_log(member, begin, end, read)) == end - begin

    def has_set_aside(self, member: Member) -> bool:
        """Whether the member has set a log aside that it could not trust."""
        names = member.machine.disk.list_directory(DIRECTORY / "cluster")
        return RECORDING_LOG_FILE_NAME + ASIDE_SUFFIX in names

    def kept_log(self, member: Member) -> KeptLog:
        """Which recording the log of a member is, and where it begins, durably; read again when it may have changed."""
        node, disk = member.node, member.machine.disk
        seen = disk, node, 0 if node is None else node.log_start_position
        known = self.kept_logs.get(member.member_id)
        if known is not None and known[0] == seen:
            return known[1]
        found = read_kept_log(disk)
        if found is None:
            found = known[1] if known is not None and known[0][0] is disk else KeptLog()
        self.kept_logs[member.member_id] = seen, found
        return found

    def _read_log(self, member: Member, begin: int, end: int, read: Callable[[Path, int, int], bytes]) -> bytes:
        recording_id = self.kept_log(member).recording_id
        segment_length = member.config.segment_length_bytes
        parts = []
        position = begin
        while position < end:
            base = position - position % segment_length
            length = min(end, base + segment_length) - position
            path = self._paths.get((recording_id, base))
            if path is None:
                path = self._paths[recording_id, base] = DIRECTORY / "archive" / f"{recording_id}-{base}.rec"
            parts.append(read(path, length, position - base))
            if len(parts[-1]) < length:
                break
            position += length
        return b"".join(parts)


def durable_candidate_term(member: Member) -> int | None:
    """Read a member's candidate term; None where there is none."""
    path = DIRECTORY / "cluster" / NODE_STATE_FILE_NAME
    data = member.machine.disk.durable_read(path, _CANDIDATE_TERM_LENGTH, _CANDIDATE_TERM_OFFSET)
    if len(data) < _CANDIDATE_TERM_LENGTH:
        return None
    message = decode_message(data, registry=registry_of(CandidateTerm))
    assert isinstance(message, CandidateTerm)
    return message.candidate_term_id


def durable_last_term(member: Member) -> RecordingLogEntry | None:
    """Read the last term of a member's recording log."""
    path = DIRECTORY / "cluster" / RECORDING_LOG_FILE_NAME
    return RecordingLog.parse(member.machine.disk.durable_read(path, 1 << 30, 0)).last_term()
