"""What is purged when, and whom that waits for: replays, members that catch up, those that were promised a snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.archive.streams import TERM_LENGTH, StreamBuilder, launch, small_config
from tests.waiting import wait_until
from trimaran.archive import Archive, RecordingState
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.core import effects as fx
from trimaran.cluster.runtime.snapshots.retention import HOLD_LIMIT_NS, STALE_NS, HoldTracker, Retention
from trimaran.service_api.types import MemberId

END = 4 * TERM_LENGTH
SECOND = 1_000_000_000
ONE = MemberId(1)


class Rig:
    """A retention over an archive with a log of four segments and two short recordings, 1 and 2."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.now_ns = 0
        self.members: dict[MemberId, int] = {}
        self.failures: list[BaseException] = []
        self.retention = Retention(
            archive,
            0,
            member_positions=lambda: self.members,
            monotonic_ns=lambda: self.now_ns,
            on_failed=self.failures.append,
        )

    @property
    def start_position(self) -> int:
        return self.archive.descriptor(0).start_position

    def is_there(self, recording_id: int) -> bool:
        return self.archive.descriptor(recording_id).state is RecordingState.VALID

    async def purge(self, *recording_ids: int, position: int = 0) -> bool:
        """Ask for it and go through everything once; True if something had to stay."""
        self.retention.purge(fx.PurgeArchive(recording_ids, position))
        return await self.retention._purge()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    archive = await launch(MemoryFileSystem(), config=small_config(spares_readers=False))
    for number in range(3):
        recording = await archive.start_recording(
            stream_id=100, session_id=1, channel="c", source_identity="s", preallocate=False
        )
        for chunk in StreamBuilder().fill_to(END if number == 0 else 320):
            recording.append(chunk)
        recording.flush()
        await recording.wait_recorded(recording.append_position)
        if number:
            await recording.stop()
    yield Rig(archive)
    await archive.aclose()


async def test_what_nobody_reads_goes_at_once(rig: Rig) -> None:
    assert not await rig.purge(1, position=2 * TERM_LENGTH + 64)

    assert rig.start_position == 2 * TERM_LENGTH
    assert (rig.is_there(1), rig.is_there(2)) == (False, True)


async def test_a_replay_keeps_its_segments_while_it_comes_forward(rig: Rig) -> None:
    position = 0
    with rig.archive.reading(0, lambda: position):
        assert await rig.purge(position=3 * TERM_LENGTH)
        assert rig.start_position == 0
        position, rig.now_ns = TERM_LENGTH + 32, STALE_NS - 1
        assert await rig.purge()
        assert rig.start_position == TERM_LENGTH
        rig.now_ns += STALE_NS
        assert not await rig.purge()
        assert rig.start_position == 3 * TERM_LENGTH


async def test_a_member_that_catches_up_keeps_what_it_lacks(rig: Rig) -> None:
    rig.members = {ONE: TERM_LENGTH}
    assert await rig.purge(position=3 * TERM_LENGTH)
    assert rig.start_position == TERM_LENGTH

    rig.members = {ONE: END}
    assert not await rig.purge()

    assert rig.start_position == 3 * TERM_LENGTH


async def test_a_member_that_lacks_what_is_gone_already_keeps_nothing(rig: Rig) -> None:
    await rig.purge(position=2 * TERM_LENGTH)
    rig.members = {ONE: TERM_LENGTH, MemberId(2): -1}

    assert not await rig.purge(position=3 * TERM_LENGTH)

    assert rig.start_position == 3 * TERM_LENGTH


async def test_a_promised_snapshot_stays_with_its_log_until_its_reader_has_gone_on(rig: Rig) -> None:
    rig.retention.lease(ONE, (1, 2), TERM_LENGTH + 64)

    assert await rig.purge(1, 2, position=3 * TERM_LENGTH)
    assert rig.start_position == TERM_LENGTH
    assert rig.is_there(1)
    rig.members = {ONE: END}
    assert not await rig.purge()

    assert rig.start_position == 3 * TERM_LENGTH
    assert not rig.is_there(1)


async def test_a_promise_ends_when_nobody_comes_and_is_renewed_while_somebody_reads(rig: Rig) -> None:
    rig.retention.lease(ONE, (1,), TERM_LENGTH)
    with rig.archive.reading(1, lambda: 0):
        for _ in range(5):
            rig.now_ns += STALE_NS - 1
            assert await rig.purge(1)
    rig.now_ns += STALE_NS - 1
    assert await rig.purge()

    rig.now_ns += 1

    assert not await rig.purge()
    assert not rig.is_there(1)


async def test_a_recording_that_is_read_without_a_promise_stays_while_it_is(rig: Rig) -> None:
    with rig.archive.reading(1, lambda: 0):
        assert await rig.purge(1)
    assert not await rig.purge()

    assert not rig.is_there(1)


async def test_what_had_to_stay_is_tried_again_without_being_asked(rig: Rig) -> None:
    rig.members = {ONE: 0}
    running = asyncio.get_running_loop().create_task(rig.retention.run())
    rig.retention.purge(fx.PurgeArchive((), 3 * TERM_LENGTH))
    rig.retention.purge(fx.PurgeArchive((1,), 0))
    await wait_until(lambda: not rig.is_there(1), timeout_s=60, what="recording 1 purged")
    assert rig.start_position == 0
    rig.members = {}
    rig.retention.purge(fx.PurgeArchive((2,), 0))
    await wait_until(lambda: not rig.is_there(2) and rig.start_position > 0, timeout_s=60, what="all purged")

    running.cancel()
    assert rig.failures == []


def test_who_stands_still_or_holds_for_too_long_counts_no_more() -> None:
    tracker = HoldTracker()
    now_ns = position = 0
    while now_ns < HOLD_LIMIT_NS:
        assert tracker.update({"a": position, "b": 5}, now_ns) == ([position, 5] if now_ns < STALE_NS else [position])
        now_ns, position = now_ns + 20 * SECOND, position + 32

    assert tracker.update({"a": position}, now_ns) == []
    tracker.update({}, now_ns)
    assert tracker.update({"a": position}, now_ns) == [position]
