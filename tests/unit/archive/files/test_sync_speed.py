"""Syncs are timed in a file that is written already, and nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.files.sync_speed import BLOCK_BYTES, PROBE_FILE_NAME, measure_syncs

MS = 1_000_000


class TimedDisk(MemoryFileSystem):
    """A disk whose syncs of data take as long as they are told to."""

    def __init__(self, durations_ms: Iterator[int]) -> None:
        super().__init__()
        self.now_ns = 0
        self.lengths: list[int] = []
        self._durations_ms = durations_ms

    def sync_data(self, handle: int) -> None:
        self.now_ns += next(self._durations_ms) * MS
        self.lengths.append(self.file_length(handle))
        super().sync_data(handle)


def measure(disk: TimedDisk, directory: Path, *, sync_count: int = 100, limit_ms: int = 5_000) -> list[int]:
    disk.make_directory(directory)
    return measure_syncs(
        directory,
        sync_count=sync_count,
        limit_ns=limit_ms * MS,
        monotonic_ns=lambda: disk.now_ns,
        file_system=disk,
    )


def test_so_many_syncs_are_timed_of_a_file_that_grows_no_more(tmp_path: Path) -> None:
    disk, told = TimedDisk(count(1)), list[int]()
    disk.make_directory(tmp_path)

    found = measure_syncs(
        tmp_path,
        sync_count=5,
        limit_ns=5_000 * MS,
        monotonic_ns=lambda: disk.now_ns,
        on_synced=told.append,
        file_system=disk,
    )

    assert found == [MS, 2 * MS, 3 * MS, 4 * MS, 5 * MS]
    assert told == [BLOCK_BYTES] * 5
    assert set(disk.lengths) == {16 << 20}
    assert disk.list_directory(tmp_path) == []


def test_a_slow_disk_ends_it_in_time(tmp_path: Path) -> None:
    assert len(measure(TimedDisk(iter([200] * 100)), tmp_path, limit_ms=1_000)) == 5
    assert len(measure(TimedDisk(iter([9_000])), tmp_path, limit_ms=1_000)) == 1


def test_what_a_killed_process_left_is_replaced_and_the_file_is_gone_also_after_a_failure(tmp_path: Path) -> None:
    def refuse() -> Iterator[int]:
        yield 1
        raise OSError(5, "Input/output error")

    disk = TimedDisk(refuse())
    disk.make_directory(tmp_path)
    disk.close_file(disk.open_file(tmp_path / PROBE_FILE_NAME, create=True))

    with pytest.raises(OSError, match="Input/output"):
        measure(disk, tmp_path)

    assert disk.list_directory(tmp_path) == []
