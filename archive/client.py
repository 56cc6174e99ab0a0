"""The asyncio client of another archive: query recordings, and stream a replay.

One connection, one request at a time, at most one replay. Every wait has a timeout; a broken connection is an
error at once. Bounds: one response frame of 64 KiB, and of a replay what one read brings plus one incomplete
frame.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Self, TypeVar

from service_api.errors import ClusterTimeoutError, RemoteProtocolError
from service_api.types import NULL_VALUE, CorrelationId, RecordingId
from service_api.wire.frame import FRAME_HEADER, HEADER_LENGTH, TYPE_DATA, SetupFrame
from service_api.wire.message import decode_message, registry_of

from . import messages
from .control import (
    CONTROL_STREAM_ID,
    MAX_CONTROL_FRAME_LENGTH,
    PROTOCOL_VERSION,
    RESPONSE_STREAM_ID,
    encode_request,
)
from .errors import ArchiveError, ArchiveErrorCode
from .frame_check import FrameRules

READ_LENGTH_BYTES: Final = 256 << 10

_Request = (
    messages.AuthConnectRequest
    | messages.KeepAliveRequest
    | messages.ListRecordingRequest
    | messages.MaxRecordedPositionRequest
    | messages.ReplayRequest
)
_Response = TypeVar("_Response", messages.ControlResponse, messages.RecordingDescriptor)
_RESPONSES: Final = registry_of(messages.ControlResponse, messages.RecordingDescriptor)


class ArchiveClient:
    """A control session with an archive; made by `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, timeout_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self._timeout_s = timeout_s
        self._buffer = bytearray()
        self._control_session_id = NULL_VALUE
        self._correlation_ids = itertools.count(1)

    def __repr__(self) -> str:
        return f"<ArchiveClient control_session_id={self._control_session_id}>"

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        credentials: bytes = b"",
        client_info: str = "",
        timeout_s: float = 5.0,
    ) -> AsyncIterator[Self]:
        """Connect, open a control session, and close both at the end.

        Raises:
            ArchiveError: REPLICATION_CONNECTION_FAILURE, or what the archive answered.
        """
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(host, port, limit=READ_LENGTH_BYTES)
        except (OSError, TimeoutError) as error:
            raise ArchiveError(
                f"archive not reached: endpoint={host}:{port} {error!r}",
                code=ArchiveErrorCode.REPLICATION_CONNECTION_FAILURE,
            ) from error
        client = cls(reader, writer, timeout_s=timeout_s)
        try:
            await client._open_session(credentials, client_info)
            yield client
        finally:
            writer.transport.abort()

    async def list_recording(self, recording_id: int) -> messages.RecordingDescriptor:
        """Fetch the descriptor of a recording.

        Raises:
            ArchiveError: UNKNOWN_RECORDING.
        """
        return await self._ask(
            messages.ListRecordingRequest(
                control_session_id=self._control_session_id,
                correlation_id=self._next_correlation_id(),
                recording_id=RecordingId(recording_id),
            ),
            messages.RecordingDescriptor,
        )

    async def max_recorded_position(self, recording_id: int) -> int:
        """Fetch up to where a recording is durable over there."""
        response = await self._ask(
            messages.MaxRecordedPositionRequest(
                control_session_id=self._control_session_id,
                correlation_id=self._next_correlation_id(),
                recording_id=RecordingId(recording_id),
            ),
            messages.ControlResponse,
        )
        return response.relevant_id

    async def keep_alive(self) -> None:
        """Tell the archive that this session is still wanted."""
        await self._ask(
            messages.KeepAliveRequest(
                control_session_id=self._control_session_id, correlation_id=self._next_correlation_id()
            ),
            messages.ControlResponse,
        )

    async def replay(
        self, recording_id: int, *, position: int, stop_position: int, rules: FrameRules, timeout_s: float
    ) -> AsyncGenerator[bytes, None]:
        """Stream [position, stop_position) of a recording as chunks of whole, checked frames of one term.

        `timeout_s` bounds the wait for each next byte. The session can do nothing else afterwards.

        Raises:
            ArchiveError: what the archive answered, then or later.
            RemoteProtocolError: a frame does not check out, or runs past `stop_position`.
            ClusterTimeoutError: nothing came for `timeout_s`.
        """
        await self._ask(
            messages.ReplayRequest(
                control_session_id=self._control_session_id,
                correlation_id=self._next_correlation_id(),
                recording_id=RecordingId(recording_id),
                position=position,
                length=stop_position - position,
                replay_stream_id=rules.stream_id,
            ),
            messages.ControlResponse,
        )
        while position < stop_position:
            end = self._checked_length(rules, position, stop_position)
            if end:
                chunk = bytes(memoryview(self._buffer)[:end])
                del self._buffer[:end]
                position += end
                yield chunk
            elif not self._take_control_frame():
                await self._fill(timeout_s)

    async def _open_session(self, credentials: bytes, client_info: str) -> None:
        self._writer.write(SetupFrame(session_id=0, stream_id=CONTROL_STREAM_ID).encode())
        response = await self._ask(
            messages.AuthConnectRequest(
                correlation_id=self._next_correlation_id(),
                response_stream_id=RESPONSE_STREAM_ID,
                version=PROTOCOL_VERSION,
                encoded_credentials=credentials,
                client_info=client_info,
            ),
            messages.ControlResponse,
        )
        self._control_session_id = response.control_session_id

    async def _ask(self, request: _Request, expected: type[_Response]) -> _Response:
        """Send a request and wait for its answer."""
        self._writer.write(encode_request(request))
        while True:
            response = self._next_response()
            if response is None:
                await self._fill(self._timeout_s)
                continue
            if isinstance(response, messages.ControlResponse):
                _raise_unless_ok(response)
            if isinstance(response, expected) and response.correlation_id == request.correlation_id:
                return response
            raise RemoteProtocolError(f"response unexpected: {response!r} expected={expected.__name__}")

    def _next_correlation_id(self) -> CorrelationId:
        return CorrelationId(next(self._correlation_ids))

    def _next_response(self) -> messages.ControlResponse | messages.RecordingDescriptor | None:
        """Take the response at the front of the buffer; None while it is incomplete.

        Raises:
            RemoteProtocolError: something else is there.
        """
        if len(self._buffer) < HEADER_LENGTH:
            return None
        fields = FRAME_HEADER.unpack_from(self._buffer)
        frame_length, frame_type, stream_id = fields[0], fields[3], fields[6]
        if frame_type != TYPE_DATA or stream_id != RESPONSE_STREAM_ID:
            raise RemoteProtocolError(
                f"frame unexpected: type={frame_type} stream_id={stream_id} expected={RESPONSE_STREAM_ID}"
            )
        if not HEADER_LENGTH <= frame_length <= MAX_CONTROL_FRAME_LENGTH:
            raise RemoteProtocolError(f"frame length impossible: frame_length={frame_length}")
        aligned = (frame_length + 31) & -32
        if len(self._buffer) < aligned:
            return None
        payload = bytes(memoryview(self._buffer)[HEADER_LENGTH:frame_length])
        del self._buffer[:aligned]
        response = decode_message(payload, registry=_RESPONSES)
        assert isinstance(response, messages.ControlResponse | messages.RecordingDescriptor)
        return response

    def _take_control_frame(self) -> bool:
        """Handle a response between the frames of a replay; False when there is no whole one."""
        if len(self._buffer) < HEADER_LENGTH or FRAME_HEADER.unpack_from(self._buffer)[6] != RESPONSE_STREAM_ID:
            return False
        response = self._next_response()
        if isinstance(response, messages.ControlResponse):
            _raise_unless_ok(response)
        return response is not None

    def _checked_length(self, rules: FrameRules, position: int, stop_position: int) -> int:
        """Check the whole frames at the front of the buffer, up to the end of a term; return their length.

        Raises:
            RemoteProtocolError: the first of them is wrong, or runs past `stop_position`.
        """
        buffer = self._buffer
        length, last = rules.skip_right_frames(bytes(buffer), 0, position, stop_position - position)
        if last is not None or len(buffer) < HEADER_LENGTH:
            return length
        fields = FRAME_HEADER.unpack_from(buffer)
        if fields[6] == RESPONSE_STREAM_ID:
            return 0
        fault = rules.find_header_fault(fields, position)
        aligned = (fields[0] + 31) & -32
        if fault is None and position + aligned > stop_position:
            fault = f"frame runs past the end asked for: frame_length={fields[0]} end={stop_position}"
        if fault is None and aligned <= len(buffer):
            fault = rules.find_checksum_fault(fields, buffer, 0)
        if fault is not None:
            raise RemoteProtocolError(f"replayed frame at position={position}: {fault}")
        return 0

    async def _fill(self, timeout_s: float) -> None:
        """Read more into the buffer."""
        try:
            async with asyncio.timeout(timeout_s):
                data = await self._reader.read(READ_LENGTH_BYTES)
        except TimeoutError as error:
            raise ClusterTimeoutError(f"archive silent: timeout_s={timeout_s}") from error
        except ConnectionError as error:
            raise _connection_lost(repr(error)) from error
        if not data:
            raise _connection_lost("closed by the archive")
        self._buffer += data


def _connection_lost(reason: str) -> ArchiveError:
    return ArchiveError(f"archive connection lost: {reason}", code=ArchiveErrorCode.REPLICATION_CONNECTION_FAILURE)


def _raise_unless_ok(response: messages.ControlResponse) -> None:
    """Raise what the archive answered in its own words."""
    code = messages.ControlResponseCode
    if response.code is code.OK:
        return
    if response.code is code.RECORDING_UNKNOWN:
        raise ArchiveError(
            f"archive answered: {response.error_message}",
            code=ArchiveErrorCode.UNKNOWN_RECORDING,
            recording_id=response.relevant_id,
        )
    known = response.relevant_id in ArchiveErrorCode.__members__.values()
    raise ArchiveError(
        f"archive answered: {response.error_message}",
        code=ArchiveErrorCode(response.relevant_id) if known else ArchiveErrorCode.GENERIC,
    )
