"""The archive as a whole: start, stop, extend, truncate, read, crash, and start again."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.archive.streams import (
    DIRECTORY,
    TERM_LENGTH,
    PowerLoss,
    PowerSupply,
    StreamBuilder,
    failing,
    launch,
    read_all,
    small_config,
)
from tests.waiting import passes, patient
from trimaran.archive import Archive, ArchiveConfig, ArchiveError, ArchiveErrorCode, CorruptionError, Recording
from trimaran.archive.disk.file_system import FileSystem, OsFileSystem
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.files.reader import FrameReader, MessageReader
from trimaran.archive.reading.verify import verify_recording

MESSAGE_LENGTHS = st.lists(st.integers(0, 8192), max_size=60)


async def start(archive: Archive, *, preallocate: bool = False, start_position: int = 0) -> Recording:
    return await archive.start_recording(
        stream_id=100,
        session_id=7,
        channel="trimaran:log",
        source_identity="member-0",
        start_position=start_position,
        preallocate=preallocate,
    )


async def record(recording: Recording, stream: StreamBuilder, lengths: list[int]) -> bytes:
    """Append messages, all durable when this returns; return the bytes."""
    written = []
    for length in lengths:
        for chunk in stream.message(length):
            recording.append(chunk)
            recording.flush()
            written.append(chunk)
    await recording.wait_recorded(recording.append_position)
    return b"".join(written)


def verify_all(disk: FileSystem, directory: Path = DIRECTORY) -> list[str]:
    entries = read_catalog(disk, directory).entries
    return [problem for entry in entries for problem in verify_recording(disk, directory, entry).problems]


@settings(max_examples=60)
@given(lengths=MESSAGE_LENGTHS, terms_per_segment=st.integers(1, 3), level=st.integers(0, 2), seed=st.integers(0, 99))
async def test_what_was_recorded_is_read_back(
    lengths: list[int], terms_per_segment: int, level: int, seed: int
) -> None:
    disk = MemoryFileSystem()
    config = small_config(segment_length_bytes=terms_per_segment * TERM_LENGTH, file_sync_level=level)
    archive = await launch(disk, config=config)
    recording = await start(archive)

    written = await record(recording, StreamBuilder(seed=seed), lengths)
    stop_position = await recording.stop()

    assert stop_position == len(written)
    assert read_all(archive, limit_bytes=3000) == written
    descriptor = archive.descriptor(0)
    reader = FrameReader(DIRECTORY, descriptor, file_system=disk)
    assert [len(message.payload) for message in MessageReader(reader)] == lengths
    assert verify_all(disk) == []
    await archive.aclose()


@settings(max_examples=60)
@given(first=MESSAGE_LENGTHS, second=MESSAGE_LENGTHS, cut=st.floats(0, 1), crashes=st.booleans())
async def test_truncated_and_extended_recording_has_the_new_tail_only(
    first: list[int], second: list[int], cut: float, crashes: bool
) -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    recording = await start(archive)
    written = await record(recording, StreamBuilder(), first)
    await recording.stop()
    frames = FrameReader(DIRECTORY, archive.descriptor(0), file_system=disk)
    boundaries = [0, *(frame.end_position for frame in frames)]
    position = boundaries[int(cut * (len(boundaries) - 1))]

    await archive.truncate_recording(0, position)
    if crashes:
        disk.crash()
        archive = await launch(disk)
    recording = await archive.extend_recording(0, session_id=8)
    assert recording.append_position == position
    tail = await record(recording, StreamBuilder(position=position, seed=1), second)
    if crashes:
        disk.crash()
        archive = await launch(disk)
    else:
        await archive.aclose()
        archive = await launch(disk)

    assert read_all(archive) == written[:position] + tail
    assert verify_all(disk) == []


@settings(max_examples=100)
@given(operations=st.integers(0, 20), seed=st.integers(0, 1000), kept=st.integers(0, 150))
async def test_power_loss_during_a_truncation_never_brings_the_old_tail_back(
    operations: int, seed: int, kept: int
) -> None:
    """Raft's worst case: the old tail was never committed, and the new one is shorter."""
    disk, power = MemoryFileSystem(), PowerSupply()
    disk.on_operation = power
    archive = await launch(disk)
    recording = await start(archive)
    written = await record(recording, StreamBuilder(), [1000] * 150)
    await recording.stop()
    boundaries = [f.end_position for f in FrameReader(DIRECTORY, archive.descriptor(0), file_system=disk)]
    position = boundaries[kept]
    generator = random.Random(seed)

    power.operations_left = operations
    finished = True
    try:
        await archive.truncate_recording(0, position)
    except PowerLoss:
        finished = False
    power.operations_left = -1
    disk.crash(lambda: generator.random() < 0.5)
    archive = await launch(disk, is_power_loss_possible=True)
    stop_position = archive.descriptor(0).stop_position
    recording = await archive.extend_recording(0, session_id=8)
    tail = await record(recording, StreamBuilder(position=recording.append_position, seed=1), [40])
    disk.crash()
    archive = await launch(disk)

    assert stop_position in ((position,) if finished else (position, len(written)))
    assert read_all(archive) == written[:stop_position] + tail
    assert verify_all(disk) == []


