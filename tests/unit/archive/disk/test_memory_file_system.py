"""The disk in memory: what a power loss takes, what it keeps, and the faults it can be given."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimaran.archive.disk.memory_file_system import SECTOR_LENGTH_BYTES, MemoryFileSystem

ROOT = Path("/")
FILE = ROOT / "file"
EVERYTHING = 1 << 30


def make(content: bytes = b"", path: Path = FILE) -> tuple[MemoryFileSystem, int]:
    """A disk with one durable file, open."""
    disk = MemoryFileSystem()
    handle = disk.open_file(path, create=True)
    disk.pwrite(handle, content, 0)
    disk.sync_file(handle)
    disk.sync_directory(ROOT)
    return disk, handle


def answers(*given_answers: bool) -> Callable[[], bool]:
    left = iter(given_answers)
    return lambda: next(left)


@settings(max_examples=200)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["write", "length", "sync"]), st.integers(0, 3000), st.integers(0, 1500)),
        max_size=20,
    ),
    seed=st.integers(0, 1000),
)
def test_each_sector_and_the_length_are_old_or_new_after_a_power_loss(
    steps: list[tuple[str, int, int]], seed: int
) -> None:
    """Checked against a model that copies the whole file at each sync."""
    disk, handle = make(random.Random(seed).randbytes(700))
    durable = disk.content(FILE)
    generator = random.Random(seed)
    has_shrunk = False
    for name, first, second in steps:
        if name == "write":
            disk.pwrite(handle, generator.randbytes(second), first)
        elif name == "length":
            has_shrunk = has_shrunk or first < disk.file_length(handle)
            disk.set_length(handle, first)
        else:
            disk.sync_data(handle)
            durable, has_shrunk = disk.content(FILE), False
    written = disk.content(FILE)
    assert disk.durable_read(FILE, EVERYTHING, 0) == durable
    assert disk.durable_read(FILE, 600, 300) == durable[300:900]

    disk.crash(lambda: generator.random() < 0.5)

    found = disk.content(FILE)
    assert len(found) in (len(durable), len(written))
    if has_shrunk:
        return  # old, new, and zeros may then meet in one sector
    for begin in range(0, len(found), SECTOR_LENGTH_BYTES):
        end = min(begin + SECTOR_LENGTH_BYTES, len(found))
        old, new = durable[begin:end].ljust(end - begin, b"\0"), written[begin:end].ljust(end - begin, b"\0")
        assert found[begin:end] in (old, new)


def test_sync_makes_the_content_durable_and_nothing_else() -> None:
    disk, handle = make(b"old")
    other = disk.open_file(ROOT / "other", create=True)

    disk.pwrite(handle, b"new", 0)
    disk.pwrite(other, b"lost", 0)
    disk.sync_data(handle)
    disk.crash()

    assert disk.content(FILE) == b"new"
    assert disk.list_directory(ROOT) == ["file"]


def test_a_longer_file_may_survive_without_what_was_written_there() -> None:
    disk, handle = make(b"a" * 512)
    disk.pwrite(handle, b"b" * 1024, 512)

    disk.crash(answers(True, False, True))

    assert disk.content(FILE) == b"a" * 512 + bytes(512) + b"b" * 512


@pytest.mark.parametrize(("keeps", "expected"), [(True, b"abc"), (False, b"abcdef")])
def test_a_cut_survives_or_brings_the_old_end_back(keeps: bool, expected: bytes) -> None:
    disk, handle = make(b"abcdef")
    disk.set_length(handle, 3)

    disk.crash(lambda: keeps)

    assert disk.content(FILE) == expected


def test_names_of_a_directory_survive_in_order_and_those_of_another_on_their_own() -> None:
    disk = MemoryFileSystem()
    disk.make_directory(ROOT / "d")
    for name in ("1", "2", "3"):
        disk.open_file(ROOT / name, create=True)
        disk.open_file(ROOT / "d" / name, create=True)

    disk.crash(answers(True, False, True, True, False))

    assert disk.list_directory(ROOT) == ["1", "d"]
    assert disk.list_directory(ROOT / "d") == ["1", "2"]


def test_a_replaced_file_is_back_when_the_rename_is_lost() -> None:
    disk, _ = make(b"old")
    handle = disk.open_file(ROOT / "new", create=True)
    disk.pwrite(handle, b"new", 0)
    disk.sync_file(handle)
    disk.rename(ROOT / "new", FILE)

    assert disk.content(FILE) == b"new"
    disk.crash(answers(True, False))

    assert (disk.content(FILE), disk.content(ROOT / "new")) == (b"old", b"new")


def test_a_directory_is_renamed_with_all_that_lies_below_synced_or_not() -> None:
    disk = MemoryFileSystem()
    disk.make_directory(ROOT / "old" / "inner")
    for name in ("synced", "lost"):
        handle = disk.open_file(ROOT / "old" / "inner" / name, create=True)
        disk.pwrite(handle, name.encode(), 0)
        disk.sync_file(handle)
        if name == "synced":
            disk.sync_directory(ROOT / "old" / "inner")

    disk.rename(ROOT / "old", ROOT / "kept")

    assert disk.list_directory(ROOT) == ["kept"]
    assert disk.list_directory(ROOT / "kept" / "inner") == ["lost", "synced"]
    disk.crash()
    assert disk.list_directory(ROOT / "kept" / "inner") == ["synced"]
    assert disk.content(ROOT / "kept" / "inner" / "synced") == b"synced"
    with pytest.raises(FileNotFoundError):
        disk.list_directory(ROOT / "old")


@pytest.mark.parametrize(
    ("target", "number"),
    [(ROOT / "file", errno.ENOTEMPTY), (ROOT / "other", errno.ENOTEMPTY), (ROOT / "other" / "a", errno.EXDEV)],
)
def test_a_directory_does_not_take_the_place_of_something_else(target: Path, number: int) -> None:
    disk, _ = make(b"old")
    disk.make_directory(ROOT / "source")
    disk.make_directory(ROOT / "other")

    with pytest.raises(OSError, match=str(target)) as raised:
        disk.rename(ROOT / "source", target)

    assert raised.value.errno == number
    assert disk.list_directory(ROOT) == ["file", "other", "source"]


def test_the_end_of_a_process_keeps_what_was_written_and_drops_handles_and_locks() -> None:
    disk, handle = make(b"old")
    assert disk.try_lock(handle)
    disk.pwrite(handle, b"new", 0)

    disk.crash_process()

    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.pread(handle, 3, 0)
    handle = disk.open_file(FILE)
    assert disk.try_lock(handle)
    assert disk.pread(handle, 3, 0) == b"new"
    assert disk.durable_read(FILE, 3, 0) == b"old"


def test_a_lock_has_one_holder_until_it_closes() -> None:
    disk, first = make()
    second = disk.open_file(FILE)

    assert [disk.try_lock(first), disk.try_lock(first), disk.try_lock(second)] == [True, True, False]
    disk.close_file(first)

    assert disk.try_lock(second)


def test_each_operation_is_told_before_it_is_done_and_may_be_refused() -> None:
    disk = MemoryFileSystem()
    told: list[tuple[str, str, int]] = []
    disk.on_operation = lambda name, path, length: told.append((name, path.name, length))

    handle = disk.open_file(FILE, create=True)
    disk.set_length(handle, 10)
    disk.pwrite(handle, b"abc", 0)
    disk.pread(handle, 7, 0)
    disk.sync_data(handle)
    disk.rename(FILE, ROOT / "moved")
    disk.sync_file(handle)
    disk.sync_directory(ROOT / "moved")
    disk.open_file(ROOT / "moved")
    disk.remove(ROOT / "moved")

    assert told == [
        ("create", "file", 0),
        ("set_length", "file", 10),
        ("pwrite", "file", 3),
        ("pread", "file", 7),
        ("sync", "file", 0),
        ("rename", "file", 0),
        ("sync", "moved", 0),
        ("sync_directory", "moved", 0),
        ("open", "moved", 0),
        ("remove", "moved", 0),
    ]

    def refuse(name: str, path: Path, length: int) -> None:
        raise OSError(errno.EIO, "no")

    disk.on_operation = refuse
    with pytest.raises(OSError, match="no"):
        disk.open_file(FILE, create=True)
    disk.on_operation = None
    assert disk.list_directory(ROOT) == []


def test_a_full_disk_takes_what_fits_and_then_refuses() -> None:
    disk, handle = make(b"12345")
    disk.capacity_bytes = 8

    assert disk.pwrite(handle, b"abcdef", 5) == 3
    with pytest.raises(OSError, match="No space left") as caught:
        disk.pwrite(handle, b"def", 8)
    with pytest.raises(OSError, match="No space left"):
        disk.set_length(handle, 9)
    assert caught.value.errno == errno.ENOSPC
    assert disk.content(FILE) == b"12345abc"
    assert disk.pwrite(handle, b"over", 0) == 4
    disk.set_length(handle, 2)
    assert disk.used_bytes == 2

    disk.remove(FILE)

    assert disk.used_bytes == 0


def test_a_write_can_be_made_short() -> None:
    disk, handle = make()
    disk.write_limit_bytes = 2

    assert disk.pwrite(handle, b"abcdef", 0) == 2
    assert disk.content(FILE) == b"ab"


def test_damage_is_durable_and_leaves_what_is_unsynced_unsynced() -> None:
    disk, handle = make(b"a" * 1024)
    disk.pwrite(handle, b"bb", 0)

    disk.damage(FILE, 1, b"XX")
    assert disk.content(FILE)[:4] == b"bXXa"
    disk.crash()

    assert disk.content(FILE)[:4] == b"aXXa"
    assert len(disk.content(FILE)) == 1024


def test_writes_from_several_threads_all_arrive() -> None:
    disk, handle = make(bytes(4 * 512 * 100))

    def write(number: int) -> None:
        for sector in range(number * 100, number * 100 + 100):
            disk.pwrite(handle, bytes([number + 1]) * 512, sector * 512)
            disk.sync_data(handle)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert disk.durable_read(FILE, EVERYTHING, 0) == b"".join(bytes([n + 1]) * 51200 for n in range(4))


def test_what_a_failed_sync_gave_up_is_not_made_durable_by_the_next_one() -> None:
    disk, handle = make(b"old" * 400)
    disk.pwrite(handle, b"new" * 500, 0)

    disk.drop_unsynced(FILE)
    disk.sync_file(handle)

    assert disk.content(FILE) == disk.durable_read(FILE, EVERYTHING, 0) == b"old" * 400
    assert disk.used_bytes == 1200
