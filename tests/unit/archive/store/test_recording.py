"""The hot path of a recording: group commit, sync levels, rolling, failures. The disk and the worker are fakes."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from tests.unit.archive.streams import (
    DIRECTORY,
    TERM_LENGTH,
    ManualWorker,
    StreamBuilder,
    failing,
    launch,
    read_all,
    small_config,
)
from tests.waiting import until
from trimaran.archive import Archive, ArchiveError, ArchiveErrorCode, Recording
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.format.layout import UNSYNCED_LIMIT_BYTES
from trimaran.archive.store.recording import (
    BULK_BATCH_BYTES,
    SLOW_SYNC_NS,
    SMALL_BATCH_BYTES,
    _Pace,
    _pause_ns,
)
from trimaran.service_api.errors import LocalProtocolError

NO_INLINE = small_config(inline_sync_limit_bytes=0)


class Rig:
    """One recording on a fake disk, with a worker that the test drives."""

    def __init__(self, archive: Archive, recording: Recording, disk: MemoryFileSystem, worker: ManualWorker) -> None:
        self.archive = archive
        self.recording = recording
        self.disk = disk
        self.worker = worker
        self.stream = StreamBuilder()
        self.chunks: list[bytes] = []
        self.recorded: list[int] = []
        self.failures: list[BaseException] = []
        recording.on_recorded = self.recorded.append
        recording.on_failed = self.failures.append

    @classmethod
    async def make(cls, **options: object) -> Rig:
        disk, worker = MemoryFileSystem(), ManualWorker()
        config = options.pop("config", NO_INLINE)
        stream = options.pop("stream", None)
        archive = await launch(disk, config=config, make_worker=lambda name: worker, **options)  # type: ignore[arg-type]  # options of launch
        rig = cls(archive, await start(archive), disk, worker)
        if isinstance(stream, StreamBuilder):
            rig.stream = stream
        return rig

    def append(self, length: int = 100) -> int:
        """Append one message and return the append position."""
        for chunk in self.stream.message(length):
            self.recording.append(chunk)
            self.chunks.append(chunk)
        return self.recording.append_position

    def written(self) -> bytes:
        """Everything that was appended."""
        return b"".join(self.chunks)

    def written_length(self) -> int:
        """Up to where the first segment is not zero, durably or not."""
        return len(self.disk.content(DIRECTORY / "0-0.rec").rstrip(b"\0"))

    def durable_length(self) -> int:
        """Up to where the first segment is durable and not zero."""
        content = self.disk.durable_read(DIRECTORY / "0-0.rec", TERM_LENGTH, 0)
        return len(content.rstrip(b"\0"))


async def start(archive: Archive, **options: object) -> Recording:
    return await archive.start_recording(
        stream_id=100,
        session_id=7,
        channel="trimaran:log",
        source_identity="member-0",
        preallocate=False,
        **options,  # type: ignore[arg-type]  # options of start_recording
    )


async def test_what_arrives_during_a_sync_is_the_next_batch() -> None:
    rig = await Rig.make()

    first = rig.append()
    rig.recording.flush()
    for _ in range(5):
        last = rig.append()
        rig.recording.flush()
    assert (rig.recorded, rig.worker.submitted) == ([], 1)

    rig.worker.complete()
    assert (rig.recorded, rig.worker.submitted) == ([first], 2)
    rig.worker.complete()
    assert (rig.recorded, rig.worker.submitted) == ([first, last], 2)
    assert rig.worker.pending is None


async def test_recorded_position_is_never_ahead_of_what_was_synced() -> None:
    rig = await Rig.make()
    synced: list[int] = []

    def on_operation(name: str, path: Path, length: int) -> None:
        if name == "sync":
            synced.append(rig.recording.append_position)

    rig.disk.on_operation = on_operation

    for _ in range(20):
        rig.append()
        rig.recording.flush()
        rig.append()  # not asked for: may ride along, must not be needed
        rig.worker.complete()
        assert rig.recording.recorded_position <= synced[-1]
        assert rig.durable_length() > rig.recording.recorded_position - 32
        while rig.worker.pending:
            rig.worker.complete()


async def test_nothing_is_synced_without_a_flush() -> None:
    rig = await Rig.make()

    rig.append()

    assert rig.worker.pending is None
    assert rig.recording.recorded_position == 0


async def test_flush_of_nothing_does_nothing() -> None:
    rig = await Rig.make()

    rig.recording.flush()

    assert (rig.worker.submitted, rig.recorded) == (0, [])


async def test_level_0_is_recorded_at_the_flush_without_any_sync() -> None:
    rig = await Rig.make(config=small_config(file_sync_level=0))
    rig.disk.on_operation = failing(OSError(errno.EIO, "not wanted"), "sync", "sync_directory")

    position = rig.append()
    rig.recording.flush()

    assert rig.recorded == [position]
    assert rig.worker.submitted == 0


async def test_small_batch_on_an_idle_quick_disk_is_synced_on_the_loop() -> None:
    clock = iter(range(0, 10**12, 100_000))
    rig = await Rig.make(config=small_config(), monotonic_ns=lambda: next(clock))

    position = rig.append()
    rig.recording.flush()

    assert rig.recorded == [position]
    assert rig.worker.submitted == 0


async def test_large_batch_is_never_synced_on_the_loop() -> None:
    rig = await Rig.make(config=small_config(inline_sync_limit_bytes=4096))

    rig.append(5000)
    rig.recording.flush()

    assert rig.worker.submitted == 1


async def test_flush_on_the_heels_of_a_sync_goes_to_the_worker() -> None:
    """More is coming in than a sync takes: the loop is better used reading it."""
    times = iter([0, 100_000, 101_000, 101_000, 101_000])
    rig = await Rig.make(config=small_config(), monotonic_ns=lambda: next(times))

    rig.append()
    rig.recording.flush()
    rig.append(SMALL_BATCH_BYTES + 1)
    rig.recording.flush()

    assert rig.worker.submitted == 1


async def test_little_on_the_heels_of_a_sync_is_synced_on_the_loop() -> None:
    """A message at a time, as quickly as the disk takes them: another thread would have it later."""
    times = iter([0, 100_000, 101_000, 201_000])
    rig = await Rig.make(config=small_config(), monotonic_ns=lambda: next(times))

    for _ in range(2):
        rig.append()
        rig.recording.flush()

    assert rig.worker.submitted == 0
    assert rig.recorded[-1] == rig.recording.append_position


async def test_slow_disk_is_never_waited_for_on_the_loop() -> None:
    now_ns = 0

    def clock() -> int:
        nonlocal now_ns
        now_ns += 20 * SLOW_SYNC_NS
        return now_ns

    rig = await Rig.make(config=small_config(), monotonic_ns=clock)

    rig.append()
    rig.recording.flush()  # the first one shows how slow it is
    now_ns += 10**12
    rig.append()
    rig.recording.flush()

    assert rig.worker.submitted == 1


async def test_callback_that_appends_and_flushes_starts_the_next_batch() -> None:
    rig = await Rig.make(config=small_config())
    positions: list[int] = []

    def on_recorded(position: int) -> None:
        positions.append(position)
        if len(positions) < 3:
            rig.append()
            rig.recording.flush()

    rig.recording.on_recorded = on_recorded
    rig.append()
    rig.recording.flush()
    while rig.worker.pending:
        rig.worker.complete()

    assert len(positions) == 3
    assert positions == sorted(set(positions))


async def test_failed_sync_fails_the_recording_and_everything_after() -> None:
    rig = await Rig.make()
    rig.append()
    rig.recording.flush()
    rig.append()

    rig.disk.on_operation = failing(OSError(errno.EIO, "input/output error"), "sync")
    rig.worker.complete()
    rig.disk.on_operation = None

    assert rig.recorded == []
    assert len(rig.failures) == 1
    assert isinstance(rig.failures[0], ArchiveError)
    assert rig.failures[0].code is ArchiveErrorCode.STORAGE_FAILED
    for refused in (rig.append, rig.recording.flush):
        with pytest.raises(ArchiveError, match="sync failed"):
            refused()
    with pytest.raises(ArchiveError, match="sync failed"):
        await rig.recording.stop()
    assert len(rig.failures) == 1


async def test_failed_inline_sync_fails_the_recording() -> None:
    rig = await Rig.make(config=small_config())
    rig.append()

    rig.disk.on_operation = failing(OSError(errno.EIO, "input/output error"), "sync")
    rig.recording.flush()

    assert len(rig.failures) == 1
    assert (rig.recorded, rig.worker.submitted) == ([], 0)


async def test_failed_write_fails_the_recording_and_names_a_full_disk() -> None:
    rig = await Rig.make()

    rig.disk.on_operation = failing(OSError(errno.ENOSPC, "no space left on device"), "pwrite")
    with pytest.raises(ArchiveError, match="write failed"):
        rig.append()
    rig.disk.on_operation = None

    assert rig.recording.append_position == 0
    assert [getattr(error, "code", None) for error in rig.failures] == [ArchiveErrorCode.STORAGE_SPACE]
    with pytest.raises(ArchiveError):
        rig.append()


async def test_short_writes_are_completed() -> None:
    rig = await Rig.make(config=small_config(file_sync_level=0))
    rig.disk.write_limit_bytes = 33

    position = rig.append(1000)
    rig.recording.flush()
    rig.disk.write_limit_bytes = None

    assert len(read_all(rig.archive)) == position
    assert rig.disk.content(DIRECTORY / "0-0.rec")[:position] == read_all(rig.archive)


@pytest.mark.parametrize("length", [0, 31, 33, TERM_LENGTH + 32])
async def test_chunk_that_is_no_run_of_frames_is_refused_without_harm(length: int) -> None:
    rig = await Rig.make()

    with pytest.raises(LocalProtocolError, match=f"length={length}"):
        rig.recording.append(bytes(length))

    assert rig.append() > 0
    assert rig.failures == []


async def test_chunk_never_crosses_a_term() -> None:
    rig = await Rig.make()
    for chunk in rig.stream.fill_to(TERM_LENGTH - 64):
        rig.recording.append(chunk)

    with pytest.raises(LocalProtocolError, match="at most 64"):
        rig.recording.append(bytes(96))


async def test_segment_gets_its_name_only_when_everything_before_it_is_durable() -> None:
    """Otherwise a crash could leave an empty segment behind a torn one."""
    rig = await Rig.make()
    for chunk in rig.stream.fill_to(TERM_LENGTH + 320):
        rig.recording.append(chunk)
    rig.recording.flush()

    assert "0-65536.rec" not in rig.disk.list_directory(DIRECTORY)
    rig.worker.complete()

    assert "0-65536.rec" in rig.disk.list_directory(DIRECTORY)
    assert rig.recording.recorded_position == TERM_LENGTH + 320
    rig.disk.crash()
    archive = await launch(rig.disk)
    assert archive.descriptor(0).stop_position == TERM_LENGTH + 320


async def test_segment_filled_exactly_is_followed_by_an_empty_one() -> None:
    """Source: samples set A README §3; recording 7 of archive-only."""
    rig = await Rig.make()
    for chunk in rig.stream.fill_to(TERM_LENGTH):
        rig.recording.append(chunk)
    rig.recording.flush()
    rig.worker.complete()

    assert await rig.recording.stop() == TERM_LENGTH

    assert rig.disk.content(DIRECTORY / "0-65536.rec") == bytes(TERM_LENGTH)


async def test_nothing_is_read_before_it_is_durable() -> None:
    rig = await Rig.make()
    first = rig.append()
    rig.recording.flush()
    rig.worker.complete()
    rig.append()

    assert len(rig.archive.read(0, 0, 4096, stop_position=first)) == first
    with pytest.raises(ArchiveError, match=f"end_position={first}"):
        rig.archive.read(0, 0, 4096, stop_position=rig.recording.append_position)


async def test_what_is_appended_during_a_sync_is_written_with_the_next_batch() -> None:
    """Only one batch is ever written and not durable: a power loss tears no more than that."""
    rig = await Rig.make()
    first = rig.append()
    rig.recording.flush()

    second = rig.append()
    assert rig.written_length() <= first
    rig.worker.complete()

    assert rig.recording.append_position == second
    assert rig.written_length() <= first
    rig.worker.complete()
    assert rig.recorded == [first, second]
    assert rig.written_length() > first


async def test_no_more_than_the_limit_is_unsynced_at_any_moment() -> None:
    config = small_config(
        inline_sync_limit_bytes=0, term_length_bytes=16 << 20, segment_length_bytes=16 << 20, mtu_length_bytes=65504
    )
    rig = await Rig.make(config=config, stream=StreamBuilder(term_length=16 << 20, mtu_length=65504))
    unsynced: list[int] = []

    def on_operation(name: str, path: Path, length: int) -> None:
        if name == "sync":
            unsynced.append(rig.written_length() - rig.recording.recorded_position)

    rig.disk.on_operation = on_operation
    for length in [60_000] * 80 + [9_000_000] + [60_000] * 10:
        rig.append(length)
    assert rig.written_length() <= UNSYNCED_LIMIT_BYTES
    assert rig.worker.submitted == 1  # it begins by itself at the limit

    while rig.worker.pending:
        rig.worker.complete()

    assert len(unsynced) == 5
    assert max(unsynced) <= UNSYNCED_LIMIT_BYTES
    assert rig.recording.recorded_position == rig.recording.append_position
    assert rig.recorded == sorted(set(rig.recorded))
    assert read_all(rig.archive, limit_bytes=1 << 20) == rig.written()


async def test_padding_longer_than_a_batch_goes_whole() -> None:
    """Its frame is all zeros but for the header, so it tears nowhere else."""
    term_length = 16 << 20
    config = small_config(inline_sync_limit_bytes=0, term_length_bytes=term_length, segment_length_bytes=term_length)
    rig = await Rig.make(config=config, stream=StreamBuilder(term_length=term_length))
    rig.append(100)
    rig.recording.flush()

    rig.append(15 << 20)  # does not fit after the first: padding, then a term of it
    rig.append(5 << 20)
    while rig.worker.pending:
        rig.worker.complete()

    assert rig.recorded[0] == 160
    assert rig.recording.recorded_position == rig.recording.append_position > term_length
    assert read_all(rig.archive, limit_bytes=1 << 20) == rig.written()


async def test_segments_roll_inside_what_was_held() -> None:
    rig = await Rig.make()
    rig.append()
    rig.recording.flush()

    for _ in range(250):
        rig.append(1000)
    assert rig.disk.list_directory(DIRECTORY).count("0-65536.rec.next") == 0
    while rig.worker.pending:
        rig.worker.complete()

    assert rig.recording.recorded_position > 4 * TERM_LENGTH
    assert read_all(rig.archive) == rig.written()
    rig.disk.crash()
    assert (await launch(rig.disk)).descriptor(0).stop_position == rig.recording.append_position


async def test_long_chunks_that_were_held_are_written_as_they_are_and_short_ones_together() -> None:
    config = small_config(term_length_bytes=1 << 20, segment_length_bytes=1 << 20, inline_sync_limit_bytes=0)
    rig = await Rig.make(config=config, stream=StreamBuilder(term_length=1 << 20))
    writes: list[int] = []
    rig.disk.on_operation = lambda name, path, length: writes.append(length) if name == "pwrite" else None
    for lengths in ([100] * 5, [120_000] * 3, [100] * 5):
        rig.append()
        rig.recording.flush()
        writes.clear()
        for length in lengths:
            rig.append(length)
        while rig.worker.pending:
            rig.worker.complete()
        assert len(writes) == (3 if lengths[0] > 100 else 1)

    assert read_all(rig.archive) == rig.written()


async def test_write_of_a_batch_that_fails_fails_the_recording_once() -> None:
    rig = await Rig.make()
    first = rig.append()
    rig.recording.flush()
    rig.append()
    waiting = asyncio.ensure_future(rig.recording.wait_recorded(rig.recording.append_position))
    await asyncio.sleep(0)

    rig.disk.on_operation = failing(OSError(errno.ENOSPC, "no space left on device"), "pwrite")
    rig.worker.complete()
    rig.worker.complete()

    assert rig.recorded == [first]
    assert ["write failed" in str(error) for error in rig.failures] == [True]
    with pytest.raises(ArchiveError, match="write failed"):
        await waiting
    with pytest.raises(ArchiveError, match="write failed"):
        rig.append()
    await rig.recording.release()


async def test_segment_that_cannot_be_made_for_what_was_held_fails_the_recording_once() -> None:
    rig = await Rig.make()
    rig.append()
    rig.recording.flush()
    for _ in range(100):
        rig.append(1000)

    rig.disk.on_operation = failing(OSError(errno.ENOSPC, "no space left on device"), "create")
    rig.worker.complete()

    assert rig.worker.pending is None
    (failure,) = rig.failures
    assert isinstance(failure, ArchiveError)
    assert failure.code is ArchiveErrorCode.STORAGE_SPACE
    assert isinstance(failure.__cause__, OSError)
    with pytest.raises(ArchiveError, match="not created"):
        await rig.recording.stop()


async def test_segment_that_cannot_be_closed_fails_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system of a network says then that it kept nothing. It was an exception of the loop, and no end."""
    rig = await Rig.make()
    for _ in range(100):
        rig.append(1000)
    rig.recording.flush()

    monkeypatch.setattr(rig.disk, "close_file", failing_close)
    rig.worker.complete()

    assert rig.recorded == []
    assert ["close failed" in str(error) for error in rig.failures] == [True]
    assert not rig.recording.is_with_worker


