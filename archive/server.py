"""The TCP edge of an archive: other members list, query and replay its recordings.

One task per connection reads requests; a replay is a second task in the same group, so the end of either ends
both. Bounds: connections (more are refused by closing), one replay per connection, one request frame of 64
KiB, one replay chunk in the socket buffer beyond the transport's high-water mark, and a connection that stays
silent without a replay is closed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from service_api.errors import RemoteProtocolError
from service_api.types import NULL_POSITION, NULL_VALUE, CorrelationId
from service_api.wire.frame import TYPE_DATA, SetupFrame
from service_api.wire.message import Message, decode_message, registry_of
from service_api.wire.stream import Frame, FrameParser

from . import messages
from .conductor import Archive
from .control import (
    ALL_LENGTH,
    CONTROL_STREAM_ID,
    FOLLOW_LENGTH,
    MAX_CONTROL_FRAME_LENGTH,
    PROTOCOL_VERSION,
    RESPONSE_STREAM_ID,
    encode_response,
    major_version,
)
from .descriptor import RecordingDescriptor
from .errors import ArchiveError, ArchiveErrorCode
from .replay import ReplaySession

CONNECTION_LIMIT: Final = 64
LIST_LIMIT: Final = 1024
IDLE_TIMEOUT_S: Final = 30.0
SEND_TIMEOUT_S: Final = 30.0
"""How long a peer may leave a full socket buffer unread before its connection is closed."""

Authenticate = Callable[[bytes], bool]

_REQUESTS: Final = registry_of(
    messages.AuthConnectRequest,
    messages.CloseSessionRequest,
    messages.KeepAliveRequest,
    messages.ListRecordingRequest,
    messages.ListRecordingsRequest,
    messages.MaxRecordedPositionRequest,
    messages.RecordingPositionRequest,
    messages.ReplayRequest,
    messages.StartPositionRequest,
    messages.StopPositionRequest,
    messages.StopReplayRequest,
)

_log = structlog.get_logger(__name__)


class ArchiveServer:
    """Accepts connections for one archive. `start` binds; `aclose` ends every session and waits for it.

    `authenticate` judges the credentials of a connect request; without it all are welcome.
    """

    def __init__(
        self,
        archive: Archive,
        *,
        authenticate: Authenticate | None = None,
        connection_limit: int = CONNECTION_LIMIT,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        self.archive: Final = archive
        self.authenticate: Final = authenticate
        self.idle_timeout_s: Final = idle_timeout_s
        self.ids: Final = itertools.count(1)
        """Control session and replay session ids: never the same twice in one server."""
        self._connection_limit = connection_limit
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """In order of connection: a set would be run through in the order of addresses in memory."""

    def __repr__(self) -> str:
        return f"<ArchiveServer connections={len(self._tasks)}/{self._connection_limit}>"

    async def start(self, host: str, port: int) -> None:
        """Listen on `host:port`; port 0 takes a free one, see `port`.

        Raises:
            OSError: the address is in use or not ours.
        """
        self._server = await asyncio.start_server(self._accept, host, port, limit=MAX_CONTROL_FRAME_LENGTH)

    @property
    def port(self) -> int:
        """The port listened on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def aclose(self) -> None:
        """Stop listening, end every session and wait for it."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        if self._server is not None:
            await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Run one connection from its first byte to its last."""
        task = asyncio.current_task()
        if task is None or len(self._tasks) >= self._connection_limit:
            _log.warning("archive_connection.refused", connection_limit=self._connection_limit)
            writer.transport.abort()
            return
        self._tasks[task] = None
        try:
            await ControlSession(self, reader, writer).run()
        except asyncio.CancelledError:
            # Only `aclose` cancels; the task must end without an exception for the stream's own callback.
            pass
        finally:
            del self._tasks[task]
            writer.transport.abort()


