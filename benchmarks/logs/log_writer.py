"""Writes a log as a leader does, without a cluster: by the classes that lay out, stamp and record in a node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...archive import Recording
from ...client.protocol.ingress_publisher import IngressPublisher
from ...cluster.core.log.log_buffer import LogBuffer
from ...cluster.core.log.log_publisher import LogPublisher
from ...service_api.errors import ConfigurationError
from ...service_api.types import ClusterSessionId, CorrelationId, TermId
from ...service_api.wire.frame import HEADER_LENGTH
from ...service_api.wire.log.messages import SessionOpenEvent
from ...service_api.wire.session_frame import PREFIX_LENGTH

_RESPONSE_STREAM_ID: Final = 102


class LogWriter:
    """Appends entries of one leadership term to a recording; `record` makes them durable, and forgets them."""

    def __init__(self, recording: Recording, term_id: TermId, *, log_session_id: int) -> None:
        descriptor = recording.descriptor
        self._recording = recording
        self._term_id = term_id
        self._mtu_length_bytes = descriptor.mtu_length
        self._buffer = LogBuffer(position=recording.append_position, retained_bytes=0)
        self.publisher: Final = LogPublisher(
            self._buffer,
            log_session_id=log_session_id,
            initial_term_id=descriptor.initial_term_id,
            term_length_bytes=descriptor.term_buffer_length,
            mtu_length_bytes=descriptor.mtu_length,
            checksums=descriptor.checksummed,
        )
        """For entries that are no messages of clients."""

    def __repr__(self) -> str:
        return f"<LogWriter position={self.position}>"

    @property
    def position(self) -> int:
        """Where the log ends."""
        return self._buffer.append_position

    def open_session(self, session_id: ClusterSessionId, timestamp: int) -> None:
        """Append the opening of a session."""
        event = SessionOpenEvent(
            leadership_term_id=self._term_id,
            correlation_id=CorrelationId(session_id),
            cluster_session_id=session_id,
            timestamp=timestamp,
            response_stream_id=_RESPONSE_STREAM_ID,
            response_channel="benchmark",
        )
        self.publisher.append_message(event.encode())

    def lay_out(self, session_id: ClusterSessionId, payloads: Iterable[bytes]) -> bytes:
        """Lay messages of a session out as its client does."""
        ingress = IngressPublisher(self._mtu_length_bytes)
        ingress.bind(leadership_term_id=self._term_id, cluster_session_id=session_id)
        for payload in payloads:
            ingress.offer(payload)
        return bytes(ingress.take())

    def append(self, messages: bytes, timestamp: int) -> None:
        """Append messages of one session that were laid out.

        Raises:
            ConfigurationError: one of them is longer than a frame.
        """
        chunk = bytearray(messages)
        prefixes = (bytes(messages[HEADER_LENGTH : HEADER_LENGTH + PREFIX_LENGTH]),)
        taken = self.publisher.append_ingress(chunk, 0, len(chunk), prefixes=prefixes, timestamp=timestamp)
        if taken != len(chunk):
            raise ConfigurationError(f"payload too long: expected one frame of at most {self._mtu_length_bytes} bytes")

    async def record(self) -> None:
        """Make everything durable that was appended."""
        recording, buffer = self._recording, self._buffer
        for chunk in buffer.take_pending():
            recording.append(chunk)
        buffer.discard_before(buffer.append_position)
        recording.flush()
        await recording.wait_recorded(recording.append_position)
