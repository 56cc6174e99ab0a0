"""The archive over TCP: what its server gets from anybody, and what its client gets from a server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from tests.fuzz.loops import run_on_loop
from tests.fuzz.samples import framed, make_sample
from tests.fuzz.target import expect, target
from tests.fuzz.targets.wire import pieces_of
from tests.unit.archive.streams import STREAM_ID, TERM_LENGTH, StreamBuilder, launch
from tests.unit.cluster.runtime.fake_gate import let_in, quiet_gate
from tests.unit.cluster.runtime.fake_transport import FakeTransport, receive
from trimaran.archive import Archive
from trimaran.archive.format import messages
from trimaran.archive.net.connection import ArchiveConnection, Credentials
from trimaran.archive.net.control import CONTROL_STREAM_ID, PROTOCOL_VERSION, RESPONSE_STREAM_ID
from trimaran.archive.net.frame_stream import open_live, open_replay
from trimaran.archive.net.server.archive_server import ArchiveServer
from trimaran.archive.net.server.control_adapter import serve_connection
from trimaran.archive.net.server.policy import ReadOnly
from trimaran.archive.net.server.requests import REQUESTS
from trimaran.archive.net.server.served_archive import ServedArchive
from trimaran.service_api.access.connection_purpose import Purpose
from trimaran.service_api.authorisation import AllowAll
from trimaran.service_api.cluster_id import NULL_CLUSTER_ID
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.errors import ClusterError
from trimaran.service_api.types import CorrelationId, RecordingId
from trimaran.service_api.wire.link_frames import SetupFrame, StatusFrame
from trimaran.service_api.wire.message import Message


class _NoNetwork:
    """A network on which nobody answers."""

    cluster_id = NULL_CLUSTER_ID

    async def dial(self, *arguments: object, **others: object) -> Any:  # what a dial gives, which this one never does
        """Refuse."""
        raise ConnectionRefusedError("nobody listens")


class _Transport(FakeTransport):
    """One that tells its protocol at once that it is closed."""

    def close(self) -> None:
        self._end()

    def abort(self) -> None:
        self._end()

    def _end(self) -> None:
        if not self.is_closed:
            super().close()
            assert self.protocol is not None
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


async def _launch_archive() -> Archive:
    """An archive of one recording that was stopped and one that is active."""
    archive = await launch()
    for is_stopped in (True, False):
        recording = await archive.start_recording(
            stream_id=STREAM_ID, session_id=7, channel="trimaran:log", source_identity="here", preallocate=False
        )
        for chunk in StreamBuilder().message(300):
            recording.append(chunk)
        recording.flush()
        if is_stopped:
            await recording.stop()
    return archive


# --- the server


def _connect_request() -> Message:
    return messages.AuthConnectRequest(
        correlation_id=CorrelationId(1),
        response_stream_id=RESPONSE_STREAM_ID,
        version=PROTOCOL_VERSION,
        encoded_credentials=b"",
        client_info="",
    )


def _server_seeds() -> Iterator[bytes]:
    head = SetupFrame(session_id=0, stream_id=CONTROL_STREAM_ID).encode() + framed(
        [_connect_request()], CONTROL_STREAM_ID
    )
    for kind in REQUESTS:
        request = make_sample(kind).model_copy(update={"control_session_id": 1, "recording_id": 0, "position": 0})
        for flags in (0, 1):
            yield bytes([flags, 255]) + head + framed([request], CONTROL_STREAM_ID)
    status = StatusFrame(session_id=7, stream_id=STREAM_ID)
    yield (
        b"\x00\xff"
        + head
        + status.encode()
        + framed([messages.KeepAliveRequest(control_session_id=1, correlation_id=CorrelationId(2))], CONTROL_STREAM_ID)
    )
    started = make_sample(messages.StartRecordingRequest).model_copy(
        update={"control_session_id": 1, "stream_id": STREAM_ID, "channel": "a"}
    )
    frames = b"".join(chunk for length in (40, 300, 2000) for chunk in StreamBuilder().message(length))
    yield b"\x01\xff" + head + framed([started], CONTROL_STREAM_ID) + frames


@target(_server_seeds, length_limit=2048)
def archive_server(data: bytes) -> None:
    """What anybody sends to an archive's endpoint: an answer to each request, or the end of that connection."""
    if len(data) >= 2:
        run_on_loop(_serve(data[0], pieces_of(data[2:], 1 + data[1])))


_archives: dict[None, Archive] = {}
"""One that nobody may change, so that it serves every input."""


