"""Purging the oldest segments: whole ones only, the start position durable before a file goes, at any crash."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.archive.streams import (
    DIRECTORY,
    TERM_LENGTH,
    PowerLoss,
    PowerSupply,
    StreamBuilder,
    launch,
    read_all,
)
from trimaran.archive import Archive, ArchiveError, ArchiveErrorCode
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.reading.verify import verify_recording
from trimaran.archive.store.replay import ReplaySession

END = 4 * TERM_LENGTH + 4096


async def record(disk: MemoryFileSystem) -> tuple[Archive, bytes]:
    """Record END bytes, durably, in segments of one term; the recording stays active."""
    made = await launch(disk)
    recording = await made.start_recording(
        stream_id=100, session_id=1, channel="c", source_identity="s", preallocate=False
    )
    log = b""
    for chunk in StreamBuilder().fill_to(END):
        recording.append(chunk)
        log += chunk
    recording.flush()
    await recording.wait_recorded(END)
    return made, log


def segment_bases(disk: MemoryFileSystem) -> list[int]:
    names = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".rec")]
    return sorted(int(name.removesuffix(".rec").partition("-")[2]) for name in names)


async def test_segments_below_a_position_are_removed_from_an_active_recording() -> None:
    disk = MemoryFileSystem()
    archive, log = await record(disk)

    count = await archive.purge_segments(0, 2 * TERM_LENGTH + 320)

    assert (count, archive.descriptor(0).start_position) == (2, 2 * TERM_LENGTH)
    assert segment_bases(disk) == [2 * TERM_LENGTH, 3 * TERM_LENGTH, 4 * TERM_LENGTH]
    assert read_all(archive) == log[2 * TERM_LENGTH :]
    active = archive.active_recording(0)
    assert active is not None
    more = StreamBuilder(position=END).message(100)[0]
    active.append(more)
    await archive.aclose()
    archive = await launch(disk)
    assert read_all(archive) == log[2 * TERM_LENGTH :] + more
    assert archive.descriptor(0).start_position == 2 * TERM_LENGTH


async def test_what_is_purged_is_refused_and_only_whole_segments_are() -> None:
    archive, _ = await record(MemoryFileSystem())

    assert await archive.purge_segments(0, TERM_LENGTH - 32) == 0
    assert await archive.purge_segments(0, TERM_LENGTH) == 1
    assert await archive.purge_segments(0, 32) == 0
    assert archive.descriptor(0).start_position == TERM_LENGTH
    with pytest.raises(ArchiveError, match="oldest segment") as refused:
        archive.read(0, TERM_LENGTH - 32, 1000, stop_position=END)
    assert refused.value.code is ArchiveErrorCode.INVALID_POSITION
    with pytest.raises(ArchiveError, match="cannot purge"):
        await archive.purge_segments(0, END + 32)
    await archive.aclose()


async def test_a_segment_that_was_being_read_is_forgotten_with_its_handle() -> None:
    disk = MemoryFileSystem()
    archive, _ = await record(disk)
    archive.read(0, 0, 1000, stop_position=END)

    await archive.purge_segments(0, END)

    with pytest.raises(ArchiveError, match="oldest segment"):
        archive.read(0, 0, 1000, stop_position=END)
    assert segment_bases(disk) == [4 * TERM_LENGTH]
    await archive.aclose()


class BlockedSink:
    """Takes a chunk, and no more before it is told to."""

    def __init__(self) -> None:
        self.room = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.first_length = len(data)

    async def drain(self) -> None:
        await self.room.wait()


async def test_a_replay_tells_where_it_reads_while_it_runs() -> None:
    archive, _ = await record(MemoryFileSystem())
    sink = BlockedSink()
    session = ReplaySession(archive, 0, position=TERM_LENGTH, stop_position=END, sink=sink)
    replay = asyncio.get_running_loop().create_task(session.run())
    await asyncio.sleep(0)

    assert [*archive.reader_positions(0).values()] == [TERM_LENGTH + sink.first_length]
    assert archive.reader_positions(1) == {}
    sink.room.set()
    await replay
    assert archive.reader_positions(0) == {}
    await archive.aclose()


async def test_verify_takes_what_a_crash_left_of_a_purge_for_no_fault() -> None:
    disk = MemoryFileSystem()
    archive, _ = await record(disk)
    power = PowerSupply()
    disk.on_operation = power
    power.operations_left = 9  # four of the journal, four of the catalog, and the first file
    with pytest.raises(PowerLoss):
        await archive.purge_segments(0, END)
    power.operations_left = -1

    verdict = verify_recording(disk, DIRECTORY, read_catalog(disk, DIRECTORY).entries[0])

    assert verdict.problems == []
    assert "detached: file=0-131072.rec" in verdict.warnings


@settings(max_examples=60)
@given(
    operation=st.integers(0, 17),
    share=st.sampled_from((0.0, 0.3, 0.7, 1.0)),
    is_power_loss=st.booleans(),
    position=st.integers(1, END // 32),
    seed=st.integers(0, 1 << 32),
)
async def test_a_crash_at_any_operation_of_a_purge_leaves_the_old_start_or_the_new_one(
    operation: int, share: float, is_power_loss: bool, position: int, seed: int
) -> None:
    disk, power = MemoryFileSystem(), PowerSupply()
    archive, log = await record(disk)
    disk.on_operation = power
    power.operations_left = operation
    expected = 32 * position // TERM_LENGTH * TERM_LENGTH

    with contextlib.suppress(PowerLoss):
        await archive.purge_segments(0, 32 * position)
    power.operations_left = -1
    if is_power_loss:
        random = Random(seed)
        disk.crash(lambda: random.random() < share)
    else:
        disk.crash_process()
    archive = await launch(disk, is_power_loss_possible=is_power_loss)

    start_position = archive.descriptor(0).start_position
    assert start_position in (0, expected)
    assert read_all(archive) == log[start_position:]
    assert segment_bases(disk)[0] == start_position
    verdict = verify_recording(disk, DIRECTORY, read_catalog(disk, DIRECTORY).entries[0])
    assert (verdict.problems, verdict.warnings) == ([], [])
    recording = await archive.extend_recording(0, session_id=2, preallocate=False)
    assert recording.append_position == END
    await archive.aclose()


async def test_a_replay_of_a_recording_that_is_purged_is_refused_and_no_corruption() -> None:
    archive, _ = await record(MemoryFileSystem())
    active = archive.active_recording(0)
    assert active is not None
    await active.stop()
    replay = ReplaySession(archive, 0, position=0, stop_position=None, sink=BlockedSink())
    await archive.purge_recording(0)

    with pytest.raises(ArchiveError) as late:
        await replay.run()
    with pytest.raises(ArchiveError) as again:
        ReplaySession(archive, 0, position=0, stop_position=None, sink=BlockedSink())

    assert (late.value.code, again.value.code) == (ArchiveErrorCode.UNKNOWN_RECORDING,) * 2
    assert archive.damage.places == []
