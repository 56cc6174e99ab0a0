"""Requests that an archive refuses: the client learns the code, the recording and the position; nothing has changed.

An archive with two recordings: 0 has ended, in segments of one term; 1 is being recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from tests.unit.archive.net.server.test_archive_server import append, serving, start
from tests.unit.archive.streams import TERM_LENGTH, StreamBuilder, launch
from trimaran.archive import ArchiveError, ArchiveErrorCode
from trimaran.archive.net.client import ArchiveClient
from trimaran.archive.net.control import CONTROL_STREAM_ID
from trimaran.archive.net.server.policy import ReadOnly
from trimaran.service_api.authorisation import AllowAll, AuthorisationService

ENDED: Final = 0
ACTIVE: Final = 1
UNKNOWN: Final = 7
BEYOND: Final = 1 << 40
Ask = Callable[[ArchiveClient], Awaitable[object]]


async def read(client: ArchiveClient, recording_id: int, position: int | None = None) -> int:
    """Replay to the end, and count the messages."""
    return sum([1 async for _ in client.replay(recording_id, position=position)])


async def extend(client: ArchiveClient, recording_id: int) -> None:
    async with client.extend(recording_id):
        pass


async def record(client: ArchiveClient, channel: str = "mine", stream_id: int = 8) -> None:
    async with client.record(channel, stream_id=stream_id):
        pass


READS: Final[dict[str, Callable[[ArchiveClient, int], Awaitable[object]]]] = {
    "list": lambda client, one: client.list_recording(one),
    "start position": lambda client, one: client.start_position(one),
    "stop position": lambda client, one: client.stop_position(one),
    "recorded position": lambda client, one: client.recording_position(one),
    "highest position": lambda client, one: client.max_recorded_position(one),
    "replay": lambda client, one: read(client, one),
}
EDITS: Final[dict[str, Callable[[ArchiveClient, int], Awaitable[object]]]] = {
    "stop": lambda client, one: client.stop_recording(one),
    "truncate": lambda client, one: client.truncate_recording(one, 0),
    "purge segments": lambda client, one: client.purge_segments(one, 0),
    "detach": lambda client, one: client.detach_segments(one, TERM_LENGTH),
    "delete detached": lambda client, one: client.delete_detached_segments(one),
    "attach": lambda client, one: client.attach_segments(one),
    "purge": lambda client, one: client.purge_recording(one),
    "rename": lambda client, one: client.update_channel(one, "again"),
    "migrate from": lambda client, one: client.migrate_segments(src_recording_id=one, dst_recording_id=ENDED),
    "migrate to": lambda client, one: client.migrate_segments(src_recording_id=ENDED, dst_recording_id=one),
}


@asynccontextmanager
async def two_recordings(authorisation: AuthorisationService) -> AsyncIterator[ArchiveClient]:
    """Give a client of the archive. At the end, the client still works and the archive is as it was."""
    archive = await launch()
    for recording_id in (ENDED, ACTIVE):
        append(await start(archive), StreamBuilder(), [1000] * 200)
        if recording_id == ENDED:
            await archive.stop_recording(ENDED)
    async with serving(archive, authorisation=authorisation) as server:
        async with ArchiveClient.connect(str(server.endpoint)) as client:
            before = await descriptions(client)
            yield client
            assert await descriptions(client) == before
        assert server.state.replays == {}
        assert server.state.recordings == {}
    await archive.aclose()


async def descriptions(client: ArchiveClient) -> list[tuple[object, ...]]:
    rows = await client.list_recordings()
    return [(row.recording_id, row.start_position, row.stop_position, row.original_channel) for row in rows]


async def refusal(asking: Awaitable[object]) -> ArchiveError:
    with pytest.raises(ArchiveError) as caught:
        await asking
    return caught.value


@pytest.mark.parametrize("name", [*READS, *EDITS])
async def test_a_recording_that_is_not_there_is_named(name: str) -> None:
    async with two_recordings(AllowAll()) as client:
        error = await refusal((READS | EDITS)[name](client, UNKNOWN))

    assert (error.code, error.recording_id) == (ArchiveErrorCode.UNKNOWN_RECORDING, UNKNOWN)


@pytest.mark.parametrize("name", ["truncate", "purge", "migrate from", "migrate to"])
async def test_a_recording_that_goes_on_is_not_edited(name: str) -> None:
    async with two_recordings(AllowAll()) as client:
        error = await refusal(EDITS[name](client, ACTIVE))
        extending = await refusal(extend(client, ACTIVE))

    assert (error.code, error.recording_id) == (ArchiveErrorCode.ACTIVE_RECORDING, ACTIVE)
    assert (extending.code, extending.recording_id) == (ArchiveErrorCode.ACTIVE_RECORDING, ACTIVE)


@pytest.mark.parametrize("name", EDITS)
async def test_a_read_only_archive_refuses_every_edit_of_every_recording(name: str) -> None:
    async with two_recordings(ReadOnly()) as client:
        errors = [await refusal(EDITS[name](client, one)) for one in (ENDED, ACTIVE, UNKNOWN)]
        recording = await refusal(record(client))

    assert {error.code for error in (*errors, recording)} == {ArchiveErrorCode.UNAUTHORISED_ACTION}


@pytest.mark.parametrize("name", [name for name in READS if name != "replay"])
async def test_a_read_only_archive_answers_what_is_read(name: str) -> None:
    async with two_recordings(ReadOnly()) as client:
        for recording_id in (ENDED, ACTIVE):
            await READS[name](client, recording_id)
        assert await read(client, ENDED) == 200


@pytest.mark.parametrize(
    ("ask", "position"),
    [
        (lambda client: client.truncate_recording(ENDED, 33), 33),
        (lambda client: client.truncate_recording(ENDED, -64), -64),
        (lambda client: client.truncate_recording(ENDED, BEYOND), BEYOND),
        (lambda client: client.detach_segments(ENDED, 0), 0),
        (lambda client: client.detach_segments(ENDED, TERM_LENGTH + 64), TERM_LENGTH + 64),
        (lambda client: client.detach_segments(ENDED, BEYOND), BEYOND),
        (lambda client: client.purge_segments(ENDED, BEYOND), BEYOND),
        (lambda client: client.purge_segments(ACTIVE, BEYOND), BEYOND),
        (lambda client: read(client, ENDED, 33), 33),
        (lambda client: read(client, ENDED, 64), 64),
        (lambda client: read(client, ENDED, -64), -64),
        (lambda client: read(client, ENDED, BEYOND), BEYOND),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
async def test_a_position_that_cannot_be_used_is_named(ask: Ask, position: int) -> None:
    async with two_recordings(AllowAll()) as client:
        error = await refusal(ask(client))

    assert (error.code, error.position) == (ArchiveErrorCode.INVALID_POSITION, position)


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda client: client.stop_replay(99), ArchiveErrorCode.UNKNOWN_REPLAY),
        (lambda client: client.stop_replication(99), ArchiveErrorCode.UNKNOWN_REPLICATION),
        (lambda client: client.stop_recordings("nowhere", stream_id=5), ArchiveErrorCode.UNKNOWN_SUBSCRIPTION),
        (lambda client: client.update_channel(ENDED, "x" * 1025), ArchiveErrorCode.GENERIC),
        (lambda client: client.update_channel(ENDED, "not ASCII: é"), ArchiveErrorCode.GENERIC),
        (lambda client: record(client, "x" * 1025), ArchiveErrorCode.GENERIC),
        (lambda client: record(client, stream_id=CONTROL_STREAM_ID), ArchiveErrorCode.GENERIC),
    ],
    ids=["replay", "replication", "stream", "long name", "name", "long channel", "control stream"],
)
async def test_what_is_not_under_way_or_has_no_valid_name_is_refused(ask: Ask, code: ArchiveErrorCode) -> None:
    async with two_recordings(AllowAll()) as client:
        assert (await refusal(ask(client))).code is code


async def test_refusals_in_flight_are_answered_each_to_its_own() -> None:
    async with two_recordings(AllowAll()) as client, asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(refusal(client.start_position(one))) for one in range(10, 20)]

    assert [task.result().recording_id for task in asking] == [*range(10, 20)]


async def test_what_is_searched_and_not_there_is_no_error() -> None:
    async with two_recordings(AllowAll()) as client:
        found = await client.find_last_matching(
            min_recording_id=0, session_id=7, stream_id=100, channel_fragment="trimaran"
        )
        missing = await client.find_last_matching(
            min_recording_id=0, session_id=7, stream_id=100, channel_fragment="other"
        )
        assert (found, missing) == (ACTIVE, None)
        assert await client.list_recordings(from_recording_id=UNKNOWN) == []
        assert await client.stop_all_replays(ENDED) == 0
        assert await client.stop_recording(ENDED) is False
        assert await client.attach_segments(ENDED) == await client.delete_detached_segments(ENDED) == 0
