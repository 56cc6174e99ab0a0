"""Copies that one archive makes of another's recordings: whole, in part, live, interrupted and asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.unit.archive.net.server.test_replays import offer_all
from tests.unit.archive.served import HOST, client_of, numbered, serving
from tests.unit.archive.streams import launch, read_all, small_config
from tests.waiting import until, within
from trimaran.archive import Archive, ArchiveError, ArchiveErrorCode
from trimaran.archive.format import messages
from trimaran.archive.net.client import ArchiveClient
from trimaran.archive.net.server.archive_server import ArchiveServer
from trimaran.archive.net.server.policy import ReadOnly
from trimaran.archive.net.server.served_archive import ServedArchive
from trimaran.service_api.authorisation import AllowAll
from trimaran.service_api.endpoint import Endpoint


@asynccontextmanager
async def two_archives(target: Archive | None = None) -> AsyncIterator[tuple[ArchiveServer, ArchiveServer]]:
    async with serving() as source, serving(target) as destination:
        yield source, destination


def endpoint(server: ArchiveServer) -> str:
    return str(server.endpoint)


def has_come_to(server: ArchiveServer, position: int) -> bool:
    return bool(server.state.archive.descriptors()) and server.state.archive.recorded_position(0) == position


async def record(client: ArchiveClient, count: int) -> int:
    async with client.record("c", stream_id=7) as publication:
        await offer_all(publication, numbered(count))
    return publication.position


async def test_copy_is_equal_byte_for_byte() -> None:
    async with two_archives() as (source, target), client_of(source) as theirs, client_of(target) as ours:
        end_position = await record(theirs, 1000)
        watching = aiter(ours.signals())
        copy = await ours.replicate(endpoint(source), 0)

        assert await copy.wait() == end_position
        assert copy.recording_id == 0
        assert read_all(target.state.archive) == read_all(source.state.archive)
        descriptor = await ours.list_recording(0)
        assert (descriptor.original_channel, descriptor.stop_position) == ("c", end_position)
        del watching


async def test_copy_is_laid_out_as_its_source() -> None:
    """Whatever the archive that makes it does with recordings of its own."""
    other = await launch(config=small_config(term_length_bytes=1 << 20, segment_length_bytes=1 << 21))
    async with two_archives(other) as (source, target), client_of(source) as theirs, client_of(target) as ours:
        end_position = await record(theirs, 600)
        assert await (await ours.replicate(endpoint(source), 0)).wait() == end_position > 65536
        descriptor = await ours.list_recording(0)

        assert (descriptor.term_buffer_length, descriptor.segment_file_length) == (65536, 65536)
        assert read_all(target.state.archive) == read_all(source.state.archive)


async def test_copy_follows_and_joins_the_live_stream() -> None:
    signal = messages.RecordingSignal
    async with two_archives() as (source, target), client_of(source) as theirs, client_of(target) as ours:
        async with theirs.record("c", stream_id=7) as publication:
            await offer_all(publication, numbered(100))
            copy = await ours.replicate(f"aeron:udp?endpoint={endpoint(source)}", 0, live=True)
            async with within(30):
                assert await copy.wait_live() == publication.position
            await offer_all(publication, numbered(100, first=100))
            await until(lambda: has_come_to(target, publication.position))
        async with within(30):
            assert await copy.wait() == publication.position
        assert read_all(target.state.archive) == read_all(source.state.archive)
        seen = [m.signal for m in ours._signals._messages if isinstance(m, messages.RecordingSignalEvent)]

    assert seen == [signal.REPLICATE, signal.MERGE, signal.SYNC, signal.STOP, signal.REPLICATE_END]


async def test_copy_ends_at_a_position_and_goes_on_from_there() -> None:
    async with two_archives() as (source, target), client_of(source) as theirs, client_of(target) as ours:
        end_position = await record(theirs, 300)
        first = await ours.replicate(endpoint(source), 0, stop_position=100 * 256)
        assert await first.wait() == 100 * 256
        second = await ours.replicate(endpoint(source), 0, dst_recording_id=0, stop_position=200 * 256)
        assert await second.wait() == 200 * 256
        third = await ours.replicate(endpoint(source), 0, dst_recording_id=0)
        assert await third.wait() == end_position

        assert read_all(target.state.archive) == read_all(source.state.archive)
        assert len(target.state.archive.descriptors()) == 1


@pytest.mark.parametrize("live", [False, True])
async def test_copy_goes_on_after_a_broken_link(live: bool) -> None:
    async with two_archives() as (source, target), client_of(source) as theirs, client_of(target) as ours:
        async with theirs.record("c", stream_id=7) as publication:
            copy = await ours.replicate(endpoint(source), 0, live=live)
            for part in range(5):
                await offer_all(publication, numbered(100, first=100 * part))
                await until(lambda: has_come_to(target, publication.position))
                for task in [*source._sessions][2:]:
                    task.cancel()
        async with within(30):
            assert await copy.wait() == publication.position
        assert read_all(target.state.archive) == read_all(source.state.archive)


async def test_copy_that_was_stopped_is_whole_as_far_as_it_goes_and_can_be_asked_for_again() -> None:
    async with two_archives() as (source, target), client_of(source) as theirs:
        async with theirs.record("c", stream_id=7) as publication:
            async with client_of(target) as ours:
                await ours.replicate(endpoint(source), 0)
            await offer_all(publication, numbered(100))
            await until(lambda: has_come_to(target, publication.position))  # without its client
            async with client_of(target) as ours:
                await ours.stop_replication(next(iter(target.state.replications)))
                assert await ours.stop_position(0) == publication.position
                with pytest.raises(ArchiveError) as caught:
                    await ours.stop_replication(99)
            await offer_all(publication, numbered(100, first=100))
        async with client_of(target) as ours:
            copy = await ours.replicate(endpoint(source), 0, dst_recording_id=0)
            assert await copy.wait() == publication.position
        assert read_all(target.state.archive) == read_all(source.state.archive)

    assert caught.value.code is ArchiveErrorCode.UNKNOWN_REPLICATION


async def test_copy_that_cannot_be_made_says_why() -> None:
    odd = await launch(config=small_config(mtu_length_bytes=4096))
    async with two_archives(odd) as (source, target), client_of(source) as theirs, client_of(target) as ours:
        await record(theirs, 3)
        await record(ours, 3)
        with pytest.raises(ArchiveError, match=r"mtu_length=1408 expected=4096") as layout:
            await (await ours.replicate(endpoint(source), 0, dst_recording_id=0)).wait()
        with pytest.raises(ArchiveError, match="unknown recording") as unknown:
            await (await ours.replicate(endpoint(source), 5)).wait()
        with pytest.raises(ArchiveError, match="expected host:port"):
            await ours.replicate("somewhere", 0)
        with pytest.raises(ArchiveError, match="unknown recording"):
            await ours.replicate(endpoint(source), 0, dst_recording_id=9)

    assert layout.value.code is ArchiveErrorCode.INVALID_EXTENSION
    assert unknown.value.code is ArchiveErrorCode.UNKNOWN_RECORDING


async def test_copy_of_a_node_is_allowed_and_into_a_node_is_not() -> None:
    """Source: the archive of a cluster member is read-only for strangers."""
    archive = await launch()
    async with serving(archive) as writable, client_of(writable) as writer:
        end_position = await record(writer, 10)
        member = ArchiveServer(ServedArchive(archive, authorisation=ReadOnly()))
        await member.start(Endpoint(HOST, 0))
        async with serving() as target, client_of(target) as ours, client_of(member) as stranger:
            assert await (await ours.replicate(endpoint(member), 0)).wait() == end_position
            refused = [
                stranger.replicate(endpoint(target), 0),
                stranger.truncate_recording(0, 0),
                stranger.purge_recording(0),
                stranger.purge_segments(0, 0),
                stranger.detach_segments(0, 0),
                stranger.attach_segments(0),
                stranger.delete_detached_segments(0),
                stranger.migrate_segments(src_recording_id=0, dst_recording_id=0),
                stranger.update_channel(0, "x"),
                stranger.stop_recording(0),
                stranger.stop_recordings("c", stream_id=7),
                stranger.stop_all_replays(),
                stranger.stop_replication(1),
            ]
            answers = await asyncio.gather(*refused, return_exceptions=True)
            with pytest.raises(ArchiveError):
                async with stranger.extend(0):
                    pass
            with pytest.raises(ArchiveError):
                async with stranger.record("x", stream_id=7):
                    pass
        await member.aclose()

    assert [type(answer) for answer in answers] == [ArchiveError] * len(refused)
    assert {answer.code for answer in answers if isinstance(answer, ArchiveError)} == {
        ArchiveErrorCode.UNAUTHORISED_ACTION
    }
    assert AllowAll().is_authorised(101, 13, None, b"")