class ControlSession:
    """One connection: its requests, and the replay it may have running."""

    def __init__(self, server: ArchiveServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._archive = server.archive
        self._reader = reader
        self._writer = writer
        self._parser = FrameParser(MAX_CONTROL_FRAME_LENGTH)
        self._control_session_id: int | None = None
        self._closed = False
        self._replay_session_id = NULL_VALUE
        self._replay: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._handlers: dict[type[Message], Callable[[Any], Coroutine[Any, Any, None]]] = {
            messages.CloseSessionRequest: self._on_close_session,
            messages.KeepAliveRequest: self._on_keep_alive,
            messages.ListRecordingRequest: self._on_list_recording,
            messages.ListRecordingsRequest: self._on_list_recordings,
            messages.MaxRecordedPositionRequest: self._on_max_recorded_position,
            messages.RecordingPositionRequest: self._on_recording_position,
            messages.ReplayRequest: self._on_replay,
            messages.StartPositionRequest: self._on_start_position,
            messages.StopPositionRequest: self._on_stop_position,
            messages.StopReplayRequest: self._on_stop_replay,
        }

    def __repr__(self) -> str:
        return f"<ControlSession id={self._control_session_id} replay={self._replay_session_id}>"

    async def run(self) -> None:
        """Serve requests until the peer closes, falls silent or breaks the protocol."""
        try:
            async with asyncio.TaskGroup() as self._group:
                try:
                    await self._serve()
                except RemoteProtocolError as error:
                    _log.warning("archive_session.protocol_broken", session=repr(self), reason=str(error))
                    self._respond_error(NULL_VALUE, str(error), ArchiveErrorCode.GENERIC)
                    await self._drain()
                finally:
                    if self._replay is not None:
                        self._replay.cancel()
        except* (ConnectionError, TimeoutError) as group:
            _log.debug("archive_session.connection_lost", session=repr(self), reason=str(group.exceptions[0]))
        await self._close()

    async def _close(self) -> None:
        """Close the connection once the peer has what was written, or does not want it."""
        self._writer.close()
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._writer.wait_closed()
        except (ConnectionError, TimeoutError):
            pass

    async def _serve(self) -> None:
        is_set_up = False
        while not self._closed:
            data = await self._receive()
            if not data:
                return
            for frame in self._parser.feed(data):
                if not is_set_up:
                    _check_setup(frame)
                    is_set_up = True
                else:
                    await self._on_frame(frame)
            await self._drain()

    async def _receive(self) -> bytes:
        """Read what there is; a peer that is being replayed to may stay silent."""
        while True:
            try:
                async with asyncio.timeout(self._server.idle_timeout_s):
                    return await self._reader.read(MAX_CONTROL_FRAME_LENGTH)
            except TimeoutError:
                if self._replay is None or self._replay.done():
                    raise

    async def _on_frame(self, frame: Frame) -> None:
        if frame.type != TYPE_DATA or frame.stream_id != CONTROL_STREAM_ID:
            raise RemoteProtocolError(
                f"frame unexpected: type={frame.type} stream_id={frame.stream_id} expected={CONTROL_STREAM_ID}"
            )
        request = decode_message(frame.payload, registry=_REQUESTS)
        if isinstance(request, messages.AuthConnectRequest):
            self._on_connect(request)
            return
        control_session_id = getattr(request, "control_session_id", NULL_VALUE)
        if self._control_session_id is None or control_session_id != self._control_session_id:
            raise RemoteProtocolError(
                f"control session unknown: control_session_id={control_session_id} expected={self._control_session_id}"
            )
        try:
            await self._handlers[type(request)](request)
        except ArchiveError as error:
            correlation_id = getattr(request, "correlation_id", NULL_VALUE)
            if error.code is ArchiveErrorCode.UNKNOWN_RECORDING and error.recording_id is not None:
                self._respond(
                    correlation_id,
                    error.recording_id,
                    messages.ControlResponseCode.RECORDING_UNKNOWN,
                    str(error),
                )
            else:
                self._respond_error(correlation_id, str(error), error.code)

    def _on_connect(self, request: messages.AuthConnectRequest) -> None:
        if self._control_session_id is not None:
            raise RemoteProtocolError(f"connected already: control_session_id={self._control_session_id}")
        if major_version(request.version) != major_version(PROTOCOL_VERSION):
            raise RemoteProtocolError(
                f"protocol version: major={major_version(request.version)} expected={major_version(PROTOCOL_VERSION)}"
            )
        if request.response_stream_id != RESPONSE_STREAM_ID:
            raise RemoteProtocolError(f"response_stream_id={request.response_stream_id} expected={RESPONSE_STREAM_ID}")
        authenticate = self._server.authenticate
        if authenticate is not None and not authenticate(request.encoded_credentials):
            self._respond_error(
                request.correlation_id, "credentials rejected", ArchiveErrorCode.AUTHENTICATION_REJECTED
            )
            self._closed = True
            return
        self._control_session_id = next(self._server.ids)
        self._respond_ok(request.correlation_id, self._control_session_id)

    async def _on_close_session(self, request: messages.CloseSessionRequest) -> None:
        self._closed = True

    async def _on_keep_alive(self, request: messages.KeepAliveRequest) -> None:
        self._respond_ok(request.correlation_id, NULL_VALUE)

    async def _on_list_recording(self, request: messages.ListRecordingRequest) -> None:
        self._send_descriptor(self._archive.descriptor(request.recording_id), request.correlation_id)

    async def _on_list_recordings(self, request: messages.ListRecordingsRequest) -> None:
        """Send up to the number asked for; fewer are ended by RECORDING_UNKNOWN, as Aeron does."""
        count = min(request.record_count, LIST_LIMIT)
        found = [d for d in self._archive.descriptors() if d.recording_id >= request.from_recording_id][:count]
        for descriptor in found:
            self._send_descriptor(descriptor, request.correlation_id)
            await self._drain()
        if len(found) < request.record_count:
            self._respond(
                request.correlation_id,
                request.from_recording_id + len(found),
                messages.ControlResponseCode.RECORDING_UNKNOWN,
            )

    async def _on_max_recorded_position(self, request: messages.MaxRecordedPositionRequest) -> None:
        self._respond_ok(request.correlation_id, self._archive.recorded_position(request.recording_id))

    async def _on_recording_position(self, request: messages.RecordingPositionRequest) -> None:
        self._archive.descriptor(request.recording_id)
        recording = self._archive.active_recording(request.recording_id)
        position = NULL_POSITION if recording is None else recording.recorded_position
        self._respond_ok(request.correlation_id, position)

    async def _on_start_position(self, request: messages.StartPositionRequest) -> None:
        self._respond_ok(request.correlation_id, self._archive.descriptor(request.recording_id).start_position)

    async def _on_stop_position(self, request: messages.StopPositionRequest) -> None:
        stop_position = self._archive.descriptor(request.recording_id).stop_position
        self._respond_ok(request.correlation_id, NULL_POSITION if stop_position is None else stop_position)

    async def _on_replay(self, request: messages.ReplayRequest) -> None:
        if self._replay is not None and not self._replay.done():
            raise ArchiveError("one replay a connection", code=ArchiveErrorCode.MAX_REPLAYS)
        descriptor = self._archive.descriptor(request.recording_id)
        if descriptor.stream_id in (CONTROL_STREAM_ID, RESPONSE_STREAM_ID):
            raise ArchiveError(f"not replayed here: stream_id={descriptor.stream_id}")
        position = descriptor.start_position if request.position == NULL_POSITION else request.position
        session = ReplaySession(
            self._archive,
            request.recording_id,
            position=position,
            stop_position=self._stop_position_of(request, position),
            sink=self,
        )
        self._replay_session_id = next(self._server.ids)
        self._respond_ok(request.correlation_id, self._replay_session_id)
        assert self._group is not None
        self._replay = self._group.create_task(self._run_replay(session, request.correlation_id))

    def _stop_position_of(self, request: messages.ReplayRequest, position: int) -> int | None:
        if request.length == FOLLOW_LENGTH:
            return None
        if request.length == ALL_LENGTH:
            return self._archive.recorded_position(request.recording_id)
        if request.length < 0 or request.length % 32:
            raise ArchiveError(
                f"length impossible: length={request.length} expected -2, -1 or a multiple of 32",
                recording_id=request.recording_id,
            )
        return position + request.length

    async def _on_stop_replay(self, request: messages.StopReplayRequest) -> None:
        if request.replay_session_id != self._replay_session_id or self._replay is None:
            raise ArchiveError(
                f"replay unknown: replay_session_id={request.replay_session_id} expected={self._replay_session_id}",
                code=ArchiveErrorCode.UNKNOWN_REPLAY,
            )
        self._replay.cancel()
        await asyncio.wait([self._replay])
        self._replay = None
        self._respond_ok(request.correlation_id, request.replay_session_id)

    async def _run_replay(self, session: ReplaySession, correlation_id: int) -> None:
        try:
            await session.run()
        except ArchiveError as error:
            _log.warning("replay.failed", replay=repr(session), reason=str(error))
            self._respond_error(correlation_id, str(error), error.code)

    def write(self, data: bytes) -> None:
        """Send a chunk of a replay (this session is its sink)."""
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait for room in the socket (this session is the sink of its replay)."""
        await self._drain()

    async def _drain(self) -> None:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await self._writer.drain()

    def _send_descriptor(self, descriptor: RecordingDescriptor, correlation_id: int) -> None:
        stop_timestamp, stop_position = descriptor.stop_timestamp_ms, descriptor.stop_position
        message = messages.RecordingDescriptor(
            control_session_id=self._control_session_id or 0,
            correlation_id=CorrelationId(correlation_id),
            recording_id=descriptor.recording_id,
            start_timestamp=descriptor.start_timestamp_ms,
            stop_timestamp=NULL_VALUE if stop_timestamp is None else stop_timestamp,
            start_position=descriptor.start_position,
            stop_position=NULL_POSITION if stop_position is None else stop_position,
            initial_term_id=descriptor.initial_term_id,
            segment_file_length=descriptor.segment_file_length,
            term_buffer_length=descriptor.term_buffer_length,
            mtu_length=descriptor.mtu_length,
            session_id=descriptor.session_id,
            stream_id=descriptor.stream_id,
            stripped_channel=descriptor.stripped_channel,
            original_channel=descriptor.original_channel,
            source_identity=descriptor.source_identity,
        )
        self._writer.write(encode_response(message))

    def _respond_ok(self, correlation_id: int, relevant_id: int) -> None:
        self._respond(correlation_id, relevant_id, messages.ControlResponseCode.OK)

    def _respond_error(self, correlation_id: int, message: str, code: ArchiveErrorCode) -> None:
        self._respond(correlation_id, int(code), messages.ControlResponseCode.ERROR, message)

    def _respond(
        self,
        correlation_id: int,
        relevant_id: int,
        code: messages.ControlResponseCode,
        error_message: str = "",
    ) -> None:
        response = messages.ControlResponse(
            control_session_id=NULL_VALUE if self._control_session_id is None else self._control_session_id,
            correlation_id=CorrelationId(correlation_id),
            relevant_id=relevant_id,
            code=code,
            version=PROTOCOL_VERSION,
            error_message=error_message,
        )
        self._writer.write(encode_response(response))


def _check_setup(frame: Frame) -> None:
    """Refuse a connection that was not meant for an archive."""
    setup = SetupFrame.decode(frame.raw)
    if setup.stream_id != CONTROL_STREAM_ID:
        raise RemoteProtocolError(f"setup: stream_id={setup.stream_id} expected={CONTROL_STREAM_ID}")
