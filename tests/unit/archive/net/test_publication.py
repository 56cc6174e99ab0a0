"""Recording over the network: publications, what is durable, who is refused, and what a broken connection leaves."""

from __future__ import annotations

import asyncio
import errno

import pytest

from tests.unit.archive.served import HOST, client_of, numbered, served_client, serving
from tests.unit.archive.streams import (
    DIRECTORY,
    TERM_LENGTH,
    ManualWorker,
    failing,
    launch,
    read_all,
    small_config,
)
from tests.waiting import let_pass, until, within
from trimaran.archive import ArchiveError, ArchiveErrorCode
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.format import messages
from trimaran.archive.net.control import CONTROL_STREAM_ID, encode_request
from trimaran.archive.net.publication import Publication
from trimaran.archive.net.server.recording_session import WINDOW_BYTES
from trimaran.service_api.errors import LocalProtocolError
from trimaran.service_api.types import CorrelationId
from trimaran.service_api.wire.frame import encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame


async def test_what_was_offered_is_recorded_durably_and_replayed() -> None:
    """Short, empty, fragmented messages, and padding where a term would end inside one."""
    disk = MemoryFileSystem()
    sent = [b"", b"x", *numbered(200, length=700), bytes(range(256)) * 30]
    async with served_client(await launch(disk)) as (server, client):
        async with client.record("orders", stream_id=7) as publication:
            for message in sent:
                position = await publication.offer(message)
            assert await publication.recorded(position) >= position == publication.position
            assert disk.durable_read(DIRECTORY / "0-65536.rec", 64, 0) != bytes(64)
            replayed = [message async for message in client.replay(publication.recording_id)]
        descriptor = await client.list_recording(publication.recording_id)

        assert [message.payload for message in replayed] == sent
        assert replayed[-1].end_position == position == descriptor.stop_position
        assert replayed[-1].frame_count == 6
        assert (descriptor.stream_id, descriptor.original_channel) == (7, "orders")
        assert len(read_all(server.state.archive)) == position


@pytest.mark.parametrize("checksums", [True, False])
async def test_frames_are_laid_out_as_a_leader_lays_them_out(checksums: bool) -> None:
    """One frame everywhere: what the publisher sends is what lies in the segment file."""
    archive = await launch(config=small_config(checksums=checksums))
    async with served_client(archive) as (_, client), client.record("c", stream_id=7) as publication:
        await publication.offer(b"hello")
        await publication.recorded()
        data, setup = read_all(archive), publication.setup

    expected = encode_frame(b"hello", stream_id=7, session_id=setup.session_id)
    assert data[:12] + data[16:] == expected[:12] + expected[16:]
    assert (data[12:16] == expected[12:16]) is not checksums


async def test_several_publish_at_once_and_none_waits_for_another() -> None:
    async with served_client() as (server, client):

        async def publish(number: int) -> int:
            async with client.record(f"channel-{number}", stream_id=100 + number) as publication:
                for message in numbered(50, first=1000 * number):
                    await publication.offer(message)
                return publication.recording_id

        recording_ids = await asyncio.gather(*(publish(number) for number in range(5)))

        for number, recording_id in enumerate(recording_ids):
            payloads = [message.payload async for message in client.replay(recording_id)]
            assert payloads == numbered(50, first=1000 * number)
        assert server.state.recordings == {}


async def test_publisher_is_held_back_while_the_disk_is_behind() -> None:
    workers: list[ManualWorker] = []

    def make_worker(name: str) -> ManualWorker:
        workers.append(ManualWorker())
        return workers[-1]

    archive = await launch(
        config=small_config(term_length_bytes=8 << 20, segment_length_bytes=8 << 20, inline_sync_limit_bytes=-1),
        make_worker=make_worker,
    )
    async with served_client(archive) as (_, client), client.record("c", stream_id=7) as publication:
        offering = asyncio.ensure_future(_offer_all(publication, [bytes(100_000)] * 60))
        await until(lambda: publication.position >= WINDOW_BYTES and workers != [])
        await let_pass(0.02)

        assert not offering.done()
        assert publication.position < WINDOW_BYTES + 200_000
        assert publication.recorded_position == 0

        async def work() -> None:
            while not offering.done() or publication.recorded_position < publication.position:
                if workers[0].pending is not None:
                    workers[0].complete()
                await asyncio.sleep(0)

        async with within(60):
            await work()
        assert publication.recorded_position == publication.position > 60 * 100_000


async def _offer_all(publication: Publication, payloads: list[bytes]) -> None:
    for payload in payloads:
        await publication.offer(payload)


