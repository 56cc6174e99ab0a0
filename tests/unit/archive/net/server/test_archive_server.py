"""An archive served over TCP: queries, replays, replication, and peers that break the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.archive.streams import DIRECTORY, TERM_LENGTH, BytesSink, StreamBuilder, launch, read_all, small_config
from tests.waiting import passes, until, within
from trimaran.archive import Archive, ArchiveError, ArchiveErrorCode, CorruptionError, Recording
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.format import messages
from trimaran.archive.net.client import ArchiveClient
from trimaran.archive.net.control import CONTROL_STREAM_ID, PROTOCOL_VERSION, RESPONSE_STREAM_ID, encode_request
from trimaran.archive.net.replication import replicate
from trimaran.archive.net.server.archive_server import ArchiveServer
from trimaran.archive.net.server.policy import ReadOnly
from trimaran.archive.net.server.served_archive import ServedArchive
from trimaran.archive.store.replay import ReplayLimit, ReplaySession
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.errors import ClusterTimeoutError, RemoteProtocolError
from trimaran.service_api.net.connection_gate import ConnectionGate, GateLimits
from trimaran.service_api.net.transport import Purpose
from trimaran.service_api.types import CorrelationId, RecordingId
from trimaran.service_api.wire.frame import encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.message import decode_message
from trimaran.service_api.wire.stream import FrameParser, StreamFrame

HOST = "127.0.0.1"


async def start(archive: Archive) -> Recording:
    return await archive.start_recording(
        stream_id=100, session_id=7, channel="trimaran:log", source_identity="member-0", preallocate=False
    )


def append(recording: Recording, stream: StreamBuilder, lengths: list[int]) -> bytes:
    written = [chunk for length in lengths for chunk in stream.message(length)]
    for chunk in written:
        recording.append(chunk)
        recording.flush()
    return b"".join(written)


@asynccontextmanager
async def serving(
    archive: Archive, *, gate: ConnectionGate | None = None, **options: Any
) -> AsyncIterator[ArchiveServer]:  # options of the served archive
    server = ArchiveServer(ServedArchive(archive, **{"authorisation": ReadOnly(), **options}), gate=gate)
    await server.start(Endpoint(HOST, 0))
    try:
        yield server
    finally:
        await server.aclose()


class RawPeer:
    """A connection that sends what a test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.parser = FrameParser()
        self.frames: list[StreamFrame] = []

    async def next_frame(self) -> StreamFrame | None:
        async with within(60):
            while not self.frames:
                data = await self.reader.read(65536)
                if not data:
                    return None
                self.frames += self.parser.feed(data)
        return self.frames.pop(0)

    async def next_response(self) -> messages.ControlResponse:
        frame = await self.next_frame()
        assert frame is not None
        assert frame.stream_id == RESPONSE_STREAM_ID
        response = decode_message(frame.payload)
        assert isinstance(response, messages.ControlResponse)
        return response

    async def next_setup(self) -> SetupFrame:
        frame = await self.next_frame()
        assert frame is not None
        return SetupFrame.decode(frame.raw)

    async def connect_session(self) -> int:
        self.writer.write(SetupFrame(session_id=0, stream_id=CONTROL_STREAM_ID).encode())
        self.writer.write(encode_request(connect_request()))
        return (await self.next_response()).control_session_id


def connect_request(version: int = PROTOCOL_VERSION) -> messages.AuthConnectRequest:
    return messages.AuthConnectRequest(
        correlation_id=CorrelationId(1), response_stream_id=RESPONSE_STREAM_ID, version=version
    )


@asynccontextmanager
async def raw_peer(server: ArchiveServer) -> AsyncIterator[RawPeer]:
    reader, writer = await asyncio.open_connection(HOST, server.endpoint.port)
    try:
        yield RawPeer(reader, writer)
    finally:
        writer.transport.abort()


