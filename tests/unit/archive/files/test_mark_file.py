"""Who runs on an archive directory: one at a time, Aeron's layout to the byte, and a dead owner in nobody's way."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.unit.archive.streams import DIRECTORY, extract_sample, failing, launch
from tests.waiting import passes
from trimaran.archive import ArchiveError, CorruptionError
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.files.mark_file import MARK_FILE_NAME, ArchiveInUseError, ArchiveMarkFile
from trimaran.archive.files.marks import LIVENESS_TIMEOUT_MS

MARK = DIRECTORY / MARK_FILE_NAME
NOW_MS = 1_700_000_000_000  # what the clock of `launch` shows
_ACTIVITY = struct.Struct("<q")


def activity_ms(data: bytes) -> int:
    (found,) = _ACTIVITY.unpack_from(data, 16)
    return int(found)


@pytest.fixture
def disk() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_directory(DIRECTORY)
    return disk


def put(disk: MemoryFileSystem, data: bytes) -> None:
    handle = disk.open_file(MARK, create=True)
    disk.pwrite(handle, data, 0)
    disk.close_file(handle)


@pytest.fixture(scope="module")
def aeron_mark(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The mark file that a real archive left when it was killed."""
    sample = extract_sample("archive-only", tmp_path_factory.mktemp("aeron"))
    return (sample / "node0" / "archive" / MARK_FILE_NAME).read_bytes()


def test_the_file_is_laid_out_as_aeron_lays_it_out(disk: MemoryFileSystem, aeron_mark: bytes) -> None:
    ArchiveMarkFile.open(DIRECTORY, now_ms=NOW_MS, file_system=disk)

    ours = disk.content(MARK)

    # SBE header; version; activity, start, pid; three stream ids; header and error log length; archive id.
    layout = struct.Struct("<HHHHi4xqqqiiiii4xq")
    theirs = layout.unpack_from(aeron_mark)
    expected = (*theirs[:5], NOW_MS, NOW_MS, os.getpid(), *theirs[8:13], -1)
    assert layout.unpack_from(ours) == expected
    assert len(ours) == len(aeron_mark) == 1_056_768
    channel = b"trimaran:tcp"
    assert ours[136:] == (struct.pack("<I", len(channel)) + channel).ljust(len(ours) - 136, b"\0")


def test_an_archive_id_and_an_error_log_of_aeron_are_kept(disk: MemoryFileSystem, aeron_mark: bytes) -> None:
    put(disk, aeron_mark[:8192] + b"an error".ljust(1 << 20, b"\0"))

    mark = ArchiveMarkFile.open(DIRECTORY, now_ms=activity_ms(aeron_mark) + LIVENESS_TIMEOUT_MS, file_system=disk)

    assert mark.header.archive_id == 1
    assert disk.content(MARK)[8192:8200] == b"an error"


async def test_a_second_archive_on_a_directory_is_refused_with_the_owner_and_its_age(disk: MemoryFileSystem) -> None:
    archive = await launch(disk)
    before = disk.content(MARK)

    with pytest.raises(ArchiveInUseError, match=rf"directory=/archive owner_pid={os.getpid()} age_ms=0; stop") as error:
        await launch(disk)

    assert (error.value.pid, error.value.age_ms) == (os.getpid(), 0)
    assert disk.content(MARK) == before
    await archive.aclose()
    await (await launch(disk)).aclose()


async def test_a_start_that_fails_gives_the_directory_back(disk: MemoryFileSystem) -> None:
    put_segment = disk.open_file(DIRECTORY / "0-0.rec", create=True)
    disk.close_file(put_segment)

    for _ in range(2):
        with pytest.raises(CorruptionError, match=r"segment files.*archive\.catalog"):
            await launch(disk)

    assert activity_ms(disk.content(MARK)) == -1


