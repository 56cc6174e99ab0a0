"""The stop-watch on syncs."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.runtime.watching.recent_syncs import SlowSync, SyncSummary
from trimaran.cluster.runtime.watching.sync_timer import DurationHistogram, TimedFileSystem


def test_durations_are_counted_in_powers_of_two_and_every_one_in_the_last() -> None:
    histogram = DurationHistogram()

    for duration_ns in (0, 16_383, 16_384, 100_000, 20_000_000_000):
        histogram.add(duration_ns)

    buckets = dict(histogram.cumulative())
    assert [count for bound, count in buckets.items() if bound == 16_384 / 1e9] == [2]
    assert buckets[131_072 / 1e9] == 4
    assert buckets[float("inf")] == histogram.count == 5
    assert (histogram.max_ns, histogram.total_ns) == (20_000_000_000, 20_000_132_767)
    assert list(buckets) == sorted(buckets)


def test_syncs_are_timed_and_nothing_else_is(tmp_path: Path) -> None:
    times = iter((10, 110, 1000, 4000))
    disk = MemoryFileSystem()
    timed = TimedFileSystem(disk, lambda: next(times), slow_ns=1_000)
    timed.make_directory(tmp_path)

    handle = timed.open_file(tmp_path / "a", create=True)
    timed.pwrite(handle, b"abc", 0)
    timed.sync_data(handle)
    timed.sync_file(handle)

    assert timed.pread(handle, 10, 0) == b"abc"
    assert (timed.data_syncs.total_ns, timed.file_syncs.total_ns) == (100, 3000)
    assert timed.pwrite == disk.pwrite


def test_a_slow_sync_is_told_with_the_name_that_its_file_has_now(tmp_path: Path) -> None:
    times = iter((0, 1_000, 2_000, 3_500))
    timed = TimedFileSystem(MemoryFileSystem(), lambda: next(times), slow_ns=1_000)
    timed.make_directory(tmp_path)
    handle = timed.open_file(tmp_path / "new", create=True)

    timed.sync_file(handle)
    timed.rename(tmp_path / "new", tmp_path / "0-0.rec")
    timed.sync_data(handle)
    timed.close_file(handle)

    assert timed.recent.take_slow(4_000) == (SlowSync(tmp_path / "0-0.rec", 1_500), 2)
    assert timed.recent.describe(4_000) == SyncSummary(count=2, slow_count=2, p99_ns=1_500, max_ns=1_500)


def test_a_sync_that_fails_runs_no_more(tmp_path: Path) -> None:
    times = iter((0, 500))
    disk = MemoryFileSystem()
    disk.sync_data = fail  # type: ignore[method-assign]
    timed = TimedFileSystem(disk, lambda: next(times), slow_ns=1_000)
    timed.make_directory(tmp_path)
    handle = timed.open_file(tmp_path / "a", create=True)

    with pytest.raises(OSError, match="EIO"):
        timed.sync_data(handle)

    assert timed.recent.take_slow(1_000_000) is None
    assert timed.data_syncs.count == 0


def fail(handle: int) -> None:
    raise OSError("EIO")
