"""Members' directories as an archive and a consensus module leave them, made of logs that a test writes down.

A log is a list of frames with their positions; members share one, or a beginning of it, and may go on differently.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from trimaran.archive.format.catalog import CATALOG_FILE_NAME, encode_catalog
from trimaran.archive.format.descriptor import RecordingDescriptor
from trimaran.cluster.core.log.recording_log import RecordedSnapshot, RecordingLog
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile
from trimaran.service_api.types import (
    LOG_STREAM_ID,
    ClusterSessionId,
    CorrelationId,
    MemberId,
    RecordingId,
    TermId,
    TimeUnit,
)
from trimaran.service_api.wire.frame import encode_message, encode_padding, frame_crc, framed_length
from trimaran.service_api.wire.log.messages import NewLeadershipTermEvent, SessionOpenEvent
from trimaran.service_api.wire.session import SessionMessageHeader

TERM_LENGTH = 65536
MTU_LENGTH = 1408


class Term(NamedTuple):
    """A leadership term of a log, and where it begins."""

    leadership_term_id: int
    base_position: int


class Log:
    """A cluster's log from position 0: its bytes, where its frames end, and its terms."""

    def __init__(self, *, clock: int = 1_000_000) -> None:
        self.data = b""
        self.terms: list[Term] = []
        self.frame_ends: list[int] = []
        self.message_ends: list[int] = []
        self.padding_ends: list[int] = []
        self._clock = clock

    @property
    def position(self) -> int:
        """Where it ends."""
        return len(self.data)

    def fork(self) -> Self:
        """A copy that may go on differently."""
        other = type(self)(clock=self._clock)
        other.data, other.terms = self.data, list(self.terms)
        other.frame_ends, other.message_ends = list(self.frame_ends), list(self.message_ends)
        other.padding_ends = list(self.padding_ends)
        return other

    def begin_term(self, leadership_term_id: int) -> int:
        """Append the entry that a new leader begins with; gives the base position of the term."""
        base_position = self.position
        self.terms.append(Term(leadership_term_id, base_position))
        self._clock += 1
        event = NewLeadershipTermEvent(
            leadership_term_id=TermId(leadership_term_id),
            log_position=0,
            timestamp=self._clock,
            term_base_log_position=base_position,
            leader_member_id=MemberId(0),
            log_session_id=7,
            time_unit=TimeUnit.MILLIS,
            app_version=0,
        )
        length = framed_length(len(event.encode()), MTU_LENGTH)
        room = TERM_LENGTH - base_position % TERM_LENGTH
        start = base_position if length <= room else base_position + room
        self._append(event.model_copy(update={"log_position": start + length}).encode())
        return base_position

    def open_session(self) -> int:
        """Append the beginning of the session that sends all messages; gives the position after it."""
        self._clock += 1
        return self._append(
            SessionOpenEvent(
                leadership_term_id=TermId(self.terms[-1].leadership_term_id),
                correlation_id=CorrelationId(1),
                cluster_session_id=ClusterSessionId(1),
                timestamp=self._clock,
                response_stream_id=1,
                response_channel="test",
                encoded_principal=b"",
            ).encode()
        )

    def message(self, text: bytes | str) -> int:
        """Append a session message; gives the position behind it."""
        self._clock += 1
        header = SessionMessageHeader(
            leadership_term_id=TermId(self.terms[-1].leadership_term_id),
            cluster_session_id=ClusterSessionId(1),
            timestamp=self._clock,
        )
        return self._append(header.encode() + (text.encode() if isinstance(text, str) else text))

    def _append(self, payload: bytes) -> int:
        room = TERM_LENGTH - self.position % TERM_LENGTH
        if framed_length(len(payload), MTU_LENGTH) > room:
            self._add(encode_padding(room, stream_id=LOG_STREAM_ID, **self._place()))
            self.padding_ends.append(self.position)
        frames = encode_message(
            payload, stream_id=LOG_STREAM_ID, mtu_length=MTU_LENGTH, checksum_kind=None, **self._place()
        )
        self._add(frames)
        self.message_ends.append(self.position)
        return self.position

    def _place(self) -> dict[str, int]:
        return {"term_id": self.position // TERM_LENGTH, "term_offset": self.position % TERM_LENGTH}

    def _add(self, frames: bytes) -> None:
        stamped, offset = bytearray(frames), 0
        while offset < len(frames):
            length = int.from_bytes(frames[offset : offset + 4], "little")
            if frames[offset + 6] == 1:
                stamped[offset + 12 : offset + 16] = frame_crc(frames, offset, length).to_bytes(
                    4, "little", signed=True
                )
            offset += (length + 31) & -32
            self.frame_ends.append(self.position + offset)
        self.data += bytes(stamped)


@dataclass(slots=True, kw_only=True)
class MemberFiles:
    """One member's directory; `write` makes it be what the fields say."""

    directory: Path
    log: Log
    stop_position: int | None = None
    """How much of the log it has recorded; None for all of it."""
    start_position: int = 0
    """Where its log begins after a purge: the base of a segment."""
    marked_terms: int | None = None
    """How many terms of the log its `recording.log` has; None for all of them."""
    snapshots: Sequence[Term] = ()
    """Positions of snapshots, with the term in which they were taken."""
    recording_id: int = 0
    is_stopped: bool = False
    start_timestamp_ms: int = 1

    @property
    def archive(self) -> Path:
        """Where its recordings are."""
        return self.directory / "archive"

    def descriptor(self) -> RecordingDescriptor:
        """What its catalog says of the log."""
        end = self.log.position if self.stop_position is None else self.stop_position
        return RecordingDescriptor(
            recording_id=RecordingId(self.recording_id),
            start_timestamp_ms=self.start_timestamp_ms,
            start_position=self.start_position,
            stop_position=end if self.is_stopped else None,
            initial_term_id=0,
            segment_file_length=TERM_LENGTH,
            term_buffer_length=TERM_LENGTH,
            mtu_length=MTU_LENGTH,
            session_id=7,
            stream_id=LOG_STREAM_ID,
            checksummed=True,
        )

    def write(self) -> Path:
        """Write the directory again; gives it."""
        self.wipe()
        self.archive.mkdir(parents=True)
        descriptor = self.descriptor()
        (self.archive / CATALOG_FILE_NAME).write_bytes(
            encode_catalog([descriptor], next_recording_id=self.recording_id + 1)
        )
        end = self.log.position if self.stop_position is None else self.stop_position
        for base in range(self.start_position, end + 1, TERM_LENGTH):
            data = self.log.data[base : min(base + TERM_LENGTH, end)]
            (self.archive / descriptor.segment_file_name(base)).write_bytes(data.ljust(TERM_LENGTH, b"\0"))
        self._write_recording_log()
        return self.directory

    def wipe(self) -> None:
        """Take the directory away, as after a disk was replaced."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _write_recording_log(self) -> None:
        (self.directory / "cluster").mkdir()
        file = RecordingLogFile.open(self.directory / "cluster", file_sync_level=0)
        recording_log: RecordingLog = file.recording_log
        for term in self.log.terms[: self.marked_terms]:
            recording_log.append_term(
                recording_id=self.recording_id,
                leadership_term_id=term.leadership_term_id,
                term_base_log_position=term.base_position,
                timestamp=1,
            )
        for snapshot in self.snapshots:
            base = next(t.base_position for t in self.log.terms if t.leadership_term_id == snapshot.leadership_term_id)
            for service_id in (0, -1):
                recording_log.append_snapshot(
                    RecordedSnapshot(
                        recording_id=100 + service_id,
                        leadership_term_id=snapshot.leadership_term_id,
                        term_base_log_position=base,
                        log_position=snapshot.base_position,
                        timestamp=1,
                        service_id=service_id,
                    )
                )
        file.persist()
        file.close()


@cache
def make_log(*, clock: int = 1_000_000, message_count: int = 600) -> Log:
    """A log of some terms of 64 KiB, with a long message now and then. It is shared: fork it to append."""
    log = Log(clock=clock)
    log.begin_term(0)
    for i in range(message_count):
        log.message(f"message {i} " * (400 if i % 50 == 7 else i % 40))
    return log


def positions_of(batches: Sequence[object]) -> list[int]:
    """The positions in record batches that have such a column, in order."""
    columns = [np.asarray(batch.column("position")) for batch in batches]  # type: ignore[attr-defined]
    return [] if not columns else np.concatenate(columns).tolist()