async def test_message_that_is_too_long_is_refused_here() -> None:
    async with served_client() as (_, client), client.record("c", stream_id=7) as publication:
        assert publication.max_message_length == TERM_LENGTH // 8
        with pytest.raises(LocalProtocolError, match="length=8193 limit=8192"):
            await publication.offer(bytes(8193))
        await publication.offer(bytes(8192))


async def test_recording_is_extended_from_where_it_stopped() -> None:
    async with served_client() as (_, client):
        async with client.record("c", stream_id=7) as first:
            for message in numbered(10):
                await first.offer(message)
        async with client.extend(first.recording_id) as second:
            assert second.recording_id == first.recording_id
            assert second.position == first.position
            assert second.session_id != first.session_id
            for message in numbered(10, first=10):
                await second.offer(message)

        payloads = [message.payload async for message in client.replay(first.recording_id)]

    assert payloads == numbered(20)


async def test_lost_publisher_leaves_a_recording_that_can_be_extended() -> None:
    async with served_client() as (server, client):
        with pytest.raises(ValueError, match="middle"):  # noqa: PT012 - the block is what fails
            async with client.record("c", stream_id=7) as publication:
                await publication.offer(b"kept")
                await publication.recorded()
                raise ValueError("in the middle")
        await until(lambda: server.state.recordings == {})

        assert await client.stop_position(0) == publication.recorded_position == 64
        async with client.extend(0) as publication:
            await publication.offer(b"more")
        assert [message.payload async for message in client.replay(0)] == [b"kept", b"more"]


async def test_half_a_message_is_left_out_by_readers() -> None:
    """A publisher that dies inside a message leaves its beginning; what comes later is whole."""
    async with served_client() as (server, client):
        async with client.record("c", stream_id=7) as publication:
            await publication.offer(b"before")
            publication._append(bytes(3000))
            publication._unsent[-1:] = []  # its last fragment never leaves
            publication._flush()
            await until(lambda: publication.recorded_position == 64 + 2 * 1408)
            publication.connection.abort()
            with pytest.raises(ArchiveError, match="closed here"):
                await publication.recorded()
            publication.position = 0  # let the block end without waiting for what never comes
        await until(lambda: server.state.recordings == {})
        async with client.extend(0) as publication:
            await publication.offer(b"after")
        replay = client.replay(0)

        assert [message.payload async for message in replay] == [b"before", b"after"]
        assert replay.incomplete_message_count == 1


async def test_publisher_learns_that_somebody_stopped_its_recording() -> None:
    async with serving() as server, client_of(server) as client, client_of(server) as other:
        async with client.record("c", stream_id=7) as publication:
            position = await publication.offer(b"one")
            await publication.recorded()
            assert await other.stop_recording(publication.recording_id)

            assert await publication.recorded(position) == position
            await until(lambda: "closed" in repr(publication))  # the news may come after the other's answer
            with pytest.raises(ArchiveError, match="was stopped") as caught:
                await publication.offer(b"two")
            assert not await other.stop_recording(publication.recording_id)

        assert (caught.value.code, caught.value.recording_id, caught.value.position) == (ArchiveErrorCode.CLOSED, 0, 64)
        assert await client.stop_position(0) == 64


async def test_recordings_are_stopped_by_channel_and_listed_as_subscriptions() -> None:
    async with served_client() as (_, client), client.record("trades", stream_id=7) as publication:
        (listed,) = await client.list_recording_subscriptions()
        assert (listed.stripped_channel, listed.stream_id) == ("trades", 7)
        assert listed.subscription_id == publication.subscription_id
        assert await client.list_recording_subscriptions(channel_fragment="rade", stream_id=8) == []

        assert await client.stop_recordings("trades", stream_id=7) == 1
        with pytest.raises(ArchiveError) as caught:
            await client.stop_recordings("trades", stream_id=7)

    assert caught.value.code is ArchiveErrorCode.UNKNOWN_SUBSCRIPTION


async def test_failed_disk_reaches_the_publisher() -> None:
    disk = MemoryFileSystem()
    async with served_client(await launch(disk)) as (_, client):
        with pytest.raises(ArchiveError, match="No space left") as caught:  # noqa: PT012 - the block is what fails
            async with client.record("c", stream_id=7) as publication:
                disk.on_operation = failing(OSError(errno.ENOSPC, "No space left on device"), "pwrite")
                await publication.offer(b"lost")
                await publication.recorded()

        assert (caught.value.code, caught.value.recording_id) == (ArchiveErrorCode.STORAGE_FAILED, 0)
        disk.on_operation = None