@pytest.mark.parametrize("age_ms", [-9_000, 0, 9_999])
async def test_an_aeron_archive_that_is_alive_is_left_alone(
    disk: MemoryFileSystem, aeron_mark: bytes, age_ms: int
) -> None:
    data = bytearray(aeron_mark)
    _ACTIVITY.pack_into(data, 16, NOW_MS - age_ms)
    put(disk, bytes(data))

    with pytest.raises(ArchiveInUseError, match=rf"owner_pid=24314 age_ms={age_ms}; .*Aeron.*died"):
        await launch(disk)

    assert disk.content(MARK) == data


@pytest.mark.parametrize("age_ms", [10_000, 10**9, -10_000, NOW_MS + 1])
async def test_an_aeron_archive_that_has_died_or_stopped_hinders_nobody(
    disk: MemoryFileSystem, aeron_mark: bytes, age_ms: int
) -> None:
    data = bytearray(aeron_mark)
    _ACTIVITY.pack_into(data, 16, NOW_MS - age_ms)
    put(disk, bytes(data))

    archive = await launch(disk)

    assert activity_ms(disk.content(MARK)) == NOW_MS
    await archive.aclose()
    assert activity_ms(disk.content(MARK)) == -1


@pytest.mark.parametrize("is_power_loss", [False, True])
async def test_one_of_ours_that_has_just_died_hinders_nobody(disk: MemoryFileSystem, is_power_loss: bool) -> None:
    archive = await launch(disk)
    assert activity_ms(disk.content(MARK)) == NOW_MS

    disk.crash(lambda: True) if is_power_loss else disk.crash_process()

    again = await launch(disk)
    with pytest.raises(ArchiveInUseError):
        await launch(disk)
    await again.abandon()
    await (await launch(disk)).aclose()
    del archive


_OWNER = """
import pathlib, sys
from trimaran.archive.files.mark_file import ArchiveMarkFile
mark = ArchiveMarkFile.open(pathlib.Path(sys.argv[1]), now_ms=1_700_000_000_000)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_process_holds_its_directory_until_it_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"locked\n"
        with pytest.raises(ArchiveInUseError, match=f"owner_pid={owner.pid} age_ms=700") as caught:
            ArchiveMarkFile.open(tmp_path, now_ms=NOW_MS + 700)
        assert caught.value.pid == owner.pid
        owner.kill()
        owner.wait()

    with ArchiveMarkFile.open(tmp_path, now_ms=NOW_MS + 800) as mark:
        assert mark.header.pid == os.getpid()


async def test_an_archive_says_about_once_a_second_that_it_lives(
    disk: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimaran.archive.store.conductor.ACTIVITY_INTERVAL_S", 0.0)
    archive = await launch(disk)
    disk.damage(MARK, 16, _ACTIVITY.pack(5))
    disk.on_operation = failing(OSError(errno.EIO, "input/output error"), "pwrite")

    await passes(10)
    assert activity_ms(disk.content(MARK)) == 5
    disk.on_operation = None
    await passes(10)

    assert activity_ms(disk.content(MARK)) == NOW_MS
    await archive.aclose()
    await passes(10)
    assert activity_ms(disk.content(MARK)) == -1


async def test_a_disk_that_takes_no_last_word_holds_nothing_up(disk: MemoryFileSystem) -> None:
    """Nor does it hide why a start has failed."""
    archive = await launch(disk)
    disk.on_operation = failing(OSError(errno.EIO, "input/output error"), "pwrite")
    await archive.aclose()

    disk.on_operation = None
    await (await launch(disk)).aclose()
    disk.damage(DIRECTORY / "archive.catalog", 0, b"\xff" * 8)
    is_open = False

    def fail_after_the_lock(name: str, path: Path, length: int) -> None:
        nonlocal is_open
        if name == "pwrite" and path == MARK and is_open:
            raise OSError(errno.EIO, "input/output error")
        is_open = is_open or name == "pwrite"

    disk.on_operation = fail_after_the_lock
    with pytest.raises(CorruptionError, match="catalog version"):
        await launch(disk)


async def test_a_disk_that_takes_no_mark_file_says_so(disk: MemoryFileSystem) -> None:
    disk.on_operation = failing(OSError(errno.EROFS, "read-only file system"), "create")

    with pytest.raises(ArchiveError, match="read-only file system"):
        await launch(disk)