async def test_damage_below_the_recorded_position_is_never_taken_for_a_torn_tail() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    recording = await start(archive)
    await record(recording, StreamBuilder(), [100] * 50)
    disk.damage(DIRECTORY / "0-0.rec", 1000, b"\xff")
    before = disk.content(DIRECTORY / "0-0.rec")
    disk.crash_process()

    with pytest.raises(CorruptionError, match="wrong checksum"):
        await launch(disk)

    assert disk.content(DIRECTORY / "0-0.rec") == before


async def test_recording_may_start_inside_a_term_and_at_any_initial_term_id() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    recording = await archive.start_recording(
        stream_id=100,
        session_id=7,
        initial_term_id=2**31 - 2,
        start_position=135168,
        channel="c",
        source_identity="s",
        preallocate=False,
    )
    stream = StreamBuilder(position=135168, initial_term_id=2**31 - 2)

    written = await record(recording, stream, [1000] * 200)
    await recording.stop()

    assert read_all(archive) == written
    assert disk.list_directory(DIRECTORY)[:2] == ["0-131072.rec", "0-196608.rec"]
    assert verify_all(disk) == []


async def test_several_recordings_are_active_at_once_and_all_are_stopped() -> None:
    archive = await launch()
    recordings = [await start(archive) for _ in range(3)]
    lengths = [await record(r, StreamBuilder(), [100] * n) for n, r in enumerate(recordings)]

    disk_view = archive.descriptors()
    assert [d.stop_position for d in disk_view] == [None, None, None]
    await archive.aclose()

    assert [d.stop_position for d in archive.descriptors()] == [len(written) for written in lengths]


async def test_active_recording_cannot_be_extended_or_truncated() -> None:
    archive = await launch()
    await start(archive)

    for attempt in (archive.extend_recording(0, session_id=1), archive.truncate_recording(0, 0)):
        with pytest.raises(ArchiveError, match="ACTIVE_RECORDING"):
            await attempt


async def test_extension_with_other_checksums_is_refused() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    await (await start(archive)).stop()
    await archive.aclose()

    archive = await launch(disk, config=small_config(checksums=False))

    with pytest.raises(ArchiveError, match="checksums=crc32 configured=none"):
        await archive.extend_recording(0, session_id=1)


@pytest.mark.parametrize("position", [-32, 16, 96 + 32, 10**6])
async def test_truncation_takes_frame_boundaries_of_the_recording_only(position: int) -> None:
    archive = await launch()
    recording = await start(archive)
    await record(recording, StreamBuilder(), [500] * 3)
    stop_position = await recording.stop()

    with pytest.raises(ArchiveError) as caught:
        await archive.truncate_recording(0, position)

    assert caught.value.code is ArchiveErrorCode.INVALID_POSITION
    assert archive.descriptor(0).stop_position == stop_position


async def test_read_gives_whole_frames_within_the_limit_but_at_least_one() -> None:
    archive = await launch()
    recording = await start(archive)
    await record(recording, StreamBuilder(), [100] * 10)  # 160 bytes a frame
    stop_position = await recording.stop()

    lengths = [len(archive.read(0, 0, limit, stop_position=stop_position)) for limit in (1, 159, 160, 200, 320, 10**6)]

    assert lengths == [160, 160, 160, 160, 320, 1600]
    assert archive.read(0, stop_position, 100, stop_position=stop_position) == b""


