"""Replay, then live: one sequence without a gap or a duplicate, whatever happens to the streams."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.unit.archive.net.server.test_replays import offer_all, payloads_of
from tests.unit.archive.served import HOST, client_of, numbered, served_client, serving
from tests.unit.archive.streams import launch
from tests.waiting import let_pass, until, within
from trimaran.archive import ArchiveError, ArchiveErrorCode
from trimaran.archive.net.replay_merge import MergeState, ReplayMerge
from trimaran.archive.net.replay_reader import ReplayReader
from trimaran.archive.net.server.archive_server import ArchiveServer
from trimaran.archive.net.server.recording_session import LiveSubscription
from trimaran.archive.net.server.served_archive import ServedArchive
from trimaran.service_api.authorisation import AllowAll
from trimaran.service_api.endpoint import Endpoint


def state_of(replay: ReplayReader) -> MergeState:
    assert isinstance(replay.source, ReplayMerge)
    return replay.source.state


async def test_reader_joins_the_live_stream_and_says_so() -> None:
    messages = numbered(600)
    async with served_client() as (server, client):
        async with client.record("c", stream_id=7) as publication:
            end_position = await offer_all(publication, messages[:300])
            joined: list[int] = []
            replay = client.replay_merge(0, position=256, on_live=joined.append)
            reading = asyncio.ensure_future(payloads_of(replay))
            await until(lambda: replay.is_live)
            assert joined == [end_position]
            await until(lambda: server.state.replays == {})
            await offer_all(publication, messages[300:])
        async with within(30):
            assert await reading == messages[1:]

    assert joined == [end_position]
    assert state_of(replay) is MergeState.CLOSED


async def test_nothing_is_live_before_it_is_durable() -> None:
    """The live stream carries nothing that a crash could take back."""
    async with served_client() as (server, client):
        async with client.record("c", stream_id=7) as publication:
            replay = client.replay_merge(0)
            reading = asyncio.ensure_future(payloads_of(replay))
            await until(lambda: replay.is_live)
            (recording,) = server.state.recordings.values()
            held = recording.recording.on_recorded
            assert held is not None
            recording.recording.on_recorded = None  # what follows is appended, and nobody is told that it is durable
            await publication.offer(b"x")
            await until(lambda: recording.recording.recorded_position == 64)
            await let_pass(0.02)
            assert replay.position == 0
            recording.recording.on_recorded = held
            held(64)
            await until(lambda: replay.position == 64)
        assert await reading == [b"x"]


async def test_reader_that_is_left_behind_replays_and_joins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = numbered(900)
    async with served_client() as (_, client):
        async with client.record("c", stream_id=7) as publication:
            joined: list[int] = []
            replay = client.replay_merge(0, on_live=joined.append)
            reading = asyncio.ensure_future(payloads_of(replay))
            await until(lambda: len(joined) == 1)
            for part in range(3):
                with monkeypatch.context() as patch:
                    patch.setattr("trimaran.archive.net.server.recording_session.LIVE_BUFFER_BYTES", 0)
                    await offer_all(publication, messages[300 * part : 300 * part + 150])
                await until(lambda part=part: len(joined) == part + 2)  # type: ignore[misc]  # bound now
                await offer_all(publication, messages[300 * part + 150 : 300 * (part + 1)])
        async with within(30):
            assert await reading == messages

    assert joined == sorted(joined)
    assert len(joined) == 4


async def test_broken_connections_are_dialled_again() -> None:
    messages = numbered(2000)
    async with serving() as server, client_of(server) as client, client_of(server) as reader:
        async with client.record("c", stream_id=7) as publication:
            joined: list[int] = []
            reading = asyncio.ensure_future(payloads_of(reader.replay_merge(0, on_live=joined.append)))
            for part in range(10):
                await offer_all(publication, messages[200 * part : 200 * (part + 1)])
                await until(lambda part=part: len(joined) > part)  # type: ignore[misc]  # bound now
                for recording in server.state.recordings.values():
                    for subscription in [*recording._subscribers]:
                        subscription._session.abort()
            await until(lambda: len(joined) == 11)
        async with within(30):
            assert await reading == messages


async def test_reader_outlives_a_restart_of_the_archive() -> None:
    archive = await launch()
    server = ArchiveServer(ServedArchive(archive, authorisation=AllowAll()))
    await server.start(Endpoint(HOST, 0))
    endpoint = server.endpoint
    async with client_of(server) as client:
        with pytest.raises(ArchiveError):  # noqa: PT012 - the block is what fails
            async with client.record("c", stream_id=7) as publication:
                await offer_all(publication, numbered(50))
                reading = asyncio.ensure_future(payloads_of(client.replay_merge(0, position=0)))
                await until(lambda: any(recording._subscribers for recording in server.state.recordings.values()))
                await server.aclose()
                await publication.offer(b"never")
                await publication.recorded()
        again = ArchiveServer(ServedArchive(archive, authorisation=AllowAll()))
        await again.start(endpoint)
        async with within(60):
            assert await reading == numbered(50)
        await again.aclose()


async def test_archive_that_stays_away_is_given_up() -> None:
    async with serving() as server, client_of(server) as client:
        async with client.record("c", stream_id=7) as publication:
            await offer_all(publication, numbered(5))
        await server.aclose()
        with pytest.raises(ArchiveError) as caught:
            await payloads_of(client.replay_merge(0, reconnect_timeout_s=0.2))

    assert caught.value.code is ArchiveErrorCode.REPLICATION_CONNECTION_FAILURE


async def test_recording_that_is_over_is_replayed_to_its_end() -> None:
    async with served_client() as (_, client):
        async with client.record("c", stream_id=7) as publication:
            await offer_all(publication, numbered(5))
        replay = client.replay_merge(0)
        assert await payloads_of(replay) == numbered(5)
        with pytest.raises(ArchiveError) as caught:
            await payloads_of(client.replay_merge(1))

    assert caught.value.code is ArchiveErrorCode.UNKNOWN_RECORDING


async def test_merge_that_skips_a_chunk_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the archive leaves out of the live stream, the reader notices: frames say where they belong."""
    send = LiveSubscription.send
    skipped: list[int] = []

    def skip_once(self: LiveSubscription, chunks: list[tuple[int, bytes]]) -> None:
        if not skipped:
            skipped.append(chunks[0][0])
            return
        send(self, chunks)

    monkeypatch.setattr(LiveSubscription, "send", skip_once)
    async with served_client() as (_, client):
        async with client.record("c", stream_id=7) as publication:
            replay = client.replay_merge(0)
            reading = asyncio.ensure_future(payloads_of(replay))
            await until(lambda: replay.is_live)
            for message in numbered(5):
                await offer_all(publication, [message])
        with pytest.raises(Exception, match="term offset"):
            await reading


async def test_a_client_that_reads_logs_nothing() -> None:
    """Without logging settings its program had debug lines on standard output: a library is silent."""
    async with served_client() as (_, client):
        with capture_logs() as logs:
            async with client.record("c", stream_id=7) as publication:
                replay = client.replay_merge(0)
                reading = asyncio.ensure_future(payloads_of(replay))
                await until(lambda: replay.is_live)
                await offer_all(publication, numbered(3))
            async with within(30):
                await reading

    assert [line for line in logs if line["event"].startswith("replay_merge")] == []
