"""Replays over the network: ranges, following, bounds, rates, many at once, and readers that are slow or stopped."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.archive.served import client_of, numbered, served_client, serving
from tests.unit.archive.streams import DIRECTORY, launch
from tests.waiting import until, within
from trimaran.archive import ArchiveError, ArchiveErrorCode
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.net.connection import STREAM_BUFFER_BYTES
from trimaran.archive.net.publication import Publication
from trimaran.archive.net.replay_reader import ReplayReader
from trimaran.archive.store.replay import CHUNK_LENGTH_BYTES, REPLAY_BUFFER_BYTES


async def offer_all(publication: Publication, messages: list[bytes]) -> int:
    for message in messages:
        await publication.offer(message)
    return await publication.recorded()


async def payloads_of(replay: ReplayReader) -> list[bytes]:
    return [message.payload async for message in replay]


async def test_ranges_begin_and_end_where_they_are_asked_to() -> None:
    """96 bytes a message: 32 of header, 64 of payload."""
    async with served_client() as (_, client):
        async with client.record("c", stream_id=7) as publication:
            await offer_all(publication, numbered(10, length=64))

        assert await payloads_of(client.replay(0, position=5 * 96)) == numbered(5, length=64, first=5)
        assert await payloads_of(client.replay(0, stop_position=2 * 96)) == numbered(2, length=64)
        assert await payloads_of(client.replay(0, position=96, stop_position=3 * 96)) == numbered(2, length=64, first=1)
        assert await payloads_of(client.replay(0, position=960)) == []
        frames = [frame async for frame in client.replay(0).frames()]
        chunks = [chunk async for chunk in client.replay(0).chunks()]

    assert [frame.position for frame in frames] == list(range(0, 960, 96))
    assert sum(len(chunk) for _, chunk in chunks) == 960


async def test_replay_goes_on_with_the_recording_and_ends_with_it() -> None:
    async with served_client() as (_, client):
        async with client.record("c", stream_id=7) as publication:
            await offer_all(publication, numbered(10))
            following = asyncio.ensure_future(payloads_of(client.replay(0, follow=True)))
            awaited = asyncio.ensure_future(payloads_of(client.replay(0, stop_position=500 * 256)))
            await offer_all(publication, numbered(490, first=10, length=200))
        async with within(30):
            assert await following == numbered(500)
            assert len(await awaited) in range(495, 501)


async def test_slow_reader_holds_back_neither_the_recorder_nor_other_readers() -> None:
    async with serving() as server, client_of(server) as client, client_of(server) as slow_client:
        messages = numbered(4000, length=4000)
        async with client.record("c", stream_id=7) as publication:
            await offer_all(publication, messages[:10])
            slow = aiter(slow_client.replay(0, follow=True))
            await anext(slow)
            quick = [asyncio.ensure_future(payloads_of(client.replay(0, follow=True))) for _ in range(5)]
            async with within(60):
                await offer_all(publication, messages[10:])
        async with within(60):
            for reading in quick:
                assert len(await reading) == 4000

        (served,) = server.state.replays.values()
        assert served.session.buffered_bytes <= REPLAY_BUFFER_BYTES + CHUNK_LENGTH_BYTES
        assert all(len(connection.buffer) < 2 * STREAM_BUFFER_BYTES for connection in slow_client._connections)
        rest = [message.payload async for message in slow]
        assert rest == messages[1:]


async def test_replay_keeps_its_rate() -> None:
    async with serving(replay_rate_limit_bytes_per_s=1_000_000) as server, client_of(server) as client:
        async with client.record("c", stream_id=7) as publication:
            length = await offer_all(publication, numbered(200, length=1000))
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        await payloads_of(client.replay(0))
        duration_s = loop.time() - begin_s

    # The last chunk, 64 KiB at most, is not waited for.
    assert duration_s > (length - (64 << 10)) / 1_000_000 - 0.01


async def test_bounded_replay_is_moved_by_its_reader() -> None:
    async with served_client() as (_, client):
        async with client.record("c", stream_id=7) as publication:
            await offer_all(publication, numbered(10, length=64))
        replay = client.bounded_replay(0)
        seen: list[int] = []

        async def read() -> None:
            async for message in replay:
                seen.append(message.end_position)  # noqa: PERF401 - looked at meanwhile

        reading = asyncio.ensure_future(read())
        for limit, expected in ((96, 96), (300, 288), (480, 480), (960, 960)):
            replay.limit(limit)
            await until(lambda expected=expected: bool(seen) and seen[-1] >= expected)  # type: ignore[misc]  # bound now
            assert seen[-1] == expected
        async with within(30):
            await reading


async def test_replay_never_passes_another_recording() -> None:
    async with served_client() as (_, client):
        async with client.record("a", stream_id=7) as first:
            await offer_all(first, numbered(10, length=64))
        async with client.record("b", stream_id=8) as second:
            seen: list[int] = []

            async def read() -> None:
                bounded = client.replay(first.recording_id, limit_recording_id=second.recording_id)
                async for message in bounded:
                    seen.append(message.end_position)  # noqa: PERF401 - looked at meanwhile

            reading = asyncio.ensure_future(read())
            for count in (3, 3, 4):
                position = await offer_all(second, numbered(count, length=64))
                await until(lambda position=position: bool(seen) and seen[-1] >= position)  # type: ignore[misc]
                assert seen[-1] == position
            async with within(30):
                await reading


async def test_replays_are_stopped_by_others_and_their_readers_told() -> None:
    async with served_client() as (server, client), client.record("c", stream_id=7) as publication:
        await offer_all(publication, numbered(3))
        replays = [client.replay(0, follow=True) for _ in range(3)]
        readings = [asyncio.ensure_future(payloads_of(replay)) for replay in replays]
        await until(lambda: len(server.state.replays) == 3)
        first_id = min(server.state.replays)
        await client.stop_replay(first_id)
        with pytest.raises(ArchiveError) as unknown:
            await client.stop_replay(first_id)
        assert await client.stop_all_replays(0) == 2
        results = await asyncio.gather(*readings, return_exceptions=True)

    assert unknown.value.code is ArchiveErrorCode.UNKNOWN_REPLAY
    for result in results:
        assert isinstance(result, ArchiveError)
        assert (result.code, result.recording_id) == (ArchiveErrorCode.UNKNOWN_REPLAY, 0)
        assert "was stopped" in str(result)


async def test_more_replays_than_allowed_are_refused() -> None:
    async with (
        serving(replay_limit=1) as server,
        client_of(server) as client,
        client.record("c", stream_id=7) as publication,
    ):
        await offer_all(publication, numbered(1))
        first = aiter(client.replay(0, follow=True))
        await anext(first)
        with pytest.raises(ArchiveError, match="limit=1") as caught:
            await payloads_of(client.replay(0))

    assert caught.value.code is ArchiveErrorCode.MAX_REPLAYS


@pytest.mark.parametrize(
    ("position", "code"),
    [(32, "INVALID_POSITION"), (1 << 20, "INVALID_POSITION"), (33, "INVALID_POSITION")],
)
async def test_position_inside_a_frame_is_refused_and_no_damage(position: int, code: str) -> None:
    """A stranger who asks for nonsense must not make an archive, or the member that owns it, believe in damage."""
    archive = await launch()
    async with served_client(archive) as (_, client):
        async with client.record("c", stream_id=7) as publication:
            await offer_all(publication, numbered(3, length=64))
        with pytest.raises(ArchiveError, match=code) as caught:
            await payloads_of(client.replay(0, position=position))
        assert await payloads_of(client.replay(0, stop_position=96 + 32)) == numbered(1, length=64)

    assert (caught.value.recording_id, caught.value.position) == (0, position)
    assert archive.damage.places == []


async def test_damage_is_still_found_where_a_replay_begins() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    async with served_client(archive) as (_, client):
        async with client.record("c", stream_id=7) as publication:
            await offer_all(publication, numbered(3, length=64))
        disk.damage(DIRECTORY / "0-0.rec", 96 + 40, b"\x01\x02")
        with pytest.raises(ArchiveError, match="wrong checksum") as caught:
            await payloads_of(client.replay(0, position=96))

    assert caught.value.code is ArchiveErrorCode.CORRUPT
    assert [(place.recording_id, place.position) for place in archive.damage.places] == [(0, 96)]


async def test_reader_that_leaves_is_forgotten() -> None:
    async with served_client() as (server, client), client.record("c", stream_id=7) as publication:
        await offer_all(publication, numbered(3))
        async with client.replay(0, follow=True) as replay:
            async for message in replay:
                if message.payload == numbered(3)[-1]:
                    break
        await until(lambda: server.state.replays == {} and len(server._sessions) == 2)