async def test_descriptor_and_positions_are_told() -> None:
    archive = await launch()
    recording = await start(archive)
    written = append(recording, StreamBuilder(), [100] * 10)

    async with serving(archive) as server, ArchiveClient.connect(str(server.endpoint)) as client:
        descriptor = await client.list_recording(0)
        await client.keep_alive()

        assert await client.max_recorded_position(0) == len(written)
        assert (descriptor.stream_id, descriptor.stop_position, descriptor.mtu_length) == (100, -1, 1408)
        assert descriptor.original_channel == "trimaran:log"
        with pytest.raises(ArchiveError) as caught:
            await client.list_recording(7)
        assert (caught.value.code, caught.value.recording_id) == (ArchiveErrorCode.UNKNOWN_RECORDING, 7)


async def test_replication_copies_every_byte_of_a_growing_recording() -> None:
    source, target = await launch(), await launch(target_disk := MemoryFileSystem())
    theirs, ours = await start(source), await start(target)
    stream = StreamBuilder()
    first = append(theirs, stream, [1000] * 100)
    progress: list[int] = []

    async with serving(source) as server:
        replicating = asyncio.ensure_future(
            replicate(
                source=server.endpoint,
                src_recording_id=0,
                recording=ours,
                stop_position=3 * TERM_LENGTH,
                on_progress=progress.append,
            )
        )
        await until(lambda: ours.append_position >= len(first))
        for chunk in stream.fill_to(3 * TERM_LENGTH):
            theirs.append(chunk)
            theirs.flush()
        assert await replicating == 3 * TERM_LENGTH

    assert read_all(target) == read_all(source)
    assert progress == sorted(set(progress))
    assert progress[-1] == 3 * TERM_LENGTH
    assert "0-131072.rec" in target_disk.list_directory(DIRECTORY)


async def test_replication_goes_on_from_where_the_recording_ends() -> None:
    source, target = await launch(), await launch()
    theirs, ours = await start(source), await start(target)
    written = append(theirs, StreamBuilder(), [700] * 50)
    append(ours, StreamBuilder(), [700] * 20)

    async with serving(source) as server:
        end = await replicate(source=server.endpoint, src_recording_id=0, recording=ours, stop_position=len(written))

    assert end == len(written)
    assert read_all(target) == written


async def test_damaged_frame_never_leaves_the_archive() -> None:
    disk = MemoryFileSystem()
    source, target = await launch(disk), await launch()
    theirs, ours = await start(source), await start(target)
    written = append(theirs, StreamBuilder(), [100] * 20)  # 160 bytes a frame
    disk.damage(DIRECTORY / "0-0.rec", 10 * 160 + 40, b"\x01\x02")

    async with serving(source) as server:
        with pytest.raises(ArchiveError, match=r"archive answered: .*wrong checksum.*position=1600") as caught:
            await replicate(source=server.endpoint, src_recording_id=0, recording=ours, stop_position=len(written))

    assert caught.value.code is ArchiveErrorCode.CORRUPT
    assert not isinstance(caught.value, CorruptionError)  # the other archive is damaged, not this one
    assert [(place.recording_id, place.position) for place in source.damage.places] == [(0, 1600)]
    await ours.stop()
    assert read_all(target) == written[:1600]


async def test_frame_that_was_damaged_on_the_way_is_not_recorded() -> None:
    """A source without checksums checks no payload; the destination does."""
    source, target = await launch(config=small_config(checksums=False)), await launch()
    theirs, ours = await start(source), await start(target)
    frames = bytearray(b"".join(chunk for chunk in StreamBuilder().message(100)))
    frames[40] ^= 1
    theirs.append(bytes(frames))
    theirs.flush()

    async with serving(source) as server:
        with pytest.raises(RemoteProtocolError, match="position=0: wrong checksum"):
            await replicate(source=server.endpoint, src_recording_id=0, recording=ours, stop_position=160)

    assert ours.append_position == 0


