"""A long log behind a member that does not run: what hours of traffic leave, made in seconds.

The member's own archive is opened and its log goes on where it ended, in the same leadership term: a session is opened,
and its messages are laid out, stamped and recorded by the classes that do it in a node. So a node that starts on it
replays what it would have written itself.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from archive import Archive, ArchiveConfig
from client.ingress_publisher import IngressPublisher
from cluster.cli.demo.recordings import find_log_recording
from cluster.core.log_buffer import LogBuffer
from cluster.core.log_publisher import LogPublisher
from cluster.core.recording_log import RecordingLog
from cluster.messages.log import SessionOpenEvent
from cluster.runtime.recording_log_file import RECORDING_LOG_FILE_NAME
from service_api.types import ClusterSessionId, CorrelationId, TermId
from service_api.wire.session import SESSION_MESSAGE

from .processes import ProcessError

SESSION_ID: Final = ClusterSessionId(1_000_000)
"""Of the session that is opened: above any that a short run has used."""

_CHUNK_MESSAGES: Final = 2_000
_MESSAGES_PER_MS: Final = 100
INGRESS_PREFIX: Final = struct.Struct("<HHHHqq")
"""What every message of a session begins with in a term."""


@dataclass(slots=True, frozen=True)
class LongLog:
    """What was added. Positions in bytes of the log."""

    start_position: int
    stop_position: int
    message_count: int
    """Messages of clients among it."""


async def lengthen_log(member_directory: Path, length_bytes: int, *, payload: int, begin_ms: int) -> LongLog:
    """Add messages of `payload` bytes until the log of a stopped member is `length_bytes` longer.

    Their times begin with `begin_ms`; with the same arguments the same bytes are added.

    Raises:
        ClusterError: it has no log, or the directory is in use.
    """
    found = find_log_recording(member_directory)
    term_id = _last_term_id(member_directory)
    descriptor = found.descriptor
    config = ArchiveConfig(
        term_length_bytes=descriptor.term_buffer_length,
        segment_length_bytes=descriptor.segment_file_length,
        mtu_length_bytes=descriptor.mtu_length,
        checksums=descriptor.checksummed,
        file_sync_level=0,
    )
    archive = await Archive.launch(found.archive_directory, config, clock_ms=lambda: time.time_ns() // 1_000_000)
    try:
        recording = await archive.extend_recording(
            descriptor.recording_id, session_id=descriptor.session_id, preallocate=False
        )
        start_position = recording.append_position
        buffer = LogBuffer(position=start_position, retained_bytes=0)
        publisher = LogPublisher(
            buffer,
            log_session_id=descriptor.session_id,
            initial_term_id=descriptor.initial_term_id,
            term_length_bytes=descriptor.term_buffer_length,
            mtu_length_bytes=descriptor.mtu_length,
            checksums=descriptor.checksummed,
        )
        publisher.append_message(_opened(term_id, begin_ms))
        ingress = IngressPublisher(descriptor.mtu_length)
        ingress.bind(leadership_term_id=term_id, cluster_session_id=SESSION_ID)
        prefix = INGRESS_PREFIX.pack(*SESSION_MESSAGE, term_id, SESSION_ID)
        message_count = 0
        while buffer.append_position < start_position + length_bytes:
            for number in range(message_count, message_count + _CHUNK_MESSAGES):
                ingress.offer(number.to_bytes(8, "little").ljust(payload, b"\0"))
            chunk = ingress.take()
            timestamp = begin_ms + message_count // _MESSAGES_PER_MS
            publisher.append_ingress(chunk, 0, len(chunk), prefix=prefix, timestamp=timestamp)
            message_count += _CHUNK_MESSAGES
            for stamped in buffer.take_pending():
                recording.append(stamped)
            recording.flush()
            buffer.discard_before(buffer.append_position)
            await recording.wait_recorded(recording.append_position)
        await recording.stop()
    finally:
        await archive.aclose()
    return LongLog(start_position, buffer.append_position, message_count)


def _last_term_id(member_directory: Path) -> TermId:
    entry = RecordingLog.parse((member_directory / "cluster" / RECORDING_LOG_FILE_NAME).read_bytes()).last_term()
    if entry is None:
        raise ProcessError(f"no leadership term in the recording log: {member_directory}")
    return TermId(entry.leadership_term_id)


def _opened(term_id: TermId, timestamp_ms: int) -> bytes:
    return SessionOpenEvent(
        leadership_term_id=term_id,
        correlation_id=CorrelationId(1),
        cluster_session_id=SESSION_ID,
        timestamp=timestamp_ms,
        response_stream_id=102,
        response_channel="benchmark",
    ).encode()
