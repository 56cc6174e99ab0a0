"""A long log behind a member that does not run: what hours of traffic leave, made in seconds.

The member's own archive is opened and its log goes on where it ended, in the same leadership term: a session is opened,
and its messages are laid out, stamped and recorded by the classes that do it in a node. So a node that starts on it
replays what it would have written itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...archive import Archive, ArchiveConfig
from ...cluster.cli.demo.recordings import find_log_recording
from ...cluster.runtime.files.recording_log_file import read_recording_log
from ...service_api.types import ClusterSessionId, TermId
from ...service_api.wire.log.recording_log import RECORDING_LOG_FILE_NAME
from ..machine.disk import settle_disk
from ..rig.member_status import wait_until_delivered
from ..rig.processes import ClusterProcesses, ProcessError
from .log_writer import LogWriter

SESSION_ID: Final = ClusterSessionId(1_000_000)
"""Of the session that is opened: above any that a short run has used."""

_CHUNK_MESSAGES: Final = 2_000
_MESSAGES_PER_MS: Final = 100
_START_LIMIT_S: Final = 300.0


@dataclass(slots=True, frozen=True)
class LongLog:
    """What was added. Positions in bytes of the log."""

    start_position: int
    stop_position: int
    message_count: int
    """Messages of clients among it."""


def make_long_logs(
    cluster: ClusterProcesses, length_bytes: int, *, payload: int, member_ids: Iterable[int] = (0,)
) -> LongLog:
    """Start a cluster that was not started yet, stop it, and let the logs of some members go on with the same bytes.

    Raises:
        ClusterError: a member failed, or they did not stop at the same position.
    """
    with cluster:
        asyncio.run(wait_until_delivered(cluster, 1, time_limit_s=_START_LIMIT_S))
    begin_ms = time.time_ns() // 1_000_000
    logs = {
        asyncio.run(lengthen_log(cluster.directory_of(member_id), length_bytes, payload=payload, begin_ms=begin_ms))
        for member_id in member_ids
    }
    if len(logs) != 1:
        raise ProcessError(f"the members did not stop at the same position: {logs}")
    settle_disk()  # else the kernel writes the logs in the midst of what is measured
    return logs.pop()


async def lengthen_log(member_directory: Path, length_bytes: int, *, payload: int, begin_ms: int) -> LongLog:
    """Add messages of `payload` bytes until the log of a stopped member is `length_bytes` longer.

    Their times begin with `begin_ms`; with the same arguments the same bytes are added.

    Raises:
        ClusterError: it has no log, the directory is in use, or a message does not fit into a frame.
    """
    found = find_log_recording(member_directory)
    term_id = _last_term_id(member_directory)
    descriptor = found.log.descriptor
    config = ArchiveConfig(
        term_length_bytes=descriptor.term_buffer_length,
        segment_length_bytes=descriptor.segment_file_length,
        mtu_length_bytes=descriptor.mtu_length,
        checksums=descriptor.checksummed,
        file_sync_level=0,
    )
    archive = await Archive.launch(found.log.location.directory, config, clock_ms=lambda: time.time_ns() // 1_000_000)
    try:
        recording = await archive.extend_recording(
            descriptor.recording_id, session_id=descriptor.session_id, preallocate=False
        )
        writer = LogWriter(recording, term_id, log_session_id=descriptor.session_id)
        start_position, message_count = writer.position, 0
        writer.open_session(SESSION_ID, begin_ms)
        while writer.position < start_position + length_bytes:
            numbers = range(message_count, message_count + _CHUNK_MESSAGES)
            messages = writer.lay_out(
                SESSION_ID, (number.to_bytes(8, "little").ljust(payload, b"\0") for number in numbers)
            )
            writer.append(messages, begin_ms + message_count // _MESSAGES_PER_MS)
            message_count += _CHUNK_MESSAGES
            await writer.record()
        await recording.stop()
    finally:
        await archive.aclose()
    return LongLog(start_position, writer.position, message_count)


def _last_term_id(member_directory: Path) -> TermId:
    entry = read_recording_log(member_directory / "cluster" / RECORDING_LOG_FILE_NAME).last_term()
    if entry is None:
        raise ProcessError(f"no leadership term in the recording log: {member_directory}")
    return TermId(entry.leadership_term_id)