@pytest.mark.parametrize("bit", [5, 4 * 8, 8 * 8 + 1, 12 * 8, 16 * 8 + 7, 20 * 8, 32 * 8, 131 * 8 + 7])
async def test_replay_sends_right_frames_only(bit: int) -> None:
    """Bits of the length, version, term offset, checksum, stream id, term id and payload of one frame."""
    disk = MemoryFileSystem()
    archive = await launch(disk, config=small_config(segment_length_bytes=2 * TERM_LENGTH))
    written = append(await start(archive), StreamBuilder(), [100] * 700)
    position = TERM_LENGTH + 190 * 160
    at = position + bit // 8
    disk.damage(DIRECTORY / "0-0.rec", at, bytes([written[at] ^ 1 << bit % 8]))
    sink = BytesSink()

    with pytest.raises(CorruptionError, match=f"recording_id=0 position={position}") as caught:
        await ReplaySession(archive, 0, position=160, stop_position=len(written), sink=sink).run()

    assert [place.reason for place in archive.damage.places] == [str(caught.value)]
    assert sink.data == written[160:position]


async def test_replay_of_what_was_removed_says_where_the_archive_begins() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    append(await start(archive), StreamBuilder(), [1000] * 200)
    disk.remove(DIRECTORY / "0-0.rec")
    disk.remove(DIRECTORY / "0-65536.rec")

    with pytest.raises(ArchiveError, match=r"asked=64 oldest_position=131072") as caught:
        await ReplaySession(archive, 0, position=64, stop_position=640, sink=BytesSink()).run()

    assert caught.value.code is ArchiveErrorCode.INVALID_POSITION
    assert archive.damage.places == []


async def test_replay_from_before_the_start_says_where_the_archive_begins() -> None:
    archive = await launch()
    await archive.start_recording(
        stream_id=100, session_id=7, start_position=640, channel="c", source_identity="s", preallocate=False
    )

    with pytest.raises(ArchiveError, match=r"asked=320 oldest_position=640;.*snapshot"):
        ReplaySession(archive, 0, position=320, stop_position=None, sink=BytesSink())


async def test_segment_missing_in_the_middle_is_damage() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    append(await start(archive), StreamBuilder(), [1000] * 200)
    disk.remove(DIRECTORY / "0-65536.rec")

    with pytest.raises(CorruptionError, match=r"expected=0-65536\.rec"):
        await ReplaySession(archive, 0, position=0, stop_position=3 * TERM_LENGTH, sink=BytesSink()).run()

    assert [place.file_name for place in archive.damage.places] == ["0-65536.rec"]


async def test_a_flood_of_broken_connections_logs_one_line_for_each_kind() -> None:
    """A line costs more than the connection did; it says how many there were."""
    archive = await launch()
    with capture_logs() as lines:
        async with serving(archive) as server:
            for data in [b"\xff" * 256] * 20 + [SetupFrame(session_id=1, stream_id=999).encode()] * 20:
                async with raw_peer(server) as peer:
                    peer.writer.write(data)
                    peer.writer.write_eof()
                    while await peer.reader.read(65536):
                        pass

    told = [line for line in lines if line["event"] == "archive_session.protocol_violated"]
    assert [line["count"] for line in told] == [1, 1]
    assert len({line["reason"] for line in told}) == 2


async def test_recordings_that_do_not_fit_together_are_refused() -> None:
    source, target = await launch(config=small_config(mtu_length_bytes=4096)), await launch()
    await start(source)
    ours = await start(target)

    async with serving(source) as server:
        with pytest.raises(ArchiveError, match="mtu_length=4096 expected=1408"):
            await replicate(source=server.endpoint, src_recording_id=0, recording=ours, stop_position=320)


async def test_silent_source_is_given_up() -> None:
    source, target = await launch(), await launch()
    await start(source)
    ours = await start(target)

    async with serving(source) as server:
        with pytest.raises(ClusterTimeoutError, match=r"timeout_s=0\.05"):
            await replicate(
                source=server.endpoint,
                src_recording_id=0,
                recording=ours,
                stop_position=320,
                progress_timeout_s=0.05,
            )


