"""In how long a disk is full, by the readings of the last minutes."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from trimaran.archive.disk.file_system import DiskSpace
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.runtime.watching.disk_space import DiskSpaceWatch, FillRate

S = 1_000_000_000
GIB = 1 << 30


def rate_of(*readings: tuple[int, int]) -> float | None:
    """What readings, each at a second with so many free bytes, say."""
    rate = FillRate()
    for second, free_bytes in readings:
        rate.note(second * S, free_bytes)
    return rate.find_full_in_s()


def test_a_disk_that_fills_evenly_is_full_when_what_is_left_is_used_up() -> None:
    assert rate_of((0, 1_000), (150, 850), (300, 700)) == 700.0


def test_readings_of_less_than_five_minutes_say_nothing() -> None:
    assert rate_of() is None
    assert rate_of((0, 1_000), (299, 10)) is None


def test_a_disk_that_gets_room_or_stands_still_is_never_full() -> None:
    assert rate_of((0, 1_000), (300, 1_000)) is None
    assert rate_of((0, 1_000), (300, 1_100)) is None


def test_what_is_older_than_ten_minutes_counts_no_more() -> None:
    """The log of an hour was purged then: that is no reason to take the disk for one that gets room."""
    assert rate_of((0, 0), (100, 1_000), (400, 700), (700, 400)) == 400.0


def test_a_disk_that_is_full_soon_is_logged_once_until_it_is_not() -> None:
    now_s = 0
    watch = DiskSpaceWatch(MemoryFileSystem(), Path("data"), monotonic_ns=lambda: now_s * S, notice_s=1_800.0)
    told: list[int] = []

    with capture_logs() as lines:
        for now_s, free_gib in enumerate([100] * 30 + [*range(100, 40, -1)] + [100] * 70):
            now_s *= 10
            watch._note(DiskSpace(free_gib * GIB, 200 * GIB))
            told.append(len(lines))

    assert [(line["event"], line["log_level"]) for line in lines] == [("disk.fills", "warning")]
    assert watch.full_in_s is None