@pytest.mark.parametrize(("position", "stop_position"), [(0, 10**6), (-32, 0), (16, 32), (64, 32)])
async def test_read_outside_the_recording_is_refused(position: int, stop_position: int) -> None:
    archive = await launch()
    recording = await start(archive)
    await record(recording, StreamBuilder(), [100])

    with pytest.raises(ArchiveError, match="INVALID_POSITION"):
        archive.read(0, position, 100, stop_position=stop_position)


async def test_segment_without_an_entry_that_holds_data_is_not_overwritten() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    handle = disk.open_file(DIRECTORY / "0-0.rec", create=True)
    disk.pwrite(handle, b"data", 0)

    with pytest.raises(CorruptionError, match="in the catalog"):
        await start(archive)


async def test_abandoned_archive_starts_again_as_after_a_crash() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    recording = await start(archive)
    written = await record(recording, StreamBuilder(), [100] * 5)

    await archive.abandon()

    assert read_catalog(disk, DIRECTORY).entries[0].descriptor is not None
    archive = await launch(disk)
    assert archive.descriptor(0).stop_position == len(written)


@pytest.mark.parametrize("level", [0, 1, 2])
async def test_real_disk_and_real_threads(tmp_path: Path, level: int) -> None:
    """The same on the real file system: prepared segments, a sync thread, a busy loop."""
    directory = tmp_path / "archive"
    config = small_config(file_sync_level=level)
    archive = await launch(OsFileSystem(), directory, config=config)
    recording = await start(archive, preallocate=True)
    recorded: list[int] = []
    recording.on_recorded = recorded.append
    stream, written = StreamBuilder(), []
    for number in range(400):
        for chunk in stream.message(number * 7 % 3000):
            recording.append(chunk)
            written.append(chunk)
        recording.flush()
        if number % 10 == 0:
            await asyncio.sleep(0)
    await recording.wait_recorded(recording.append_position)
    await archive.abandon()

    archive = await launch(OsFileSystem(), directory, config=config)

    assert recorded == sorted(set(recorded))
    assert read_all(archive) == b"".join(written)
    assert verify_all(OsFileSystem(), directory) == []
    assert [path.name for path in directory.iterdir() if path.suffix not in (".rec", ".catalog", ".redo", ".dat")] == []
    await archive.aclose()


async def test_defaults_are_those_of_the_design() -> None:
    config = ArchiveConfig()

    assert (config.term_length_bytes, config.segment_length_bytes) == (64 << 20, 128 << 20)
    assert (config.mtu_length_bytes, config.file_sync_level, config.checksums) == (65504, 1, True)


async def test_a_disk_that_cannot_be_read_is_said_in_the_archives_words() -> None:
    """Found by simulation: a replay to another member ended in an error that nobody caught."""
    disk = MemoryFileSystem()
    archive = await launch(disk)
    recording = await start(archive)
    await record(recording, StreamBuilder(), [64])
    disk.on_operation = failing(OSError(errno.EIO, "input/output error"), "pread")

    with pytest.raises(ArchiveError, match="read failed") as caught:
        archive.read(recording.recording_id, 0, 4096, stop_position=recording.recorded_position)

    assert caught.value.code is ArchiveErrorCode.STORAGE_FAILED
    disk.on_operation = None
    await archive.aclose()


async def test_a_change_that_was_given_up_more_than_once_is_over_before_the_next_begins() -> None:
    """Twice cancelled, by whoever wanted it and by a timeout, say: its job still ends before another has the disk."""
    begun, may_go_on = threading.Event(), threading.Event()

    class SlowDisk(MemoryFileSystem):
        """Lists a directory when it may, once it is told to be slow."""

        is_slow = False

        def list_directory(self, path: Path) -> list[str]:
            if self.is_slow and not begun.is_set():
                begun.set()
                assert may_go_on.wait(patient(20))
            return super().list_directory(path)

    disk = SlowDisk()
    archive = await launch(disk)
    disk.is_slow = True
    first = asyncio.create_task(start(archive))
    await asyncio.to_thread(begun.wait, patient(20))
    for _ in range(3):
        first.cancel()
        await passes(2)
    second = asyncio.create_task(start(archive))
    await passes(10)
    was_over = first.done()
    may_go_on.set()

    assert not was_over
    with pytest.raises(asyncio.CancelledError):
        await first
    recording = await second
    written = await record(recording, StreamBuilder(), [100])
    await recording.stop()

    assert recording.recording_id == 1
    assert read_all(archive, recording_id=1) == written
    assert verify_all(disk) == []
    await archive.aclose()