async def test_source_that_goes_away_is_an_error_at_once() -> None:
    source, target = await launch(), await launch()
    theirs, ours = await start(source), await start(target)
    append(theirs, StreamBuilder(), [100])

    async with serving(source) as server:
        replicating = asyncio.ensure_future(
            replicate(source=server.endpoint, src_recording_id=0, recording=ours, stop_position=3200)
        )
        await until(lambda: ours.append_position != 0)

    with pytest.raises(ArchiveError, match="connection lost") as caught:
        await replicating
    assert caught.value.code is ArchiveErrorCode.REPLICATION_CONNECTION_FAILURE


async def test_unreachable_archive_is_an_error_that_names_it() -> None:
    server = ArchiveServer(ServedArchive(await launch(), authorisation=ReadOnly()))
    await server.start(Endpoint(HOST, 0))
    endpoint = str(server.endpoint)
    await server.aclose()

    with pytest.raises(ArchiveError, match=f"endpoint={endpoint}"):
        async with ArchiveClient.connect(endpoint):
            pass


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        (encode_frame(b"no setup", stream_id=CONTROL_STREAM_ID), "setup"),
        (SetupFrame(session_id=0, stream_id=108).encode(), "stream_id=108"),
        (SetupFrame(session_id=0, stream_id=10).encode() + bytes(32), "frame_length=0"),
        (SetupFrame(session_id=0, stream_id=10).encode() + encode_frame(b"?", stream_id=10), "header"),
        (SetupFrame(session_id=0, stream_id=10).encode() + encode_frame(b"?", stream_id=99), "stream_id=99"),
        (
            SetupFrame(session_id=0, stream_id=10).encode() + encode_request(connect_request(version=9 << 16)),
            "major=9",
        ),
        (
            SetupFrame(session_id=0, stream_id=10).encode()
            + encode_request(messages.KeepAliveRequest(control_session_id=5, correlation_id=CorrelationId(1))),
            "control_session_id=5",
        ),
    ],
)
async def test_peer_that_breaks_the_protocol_is_told_the_value_and_closed(sent: bytes, named: str) -> None:
    async with serving(await launch()) as server, raw_peer(server) as peer:
        peer.writer.write(sent)

        response = await peer.next_response()

        assert response.code is messages.ControlResponseCode.ERROR
        assert named in response.error_message
        assert await peer.next_frame() is None


async def test_request_that_cannot_be_done_is_answered_and_the_session_goes_on() -> None:
    archive = await launch()
    recording = await start(archive)
    written = append(recording, StreamBuilder(), [100] * 3)
    await recording.stop()

    async with serving(archive) as server, raw_peer(server) as peer:
        session_id = await peer.connect_session()
        for position, length in ((32 + 1, 32), (10**6, 32), (0, 33), (0, -3)):
            peer.writer.write(encode_request(replay_request(session_id, position, length)))
            assert (await peer.next_response()).code is messages.ControlResponseCode.ERROR
        peer.writer.write(encode_request(replay_request(session_id, 0, -2)))
        response = await peer.next_response()

        assert response.code is messages.ControlResponseCode.OK
        setup = await peer.next_setup()
        assert (setup.position, setup.checksummed, setup.session_id) == (0, True, response.relevant_id)
        frames = [await peer.next_frame() for _ in range(3)]
        assert [frame.stream_id for frame in frames if frame] == [100] * 3
        assert b"".join(f.raw + bytes(-len(f.raw) % 32) for f in frames if f) == written
        end = await peer.next_frame()
        assert end is not None
        signal = decode_message(end.payload)
        assert isinstance(signal, messages.RecordingSignalEvent)
        assert (signal.signal, signal.position) == (messages.RecordingSignal.SYNC, len(written))


