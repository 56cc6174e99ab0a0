"""A member's directory with a long log and snapshots in it, made quickly: no cluster runs for it.

The log is stamped as a leader stamps it, and recorded as a member records it. The snapshots are those of the service
under the benchmark, which the log is replayed to for this.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from trimaran.archive import Archive, ArchiveConfig, Recording
from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.cluster.runtime.files.node_state_file import NodeStateFile
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile
from trimaran.cluster.runtime.snapshots.snapshot_recording import SnapshotWriter
from trimaran.cluster.runtime.snapshots.snapshot_taker import container_messages
from trimaran.cluster.time_travel import MemberLog
from trimaran.cluster.time_travel.replay import ReplayedService, choose_snapshot
from trimaran.service_api import ClusteredService
from trimaran.service_api.types import (
    CONSENSUS_MODULE_SNAPSHOT_STREAM_ID,
    LOG_STREAM_ID,
    SERVICE_SNAPSHOT_STREAM_ID,
    ClusterSessionId,
    MemberId,
    TermId,
    TimeUnit,
)
from trimaran.service_api.wire.log.messages import ClusterAction, ClusterActionRequest, NewLeadershipTermEvent
from trimaran.service_api.wire.log.recording_log import CONSENSUS_MODULE_SERVICE_ID

from ..services.time_travel import KEY_AND_AMOUNT, KEY_COUNT
from .log_writer import LogWriter

TERM_LENGTH_BYTES: Final = 16 << 20
_SESSION_COUNT: Final = 16
_BATCH_COUNT: Final = 1000
_FIRST_TIMESTAMP_MS: Final = 1_700_000_000_000
_TERM: Final = TermId(0)


async def make_log(
    directory: Path,
    service: type[ClusteredService],
    *,
    message_count: int,
    payload_length: int,
    snapshot_count: int,
    seed: int = 0,
) -> list[int]:
    """Fill a directory with a log of session messages, and snapshots at equal distances; gives their positions."""
    config = ArchiveConfig(
        term_length_bytes=TERM_LENGTH_BYTES, segment_length_bytes=8 * TERM_LENGTH_BYTES, file_sync_level=0
    )
    archive = await Archive.launch(directory / "archive", config, clock_ms=lambda: _FIRST_TIMESTAMP_MS)
    try:
        log = await archive.start_recording(
            stream_id=LOG_STREAM_ID, session_id=-1, channel="trimaran:tcp?alias=log", source_identity="trimaran:tcp"
        )
        positions = await _write_log(log, message_count, payload_length, snapshot_count, random.Random(seed))
        (directory / "cluster").mkdir()
        NodeStateFile.open(directory / "cluster", file_sync_level=0).close()
        file = RecordingLogFile.open(directory / "cluster", file_sync_level=0)
        file.recording_log.append_term(
            recording_id=log.recording_id, leadership_term_id=_TERM, term_base_log_position=0, timestamp=0
        )
        await log.stop()
        file.recording_log.commit_log_position(_TERM, log.append_position)
        file.persist()
        for position in positions:
            await _take_snapshot(directory, archive, file, service, position)
        file.close()
    finally:
        await archive.aclose()
    return positions


async def _write_log(
    log: Recording, message_count: int, payload_length: int, snapshot_count: int, pick: random.Random
) -> list[int]:
    writer = LogWriter(log, _TERM, log_session_id=1)
    _begin_log(writer.publisher)
    batches: list[bytes] = []
    for session_id in map(ClusterSessionId, range(1, _SESSION_COUNT + 1)):
        writer.open_session(session_id, _FIRST_TIMESTAMP_MS)
        batches.append(writer.lay_out(session_id, (_payload(payload_length, pick) for _ in range(_BATCH_COUNT))))
    interval = message_count // snapshot_count if snapshot_count else message_count + 1
    positions: list[int] = []
    for number in range(0, message_count, _BATCH_COUNT):
        timestamp = _FIRST_TIMESTAMP_MS + number // _BATCH_COUNT
        writer.append(batches[number // _BATCH_COUNT % _SESSION_COUNT], timestamp)
        if (number + _BATCH_COUNT) // interval > number // interval:
            event = ClusterActionRequest(
                leadership_term_id=_TERM,
                log_position=0,
                timestamp=timestamp,
                action=ClusterAction.SNAPSHOT,
                flags=0,
            )
            positions.append(writer.publisher.append_positioned(event))
        await writer.record()
    return positions


def _begin_log(publisher: LogPublisher) -> None:
    publisher.append_positioned(
        NewLeadershipTermEvent(
            leadership_term_id=_TERM,
            log_position=0,
            timestamp=_FIRST_TIMESTAMP_MS,
            term_base_log_position=0,
            leader_member_id=MemberId(0),
            log_session_id=1,
            time_unit=TimeUnit.MILLIS,
            app_version=1,
        )
    )


def _payload(length: int, pick: random.Random) -> bytes:
    """A booking, as the service under the benchmark takes it."""
    return KEY_AND_AMOUNT.pack(pick.randrange(KEY_COUNT), pick.randrange(100)).ljust(length, b".")


async def _take_snapshot(
    directory: Path, archive: Archive, file: RecordingLogFile, service: type[ClusteredService], position: int
) -> None:
    """Replay to a position and record what a member would record there."""
    log = MemberLog.open(directory)
    start = choose_snapshot(log, "newest", service_count=1, target=position - 32)
    replayed = ReplayedService(log, [service()], start, end_position=position)
    replayed.advance()
    action = replayed.snapshot_action
    assert action is not None
    ids: list[int] = []
    parts: Sequence[tuple[int, Sequence[bytes]]] = [
        (
            SERVICE_SNAPSHOT_STREAM_ID,
            [
                *(message.encode() for message in container_messages(replayed.container, 0, action)),
                *replayed.snapshot_messages(),
            ],
        ),
        (CONSENSUS_MODULE_SNAPSHOT_STREAM_ID, [message.encode() for message in action.module_messages]),
    ]
    for stream_id, messages in parts:
        writer = await SnapshotWriter.start(archive, stream_id=stream_id, alias="snapshot", monotonic_ns=lambda: 0)
        for message in messages:
            await writer.offer(message)
        ids.append(await writer.finish())
    for recording_id, service_id in zip(ids, (0, CONSENSUS_MODULE_SERVICE_ID), strict=True):
        file.recording_log.append_snapshot(
            recording_id=recording_id,
            leadership_term_id=_TERM,
            term_base_log_position=0,
            log_position=position,
            timestamp=action.timestamp,
            service_id=service_id,
        )
    file.persist()
