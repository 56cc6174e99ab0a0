"""A log whose entries a test chooses one by one, as one segment on disk."""

from __future__ import annotations

from pathlib import Path

from trimaran.archive import RecordingDescriptor
from trimaran.archive.files.reader import MessageReader, RecordedMessage
from trimaran.archive.log.log_file import LogFile
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.service_api.types import LOG_STREAM_ID, RecordingId, TermId
from trimaran.service_api.wire.checksum import ChecksumKind
from trimaran.service_api.wire.log.messages import EntrySkip
from trimaran.service_api.wire.request import REQUEST_HEADER, REQUEST_MESSAGE
from trimaran.service_api.wire.session import SESSION_MESSAGE, SESSION_MESSAGE_HEADER

TERM_LENGTH = 1 << 16
MTU = 1408
SESSION = 7


class HandMadeLog:
    """Append entries, then `close` gives the log on disk."""

    def __init__(
        self, directory: Path, *, checksums: bool = True, checksum_kind: ChecksumKind = ChecksumKind.CRC32
    ) -> None:
        self.directory = directory
        self.checksum_kind = checksum_kind
        self.checksums = checksums
        self.buffer = LogBuffer(position=0, retained_bytes=0)
        self.publisher = LogPublisher(
            self.buffer,
            log_session_id=99,
            initial_term_id=3,
            term_length_bytes=TERM_LENGTH,
            mtu_length_bytes=MTU,
            checksums=checksums,
            checksum_kind=checksum_kind,
        )

    def request(self, sequence: int, payload: bytes, *, acknowledged: int = 0, session_id: int = SESSION) -> int:
        """Append a request; return where it ends."""
        header = REQUEST_HEADER.pack(*REQUEST_MESSAGE, 1, session_id, 1000 + sequence, sequence, acknowledged)
        return self.publisher.append_message(header + payload)

    def message(self, payload: bytes, *, session_id: int = SESSION) -> int:
        """Append a session message; return where it ends."""
        return self.publisher.append_message(SESSION_MESSAGE_HEADER.pack(*SESSION_MESSAGE, 1, session_id, 5) + payload)

    def skip(self, position: int) -> int:
        """Append what an operator has the entry skipped with that ends at a position; return where it ends."""
        skip = EntrySkip(
            leadership_term_id=TermId(1),
            log_position=0,
            timestamp=9,
            action=None,
            flags=256,
            skipped_log_position=position,
        )
        return self.publisher.append_positioned(skip)

    def close(self) -> LogFile:
        """Write it to disk."""
        data = b"".join(self.buffer.take_pending())
        descriptor = RecordingDescriptor(
            recording_id=RecordingId(0),
            start_timestamp_ms=1,
            start_position=0,
            stop_position=len(data),
            initial_term_id=3,
            segment_file_length=16 * TERM_LENGTH,
            term_buffer_length=TERM_LENGTH,
            mtu_length=MTU,
            session_id=99,
            stream_id=LOG_STREAM_ID,
            checksummed=self.checksums,
            checksum_kind=self.checksum_kind,
        )
        return write(self.directory, descriptor, data)


def write(directory: Path, descriptor: RecordingDescriptor, data: bytes) -> LogFile:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / descriptor.segment_file_name(0)).write_bytes(data.ljust(descriptor.segment_file_length, b"\0"))
    return LogFile.of(directory, descriptor)


def messages(log: LogFile) -> list[RecordedMessage]:
    """Read all messages; every frame has to be valid."""
    reader = log.reader()
    found = [*MessageReader(reader)]
    assert reader.position == log.descriptor.stop_position, reader
    return found
