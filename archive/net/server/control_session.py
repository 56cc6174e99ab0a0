"""One connection to an archive, on the archive's side: who it is, its requests in order, and its one stream.

Requests are answered in the order in which they came; a refusal is an answer. What breaks the protocol is said, and
ends the connection. Whoever is silent for the idle timeout, replay or not, is taken for dead: clients keep alive.
Bounds: one control frame of 64 KiB; of a publication what one window allows; of what is written one chunk of a replay
beyond the transport's high-water mark, and `RESPONSE_BUFFER_BYTES` of answers that nobody reads, which end it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from trimaran.service_api.errors import RemoteProtocolError
from trimaran.service_api.types import NULL_VALUE, CorrelationId, RecordingId
from trimaran.service_api.wire.frame import (
    HEADER_LENGTH,
    TYPE_DATA,
    TYPE_SETUP,
    TYPE_STATUS,
    SetupFrame,
    StatusFrame,
)
from trimaran.service_api.wire.message import Message, decode_message, registry_of
from trimaran.service_api.wire.stream import Frame

from ...errors import ArchiveError, ArchiveErrorCode
from ...format import messages
from ...store.conductor import Archive
from ..control import (
    CONTROL_STREAM_ID,
    EVENTS_STREAM_ID,
    PROTOCOL_VERSION,
    RESPONSE_STREAM_ID,
    encode_response,
    is_control_frame_next,
    major_version,
    refusal_of,
    take_control_frame,
)
from .admission import Admission

if TYPE_CHECKING:
    from .archive_server import ArchiveServer

READ_LENGTH_BYTES: Final = 256 << 10
SEND_TIMEOUT_S: Final = 30.0
"""How long a peer without a stream may leave a full socket buffer unread before its connection is closed."""

RESPONSE_BUFFER_BYTES: Final = 1 << 20

_REQUESTS: Final = registry_of(*messages.CONTROL_REQUESTS.values())
_log = structlog.get_logger(__name__)

Handler = Callable[["ControlSession", Any], Awaitable[None]]
"""Serves one kind of request; what it raises is the answer."""


class Stream(Protocol):
    """What a connection carries besides requests."""

    def take(self, buffer: bytearray) -> bool:
        """Take frames of the stream from the front of what was received; False when there are none, or none whole.

        Raises:
            RemoteProtocolError: a frame is there that the stream cannot have.
        """

    async def wait_for_room(self) -> None:
        """Return when more may be received."""

    def on_status(self, status: StatusFrame) -> None:
        """The peer has said how far it is, or how far this may go."""

    def on_keep_alive(self) -> None:
        """The peer is there."""

    async def aclose(self) -> None:
        """End it: the connection is gone, or is about to be."""


class ControlSession:
    """One connection: its requests, and the stream it may carry."""

    def __init__(self, server: ArchiveServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server: Final = server
        self.principal = b""
        self.stream: Stream | None = None
        self.peer: Final = "{}:{}".format(*(writer.get_extra_info("peername") or ("?", "?"))[:2])
        self._reader = reader
        self._writer = writer
        self._buffer = bytearray()
        self._control_session_id: int | None = None
        self._closed = False
        self._admission: Admission | None = None
        self._group: asyncio.TaskGroup | None = None

    def __repr__(self) -> str:
        return f"<ControlSession id={self._control_session_id} peer={self.peer} stream={self.stream!r}>"

    @property
    def archive(self) -> Archive:
        """The archive served."""
        return self.server.archive

    @property
    def control_session_id(self) -> int:
        """The id that the peer's requests carry; NULL_VALUE before it has one."""
        return NULL_VALUE if self._control_session_id is None else self._control_session_id

    @property
    def is_over(self) -> bool:
        """Whether nobody is there to be told anything."""
        return self._closed or self._writer.is_closing()

    @property
    def buffered_bytes(self) -> int:
        """What was written and not sent."""
        return self._writer.transport.get_write_buffer_size()

    async def run(self) -> None:
        """Serve requests until the peer closes, falls silent or breaks the protocol."""
        try:
            async with asyncio.TaskGroup() as self._group:
                try:
                    await self._serve()
                except RemoteProtocolError as error:
                    _log.warning("archive_session.protocol_broken", session=repr(self), reason=str(error))
                    self.refuse(ArchiveError(str(error)), NULL_VALUE)
                    await self.drain()
                finally:
                    await self._end()
        except* (ConnectionError, TimeoutError) as group:
            _log.debug("archive_session.connection_lost", session=repr(self), reason=str(group.exceptions[0]))
        await self._close()

    def create_task(self, work: Any) -> asyncio.Task[None]:  # a coroutine
        """Start a task that ends with this session at the latest."""
        assert self._group is not None
        task: asyncio.Task[None] = self._group.create_task(work)
        return task

    # --- out

    def write(self, data: bytes) -> None:
        """Send a chunk of the stream."""
        self._writer.write(data)

    def limit_buffer(self, high_bytes: int) -> None:
        """Let so much be written and not sent before `drain` waits."""
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
        self._writer.write(encode_response(message))

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
        """Tell what became of a recording; a session that is gone is not told."""
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
        self._writer.write(encode_response(event))

    def abort(self) -> None:
        """End the connection from elsewhere."""
        self._writer.transport.abort()

    # --- in

    async def _serve(self) -> None:
        is_set_up = False
        while not self._closed:
            async with asyncio.timeout(self.server.idle_timeout_s):
                data = await self._reader.read(READ_LENGTH_BYTES)
            if not data:
                return
            self._buffer += data
            while not self._closed:
                if self.stream is not None and self.stream.take(self._buffer):
                    continue
                frame = self._take_frame()
                if frame is None:
                    break
                if not is_set_up:
                    _check_setup(frame)
                    is_set_up = True
                else:
                    await self._on_frame(frame)
            if self.stream is None:
                await self.drain()
            else:
                await self.stream.wait_for_room()

    def _take_frame(self) -> Frame | None:
        """Take a control frame; what is of the stream is left to that."""
        buffer = self._buffer
        if self.stream is not None and (len(buffer) < HEADER_LENGTH or not is_control_frame_next(buffer)):
            return None
        return take_control_frame(buffer)

    async def _on_frame(self, frame: Frame) -> None:
        if frame.type == TYPE_STATUS and self._control_session_id is not None:
            self._on_status(StatusFrame.decode(frame.raw))
            return
        if frame.type != TYPE_DATA or frame.stream_id != CONTROL_STREAM_ID:
            raise RemoteProtocolError(
                f"frame unexpected: type={frame.type} stream_id={frame.stream_id} expected={CONTROL_STREAM_ID}"
            )
        request = decode_message(frame.payload, registry=_REQUESTS)
        if isinstance(request, messages.AuthConnectRequest):
            await self._on_connect(request)
            return
        control_session_id = getattr(request, "control_session_id", NULL_VALUE)
        if self._admission is not None and isinstance(request, messages.ChallengeResponse):
            self._admission.answer(request.encoded_credentials)
            await self._decide(self._admission)
            return
        if self._control_session_id is None or control_session_id != self._control_session_id:
            raise RemoteProtocolError(
                f"control session unknown: control_session_id={control_session_id} expected={self._control_session_id}"
            )
        await self._on_request(request, getattr(request, "correlation_id", NULL_VALUE))

    async def _on_request(self, request: Message, correlation_id: int) -> None:
        if isinstance(request, messages.CloseSessionRequest):
            self._closed = True
            return
        if isinstance(request, messages.KeepAliveRequest):
            if self.stream is not None:
                self.stream.on_keep_alive()
            self.respond(correlation_id, NULL_VALUE)
            return
        try:
            handler = self.server.handlers.get(type(request))
            if handler is None:
                raise ArchiveError(f"request not served here: {type(request).__name__}")
            self._authorise(request)
            await handler(self, request)
        except ArchiveError as error:
            self.refuse(error, correlation_id)

    def may(self, request: type[Message]) -> bool:
        """Whether whoever this is may make such a request."""
        return self.server.authorisation.is_authorised(request.SCHEMA_ID, request.TEMPLATE_ID, None, self.principal)

    def _authorise(self, request: Message) -> None:
        if not self.may(type(request)):
            raise ArchiveError(
                f"not allowed on this archive: request={type(request).__name__}",
                code=ArchiveErrorCode.UNAUTHORISED_ACTION,
                recording_id=getattr(request, "recording_id", None),
            )

    def _on_status(self, status: StatusFrame) -> None:
        if self.stream is not None:
            self.stream.on_status(status)
            return
        try:
            self.server.join_live(self, status)
        except ArchiveError as error:
            self.refuse(error, NULL_VALUE)

    # --- who it is

    async def _on_connect(self, request: messages.AuthConnectRequest) -> None:
        if self._control_session_id is not None or self._admission is not None:
            raise RemoteProtocolError(f"connected already: control_session_id={self._control_session_id}")
        if major_version(request.version) != major_version(PROTOCOL_VERSION):
            raise RemoteProtocolError(
                f"protocol version: major={major_version(request.version)} expected={major_version(PROTOCOL_VERSION)}"
            )
        if request.response_stream_id not in (RESPONSE_STREAM_ID, EVENTS_STREAM_ID):
            raise RemoteProtocolError(f"response_stream_id={request.response_stream_id} expected={RESPONSE_STREAM_ID}")
        self._admission = Admission(self.server.authenticator, request, next(self.server.ids))
        await self._decide(self._admission)

    async def _decide(self, admission: Admission) -> None:
        """Ask until there is a decision: to let the peer in, to turn it away, or to ask it for more."""
        async with asyncio.timeout(self.server.idle_timeout_s):
            await admission.decide()
        if admission.challenge_bytes is not None:
            self.send(
                messages.Challenge(
                    control_session_id=admission.session_id,
                    correlation_id=admission.correlation_id,
                    version=PROTOCOL_VERSION,
                    encoded_challenge=admission.challenge_bytes,
                )
            )
            return
        self._admission = None
        if admission.principal is None:
            rejected = ArchiveError("credentials rejected", code=ArchiveErrorCode.AUTHENTICATION_REJECTED)
            self.refuse(rejected, admission.correlation_id)
            self._closed = True
            return
        self.principal = admission.principal
        self._control_session_id = admission.session_id
        self.respond(admission.correlation_id, admission.session_id)
        if admission.wants_events:
            self.stream = self.server.events.join(self)

    # --- the end

    async def _end(self) -> None:
        self._closed = True
        if self.stream is not None:
            await self.stream.aclose()

    async def _close(self) -> None:
        """Close the connection once the peer has what was written, or does not want it."""
        self._writer.close()
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._writer.wait_closed()
        except (ConnectionError, TimeoutError):
            pass


def _check_setup(frame: Frame) -> None:
    """Refuse a connection that was not meant for an archive."""
    setup = SetupFrame.decode(frame.raw)
    if frame.type != TYPE_SETUP or setup.stream_id != CONTROL_STREAM_ID:
        raise RemoteProtocolError(f"setup: stream_id={setup.stream_id} expected={CONTROL_STREAM_ID}")