@pytest.mark.parametrize("stream_id", [10, 20, 30])
async def test_streams_of_the_protocol_are_not_recorded(stream_id: int) -> None:
    async with served_client() as (_, client):
        with pytest.raises(ArchiveError, match=rf"stream_id={stream_id} .*control"):
            async with client.record("c", stream_id=stream_id):
                pass
        with pytest.raises(ArchiveError, match="invalid channel"):
            async with client.record("ü", stream_id=7):
                pass


async def test_more_recordings_than_allowed_are_refused() -> None:
    async with serving(recording_limit=1) as server, client_of(server) as client, client.record("a", stream_id=7):
        with pytest.raises(ArchiveError, match="limit=1") as caught:
            async with client.record("b", stream_id=8):
                pass

    assert caught.value.code is ArchiveErrorCode.MAX_RECORDINGS


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        (encode_frame(b"x", stream_id=7, term_offset=32), "wrong term offset: term_offset=32 expected=64"),
        (encode_frame(b"x", stream_id=8, term_offset=64), "wrong stream id: stream_id=8 expected=7"),
        (encode_frame(b"x", stream_id=7, session_id=5, term_offset=64), "wrong checksum"),
    ],
    ids=["place", "stream", "checksum"],
)
async def test_publisher_that_sends_what_is_wrong_is_told_and_nothing_of_it_is_recorded(
    frame: bytes, named: str
) -> None:
    archive = await launch()
    async with served_client(archive) as (server, client):
        with pytest.raises(ArchiveError, match=f"position=64: {named}"):  # noqa: PT012
            async with client.record("c", stream_id=7) as publication:
                await publication.offer(b"right")
                await publication.recorded()
                publication.connection.write(frame)
                await publication.recorded(96)
        await until(lambda: server.state.recordings == {})

        assert archive.recorded_position(0) == 64
        assert [message.payload async for message in client.replay(0)] == [b"right"]


async def test_events_tell_of_every_recording() -> None:
    async with serving() as server, client_of(server) as client, client_of(server) as watcher:
        seen: list[object] = []

        async def watch() -> None:
            async for event in watcher.recording_events():
                seen.append(event)
                if isinstance(event, messages.RecordingStopped):
                    return

        watching = asyncio.ensure_future(watch())
        await until(lambda: len(server.state.events._sessions) == 1)
        async with client.record("orders", stream_id=7) as publication:
            await publication.offer(b"x")
            await publication.recorded()
        async with within(30):
            await watching

    started, stopped = seen[0], seen[-1]
    assert isinstance(started, messages.RecordingStarted)
    assert (started.recording_id, started.stream_id, started.channel) == (0, 7, "orders")
    assert isinstance(stopped, messages.RecordingStopped)
    assert stopped.stop_position == 64
    assert [event.position for event in seen if isinstance(event, messages.RecordingProgress)][-1] == 64


async def test_requests_in_flight_are_answered_each_to_its_own() -> None:
    """One connection, requests written without waiting."""
    async with serving() as server, client_of(server) as client:
        async with client.record("c", stream_id=7) as publication:
            await publication.offer(b"x")
        asked = [client.max_recorded_position(0), client.stop_position(5), client.start_position(0)] * 30
        answers = await asyncio.gather(*asked, return_exceptions=True)

    assert answers[0::3] == [64] * 30
    assert {str(answer) for answer in answers[1::3]} == {
        "archive answered: unknown recording (code=UNKNOWN_RECORDING recording_id=5)"
    }
    assert answers[2::3] == [0] * 30


async def test_pipelined_requests_are_answered_in_order() -> None:
    """Source: aeron.md §1.11, every request has a correlation id."""
    async with serving() as server:
        reader, writer = await asyncio.open_connection(HOST, server.endpoint.port)
        connect = messages.AuthConnectRequest(correlation_id=CorrelationId(1), response_stream_id=20, version=1 << 16)
        writer.write(SetupFrame(session_id=0, stream_id=CONTROL_STREAM_ID).encode() + encode_request(connect))
        for number in range(2, 12):
            request = messages.ArchiveIdRequest(control_session_id=1, correlation_id=CorrelationId(number))
            writer.write(encode_request(request))
        async with within(30):
            data = await reader.readexactly(11 * 96)
        writer.transport.abort()

    correlation_ids = [int.from_bytes(data[at + 48 : at + 56], "little") for at in range(0, len(data), 96)]
    assert correlation_ids == list(range(1, 12))