async def _serve(flags: int, pieces: list[bytes]) -> None:
    if flags & 1:
        archive = await _launch_archive()
    elif None in _archives:
        archive = _archives[None]
    else:
        archive = _archives[None] = await _launch_archive()
    state = ServedArchive(
        archive,
        authorisation=AllowAll() if flags & 1 else ReadOnly(),
        network=_NoNetwork(),  # type: ignore[arg-type]  # nothing else of a network is used
        idle_timeout_s=30,
    )
    server = ArchiveServer(state)
    loop, transport = asyncio.get_running_loop(), _Transport()
    reader = asyncio.StreamReader(loop=loop)
    transport.protocol = protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    protocol.connection_made(transport)
    serving = asyncio.ensure_future(
        serve_connection(
            state,
            let_in(quiet_gate(), Purpose.ARCHIVE),
            reader,
            asyncio.StreamWriter(transport, protocol, reader, loop),
        )
    )
    for piece in pieces:
        if transport.is_closed:
            break
        reader.feed_data(piece)
        await asyncio.sleep(0)
    if not transport.is_closed:
        reader.feed_eof()
    await serving
    await server.aclose()
    expect(not state.replays and not state.recordings, "nothing is left of a connection that is gone")
    if flags & 1:
        await archive.aclose()


# --- the client


def _client_seeds() -> Iterator[bytes]:
    answers = [
        messages.ControlResponse(
            control_session_id=1,
            correlation_id=CorrelationId(correlation_id),
            relevant_id=1,
            code=messages.ControlResponseCode.OK,
            version=PROTOCOL_VERSION,
        )
        for correlation_id in (1, 2)
    ]
    setup = SetupFrame.at_position(
        0, session_id=3, stream_id=STREAM_ID, term_length_bytes=TERM_LENGTH, checksummed=True
    )
    frames = b"".join(chunk for length in (40, 300, 2000) for chunk in StreamBuilder().message(length))
    end = messages.RecordingSignalEvent(
        control_session_id=1,
        correlation_id=CorrelationId(2),
        recording_id=RecordingId(0),
        subscription_id=0,
        position=len(frames),
        signal=messages.RecordingSignal.SYNC,
    )
    for flags in (0, 1):
        head = bytes([flags, 255]) + framed(answers, RESPONSE_STREAM_ID) + setup.encode()
        yield head + frames + framed([end], RESPONSE_STREAM_ID)
        refusal = answers[1].model_copy(
            update={
                "code": messages.ControlResponseCode.ERROR,
                "error_message": "no (code=GENERIC recording_id=1 position=64)",
            }
        )
        yield bytes([flags, 255]) + framed([answers[0], refusal], RESPONSE_STREAM_ID)
    for kind in (messages.ArchiveChallenge, messages.RecordingDescriptorRow, messages.RecordingStarted, messages.Ping):
        yield b"\x00\xff" + framed([answers[0], make_sample(kind)], RESPONSE_STREAM_ID)


@target(_client_seeds, length_limit=8192)
def archive_client(data: bytes) -> None:
    """What an archive sends to a client that replays a recording, or joins its live stream."""
    if len(data) >= 2:
        run_on_loop(_follow(data[0], pieces_of(data[2:], 1 + 8 * data[1])))


async def _replay(connection: ArchiveConnection, flags: int) -> None:
    credentials = Credentials(on_challenge=(lambda challenge: challenge[:8]) if flags & 2 else None)
    try:
        await connection._open_session(credentials, RESPONSE_STREAM_ID)
        if flags & 1:
            row = make_sample(messages.RecordingDescriptorRow)
            assert isinstance(row, messages.RecordingDescriptorRow)
            stream = await open_live(connection, row, timeout_s=30)
        else:
            stream = await open_replay(connection, 0, position=0, stop_position=4096, follow=False, timeout_s=30)
        while chunk := await stream.read(30):
            expect(len(chunk) % 32 == 0, "a chunk is whole frames", length=len(chunk))
    except ClusterError:
        pass
    finally:
        connection.abort()


async def _follow(flags: int, pieces: list[bytes]) -> None:
    connection, transport = ArchiveConnection(Endpoint("127.0.0.1", 1), timeout_s=30), FakeTransport()
    connection.connection_made(transport)
    replaying = asyncio.ensure_future(_replay(connection, flags))
    await asyncio.sleep(0)
    for piece in pieces:
        if transport.is_closed or transport.is_reading_paused:
            break
        receive(connection, piece)
        for _ in range(4):
            await asyncio.sleep(0)
    connection.connection_lost(None)
    await replaying
