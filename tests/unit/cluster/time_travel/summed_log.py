"""A member's directory with a log of several blocks, made without a cluster, and the service that it was made for."""

from __future__ import annotations

import random
import struct
from pathlib import Path

from trimaran.archive import Archive, ArchiveConfig
from trimaran.benchmarks.logs.log_writer import LogWriter
from trimaran.cluster.runtime.files.node_state_file import NodeStateFile
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile
from trimaran.service_api import ClientSession, ClusteredService
from trimaran.service_api.types import LOG_STREAM_ID, ClusterSessionId, MemberId, TermId, TimeUnit
from trimaran.service_api.wire.log.messages import NewLeadershipTermEvent

KEY_AND_AMOUNT = struct.Struct("<qq")
SESSION_COUNT = 16
BATCH = 1_000
BEGIN_MS = 1_700_000_000_000


class SumService(ClusteredService):
    """Adds the amount of each message to the sum of its key."""

    def __init__(self) -> None:
        self.sums: dict[int, int] = {}
        self.message_count = 0

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        key, amount = KEY_AND_AMOUNT.unpack_from(payload)
        self.sums[key] = self.sums.get(key, 0) + amount
        self.message_count += 1


async def make_summed_log(directory: Path, message_count: int) -> None:
    """Fill a directory with a log of messages of 60 bytes, in batches of one session after the other."""
    pick, term = random.Random(0), TermId(0)
    config = ArchiveConfig(term_length_bytes=16 << 20, segment_length_bytes=128 << 20, file_sync_level=0)
    archive = await Archive.launch(directory / "archive", config, clock_ms=lambda: BEGIN_MS)
    try:
        log = await archive.start_recording(
            stream_id=LOG_STREAM_ID, session_id=-1, channel="trimaran:tcp?alias=log", source_identity="trimaran:tcp"
        )
        writer = LogWriter(log, term, log_session_id=1)
        writer.publisher.append_positioned(
            NewLeadershipTermEvent(
                leadership_term_id=term,
                log_position=0,
                timestamp=BEGIN_MS,
                term_base_log_position=0,
                leader_member_id=MemberId(0),
                log_session_id=1,
                time_unit=TimeUnit.MILLIS,
                app_version=1,
            )
        )
        for number in range(SESSION_COUNT):
            writer.open_session(ClusterSessionId(1 + number), BEGIN_MS)
        for number in range(message_count // BATCH):
            payloads = (KEY_AND_AMOUNT.pack(pick.randrange(1_000), pick.randrange(100)) for _ in range(BATCH))
            session_id = ClusterSessionId(1 + number % SESSION_COUNT)
            writer.append(
                writer.lay_out(session_id, (payload.ljust(60, b".") for payload in payloads)), BEGIN_MS + number
            )
            await writer.record()
        (directory / "cluster").mkdir()
        NodeStateFile.open(directory / "cluster", file_sync_level=0).close()
        file = RecordingLogFile.open(directory / "cluster", file_sync_level=0)
        file.recording_log.append_term(
            recording_id=log.recording_id, leadership_term_id=term, term_base_log_position=0, timestamp=0
        )
        await log.stop()
        file.recording_log.commit_log_position(term, log.append_position)
        file.persist()
        file.close()
    finally:
        await archive.aclose()
