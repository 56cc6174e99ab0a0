"""Holds the members' log recordings against each other, byte for byte.

One position means the same bytes everywhere: up to the shortest end, the recordings of stopped members must
be equal. Equal is not enough, an empty prefix is equal too, so the requests in the common part are counted as
well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trimaran.archive.format.descriptor import RecordingDescriptor
from trimaran.archive.format.layout import clip
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import MemberDirectory
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.wire.frame import TYPE_DATA, FrameLayout, iter_headers
from trimaran.service_api.wire.session_frame import PAYLOAD_OFFSET, REQUEST_BLOCK, SESSION_BLOCK, SessionField

from .demo_errors import DemoFailedError

COMPARE_CHUNK_BYTES: Final = 1 << 20
_MESSAGE: Final = FrameLayout(SessionField.BLOCK_AND_TEMPLATE, SessionField.CLUSTER_SESSION_ID).head


@dataclass(slots=True, frozen=True)
class MemberRecording:
    """One member's log as it lies on disk."""

    archive_directory: Path
    descriptor: RecordingDescriptor

    @property
    def stop_position(self) -> int:
        """The end of the recording, which its member has stopped."""
        assert self.descriptor.stop_position is not None
        return self.descriptor.stop_position

    def chunks(self, stop_position: int) -> Iterator[bytes]:
        """The bytes [start, `stop_position`), in pieces that do not depend on the member."""
        descriptor = self.descriptor
        slices = clip(
            descriptor.start_position,
            stop_position,
            recording_start_position=descriptor.start_position,
            term_length_bytes=descriptor.term_buffer_length,
            segment_length_bytes=descriptor.segment_file_length,
        )
        for base_position, start, stop in slices:
            with (self.archive_directory / descriptor.segment_file_name(base_position)).open("rb") as segment:
                segment.seek(start - base_position)
                for position in range(start, stop, COMPARE_CHUNK_BYTES):
                    yield segment.read(min(COMPARE_CHUNK_BYTES, stop - position))


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
    return MemberRecording(log.location.directory, log.descriptor)


def are_identical(recordings: Sequence[MemberRecording]) -> bool:
    """Whether the recordings hold the same bytes from their start up to the shortest end."""
    if len({recording.descriptor.start_position for recording in recordings}) > 1:
        return False
    end = min(recording.stop_position for recording in recordings)
    for pieces in zip(*(recording.chunks(end) for recording in recordings), strict=True):
        if any(piece != pieces[0] for piece in pieces[1:]):
            return False
    return True


def count_session_messages(recording: MemberRecording, cluster_session_id: int) -> int:
    """How many messages of one client session the recording holds."""
    log = b"".join(recording.chunks(recording.stop_position))
    count = end = 0
    for offset, header in iter_headers(log):
        end = offset + header.aligned_length
        if header.type == TYPE_DATA and header.frame_length >= PAYLOAD_OFFSET:
            block, session_id = _MESSAGE.unpack_from(log, offset)
            count += block in (SESSION_BLOCK, REQUEST_BLOCK) and session_id == cluster_session_id
    if end < len(log):
        raise DemoFailedError(f"log recording has a hole: {recording.archive_directory} position={end}")
    return count
