"""A control session on the archive's side: its identity, and the responses that it is sent.

Bounds: of what is written one chunk of a replay beyond the transport's high-water mark, and `RESPONSE_BUFFER_BYTES` of
answers that nobody reads, which end the connection.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ....service_api.documents.document import printable_line
from ....service_api.errors import RemoteProtocolError
from ....service_api.net.connection_gate import AcceptedConnection
from ....service_api.types import NULL_VALUE, CorrelationId, RecordingId
from ....service_api.wire.frame import HEADER_LENGTH, unpack_header
from ....service_api.wire.link_frames import StatusFrame
from ....service_api.wire.message import Message
from ...errors import ArchiveError
from ...format import messages
from ..control import PROTOCOL_VERSION, encode_response, is_control_frame_next, refusal_of

READ_LENGTH_BYTES: Final = 256 << 10
SEND_TIMEOUT_S: Final = 30.0
"""How long a peer without a stream may leave a full socket buffer unread before its connection is closed."""

RESPONSE_BUFFER_BYTES: Final = 1 << 20


class Stream:
    """What a connection carries besides requests. This one takes no frames, and nobody has to tell it anything."""

    def take(self, buffer: bytearray) -> bool:
        """Take frames of the stream from the front of what was received; False when there are none, or none whole.

        Raises:
            RemoteProtocolError: a frame is there that the stream cannot have: where it takes none, any but a request.
        """
        if len(buffer) >= HEADER_LENGTH and not is_control_frame_next(buffer):
            raise RemoteProtocolError(f"unexpected frame: {unpack_header(buffer)} expected a request")
        return False

    async def wait_for_room(self) -> None:
        """Return when more may be received."""

    def on_status(self, status: StatusFrame) -> None:
        """The peer has said how far it is, or how far this may go.

        Raises:
            RemoteProtocolError: the stream has no positions of the peer.
        """

    def on_keep_alive(self) -> None:
        """The peer is there."""

    async def aclose(self) -> None:
        """End it: the connection is gone, or is about to be."""


class ControlSession:
    """One peer of an archive: who it is, what is sent to it, and the stream that its connection may carry."""

    def __init__(self, writer: asyncio.StreamWriter, tasks: asyncio.TaskGroup, accepted: AcceptedConnection) -> None:
        self.accepted: Final = accepted
        self.control_session_id = NULL_VALUE
        """The id that the peer's requests carry; NULL_VALUE before it has one."""
        self.principal = b""
        self.proof_id = ""
        self.stream: Stream | None = None
        self.peer: Final = "{}:{}".format(*(writer.get_extra_info("peername") or ("?", "?"))[:2])
        self.is_closed = False
        """Whether no more requests are served."""
        self._writer = writer
        self._tasks = tasks

    def __repr__(self) -> str:
        return f"<ControlSession id={self.control_session_id} peer={self.peer} stream={self.stream!r}>"

    def describe_asked(self, request: type[Message]) -> dict[str, object]:
        """Say who asks for what, beside what its connection has shown, for the audit trail."""
        return {
            "request": request.__name__.replace("Request", ""),
            "control_session_id": self.control_session_id,
            "principal": printable_line(self.principal.decode(errors="replace")),
        }

    @property
    def is_connected(self) -> bool:
        """Whether the peer has been let in."""
        return self.control_session_id != NULL_VALUE

    @property
    def is_over(self) -> bool:
        """Whether nobody is there to be told anything."""
        return self.is_closed or self._writer.is_closing()

    @property
    def buffered_bytes(self) -> int:
        """What was written and not sent."""
        return self._writer.transport.get_write_buffer_size()

    def create_task(self, work: Any) -> asyncio.Task[None]:  # a coroutine
        """Start a task that ends with this session at the latest."""
        task: asyncio.Task[None] = self._tasks.create_task(work)
        return task

    def write(self, data: bytes) -> None:
        """Send a chunk. On a connection that is closing it is dropped, where uvloop would raise RuntimeError."""
        if not self._writer.is_closing():
            self._writer.write(data)

    def limit_buffer(self, high_bytes: int) -> None:
        """Set how many bytes may be written and not sent before `drain` waits."""
        self._writer.transport.set_write_buffer_limits(high=high_bytes)

    async def drain(self) -> None:
        """Wait for room in the socket: as long as it takes for a stream, a while for answers."""
        async with asyncio.timeout(SEND_TIMEOUT_S if self.stream is None else None):
            await self._writer.drain()

    def send(self, message: Message) -> None:
        """Send an answer or a signal.

        Raises:
            ConnectionError: the peer does not read what it asks for.
        """
        if self.buffered_bytes > RESPONSE_BUFFER_BYTES + READ_LENGTH_BYTES:
            raise ConnectionError(f"peer does not read: buffered_bytes={self.buffered_bytes}")
        self.write(encode_response(message))

    def respond(self, correlation_id: int, relevant_id: int) -> None:
        """Answer that it was done."""
        self.send(
            messages.ControlResponse(
                control_session_id=self.control_session_id,
                correlation_id=CorrelationId(correlation_id),
                relevant_id=relevant_id,
                code=messages.ControlResponseCode.OK,
                version=PROTOCOL_VERSION,
            )
        )

    def refuse(self, error: ArchiveError, correlation_id: int) -> None:
        """Answer that it was not done, and why."""
        self.send(refusal_of(error, self.control_session_id, correlation_id))

    def signal(
        self,
        signal: messages.RecordingSignal,
        *,
        recording_id: int,
        position: int,
        subscription_id: int = NULL_VALUE,
        correlation_id: int = NULL_VALUE,
    ) -> None:
        """Send the outcome of a recording; a closed session is skipped."""
        if self.is_over:
            return
        event = messages.RecordingSignalEvent(
            control_session_id=self.control_session_id,
            correlation_id=CorrelationId(correlation_id),
            recording_id=RecordingId(recording_id),
            subscription_id=subscription_id,
            position=position,
            signal=signal,
        )
        self.write(encode_response(event))

    def abort(self) -> None:
        """End the connection from elsewhere."""
        self._writer.transport.abort()