def failing_close(handle: int) -> None:
    raise OSError(errno.EDQUOT, "disk quota exceeded")


@pytest.mark.parametrize("is_ready", [False, True])
async def test_prepared_segment_that_cannot_be_removed_is_no_obstacle_to_a_release(is_ready: bool) -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    recording = await archive.start_recording(stream_id=100, session_id=7, channel="c", source_identity="s")
    for chunk in StreamBuilder().fill_to(TERM_LENGTH // 2 + 3200):
        recording.append(chunk)
    await until(lambda: any(name.endswith(".zero") for name in disk.list_directory(DIRECTORY)))
    if is_ready:
        await until(lambda: recording._next.ready is not None)

    disk.on_operation = failing(OSError(errno.EIO, "input/output error"), "remove", "pwrite")
    await recording.release()

    assert not recording.is_with_worker


async def test_release_gives_up_what_is_held() -> None:
    rig = await Rig.make()
    first = rig.append()
    rig.recording.flush()
    rig.append()

    releasing = asyncio.ensure_future(rig.recording.release())
    await asyncio.sleep(0)
    rig.worker.complete()
    await releasing

    assert rig.worker.pending is None
    rig.disk.crash_process()
    assert (await launch(rig.disk)).descriptor(0).stop_position == first


async def test_stop_takes_what_is_held_along() -> None:
    rig = await Rig.make()
    rig.append()
    rig.recording.flush()
    last = rig.append()

    stopping = asyncio.ensure_future(rig.recording.stop())
    await asyncio.sleep(0)
    rig.worker.complete()
    await asyncio.sleep(0)
    rig.worker.complete()

    assert await stopping == last
    assert rig.archive.descriptor(0).stop_position == last


async def test_next_segment_is_prepared_when_the_current_one_is_half_full(tmp_path: Path) -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    recording = await archive.start_recording(stream_id=100, session_id=7, channel="c", source_identity="s")
    stream = StreamBuilder()

    for chunk in stream.fill_to(TERM_LENGTH // 2 + 3200):
        recording.append(chunk)
    await until(lambda: any(name.endswith(".zero") for name in disk.list_directory(DIRECTORY)))
    for chunk in stream.fill_to(TERM_LENGTH + 32):
        recording.append(chunk)
        await asyncio.sleep(0)
    recording.flush()

    assert disk.list_directory(DIRECTORY).count("0-65536.rec") == 1
    await archive.aclose()
    leftovers = [name for name in disk.list_directory(DIRECTORY) if name.endswith((".zero", ".next"))]
    assert leftovers == []


@pytest.mark.parametrize("is_bulk", [True, False])
async def test_next_segment_is_prepared_for_small_batches_and_not_for_a_bulk_of_data(is_bulk: bool) -> None:
    """A member that copies a log would otherwise write every byte twice."""
    disk, segment_length = MemoryFileSystem(), 4 * BULK_BATCH_BYTES
    archive = await launch(disk, config=small_config(segment_length_bytes=segment_length))
    recording = await archive.start_recording(stream_id=100, session_id=7, channel="c", source_identity="s")
    stream = StreamBuilder()

    for chunk in stream.fill_to(segment_length // 2 + 3200):
        recording.append(chunk)
        if not is_bulk:
            recording.flush()

    assert (recording._next.task is None) is is_bulk
    if not is_bulk:
        await until(lambda: any(name.endswith(".zero") for name in disk.list_directory(DIRECTORY)))
    for chunk in stream.fill_to(segment_length + 32):
        recording.append(chunk)
    await recording.stop()
    assert f"0-{segment_length}.rec" in disk.list_directory(DIRECTORY)
    assert len(read_all(archive, limit_bytes=2 * segment_length)) == segment_length + 32


async def test_stop_waits_for_the_sync_and_writes_the_stop_position() -> None:
    rig = await Rig.make()
    position = rig.append()

    stopping = asyncio.ensure_future(rig.recording.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    rig.worker.complete()

    assert await stopping == position
    assert rig.archive.descriptor(0).stop_position == position
    with pytest.raises(ArchiveError, match="closed"):
        rig.append()
    assert rig.failures == []


async def test_wait_recorded_ends_with_the_recording() -> None:
    rig = await Rig.make()
    position = rig.append()
    reached = asyncio.ensure_future(rig.recording.wait_recorded(position))
    beyond = asyncio.ensure_future(rig.recording.wait_recorded(position + 32))
    await asyncio.sleep(0)

    rig.recording.flush()
    rig.worker.complete()
    await reached
    await rig.recording.stop()

    with pytest.raises(ArchiveError, match="closed"):
        await beyond


async def test_release_waits_for_the_sync_in_flight() -> None:
    rig = await Rig.make()
    rig.append()
    rig.recording.flush()

    releasing = asyncio.ensure_future(rig.recording.release())
    await asyncio.sleep(0)
    assert not releasing.done()
    rig.worker.complete()

    await releasing
    assert rig.archive.descriptor(0).stop_position is None


async def test_repr_shows_the_positions() -> None:
    rig = await Rig.make()
    position = rig.append()

    assert repr(rig.recording) == f"<Recording id=0 append={position} recorded=0>"


MS = 1_000_000


@pytest.mark.parametrize(
    ("left_ns", "pause_ns"),
    [
        (10_000 * MS, 50 * MS),  # far from needed: no more than this, so that an idle log has its segment in seconds
        (3_200 * MS, 29 * MS),  # 60 % of 3.2 s for 64 steps
        (100 * MS, MS),  # late: as long as the step took, which leaves the disk to the log for half of the time
        (-5 * MS, MS),
    ],
)
def test_next_segment_is_zeroed_in_step_with_the_log(left_ns: int, pause_ns: int) -> None:
    assert _pause_ns(MS, left_ns, 64) == pause_ns


def test_last_step_is_not_waited_behind() -> None:
    assert _pause_ns(MS, 10_000 * MS, 0) == 0


def test_time_left_is_guessed_from_what_was_appended_meanwhile() -> None:
    pace = _Pace(5 * MS, 1000)

    assert pace.time_left_ns(15 * MS, 3000, 4000) == 5 * MS
    assert pace.time_left_ns(15 * MS, 1000, 4000) > 10**15