async def test_one_replay_a_connection_and_it_can_be_stopped() -> None:
    archive = await launch()
    append(await start(archive), StreamBuilder(), [100])

    async with serving(archive) as server, raw_peer(server) as peer:
        session_id = await peer.connect_session()
        peer.writer.write(encode_request(replay_request(session_id, 0, -1)))
        replay_session_id = (await peer.next_response()).relevant_id
        assert (await peer.next_setup()).session_id == replay_session_id
        assert (await peer.next_frame()) is not None
        peer.writer.write(encode_request(replay_request(session_id, 0, -1)))
        refused = await peer.next_response()
        peer.writer.write(encode_request(stop_request(session_id, replay_session_id + 1)))
        unknown = await peer.next_response()
        peer.writer.write(encode_request(stop_request(session_id, replay_session_id)))
        stopped = await peer.next_response()

    assert refused.relevant_id == ArchiveErrorCode.MAX_REPLAYS
    assert unknown.relevant_id == ArchiveErrorCode.UNKNOWN_REPLAY
    assert stopped.code is messages.ControlResponseCode.OK


async def test_connections_beyond_the_limit_are_closed() -> None:
    gate = ConnectionGate({Purpose.ARCHIVE: GateLimits.of_count(1)})
    async with serving(await launch(), gate=gate) as server, raw_peer(server) as first:
        await first.connect_session()
        with pytest.raises(ArchiveError, match="connection lost"):
            async with ArchiveClient.connect(str(server.endpoint)):
                pass


async def test_silent_connection_is_closed() -> None:
    async with serving(await launch(), idle_timeout_s=0.01) as server, raw_peer(server) as peer:
        await peer.connect_session()

        assert await peer.next_frame() is None


def replay_request(control_session_id: int, position: int, length: int) -> messages.ReplayRequest:
    return messages.ReplayRequest(
        control_session_id=control_session_id,
        correlation_id=CorrelationId(2),
        recording_id=RecordingId(0),
        position=position,
        length=length,
        replay_stream_id=100,
    )


def stop_request(control_session_id: int, replay_session_id: int) -> messages.StopReplayRequest:
    return messages.StopReplayRequest(
        control_session_id=control_session_id,
        correlation_id=CorrelationId(3),
        replay_session_id=replay_session_id,
    )


async def test_replay_follows_the_live_end_until_the_recording_stops() -> None:
    archive = await launch()
    recording = await start(archive)
    stream, sink = StreamBuilder(), BytesSink()
    written = append(recording, stream, [500] * 10)

    replaying = asyncio.ensure_future(ReplaySession(archive, 0, position=0, stop_position=None, sink=sink).run())
    await asyncio.sleep(0)
    written += append(recording, stream, [500] * 200)
    await recording.stop()

    assert await replaying == len(written)
    assert sink.data == written


async def test_bounded_replay_never_passes_its_limit() -> None:
    archive = await launch()
    written = append(await start(archive), StreamBuilder(), [100] * 10)  # 160 bytes a frame
    sink, limit = BytesSink(), ReplayLimit(0)
    session = ReplaySession(archive, 0, position=0, stop_position=len(written), sink=sink, limit=limit)

    def has(length: int) -> bool:
        return len(sink.data) >= length

    replaying = asyncio.ensure_future(session.run())
    for position, sent in ((160, 160), (479, 320), (480, 480), (500, 480), (len(written), len(written))):
        limit.advance(position)
        await until(partial(has, sent))
        await passes(20)
        assert len(sink.data) == sent

    assert await replaying == len(written)


@pytest.mark.parametrize("position", [-32, 16, 10**6])
async def test_replay_of_what_is_not_there_is_refused(position: int, tmp_path: Path) -> None:
    archive = await launch()
    await (await start(archive)).stop()

    with pytest.raises(ArchiveError, match="INVALID_POSITION"):
        ReplaySession(archive, 0, position=position, stop_position=None, sink=BytesSink())
