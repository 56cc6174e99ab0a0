"""The preloaded disk and clock, in small processes that say what they see."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from tests.waiting import patient
from trimaran.benchmarks.chaos.power_loss import lose_power
from trimaran.benchmarks.chaos.shim import FaultShim, MemberShim

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or not any(map(shutil.which, ("cc", "gcc", "clang"))),
        reason="the shim needs Linux and a C compiler",
    ),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> FaultShim:
    """The shim, compiled once."""
    return FaultShim.compile(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def guarded(tmp_path: Path) -> Path:
    """The directory whose files may be lost; it was there before."""
    directory = tmp_path / "guarded"
    directory.mkdir()
    return directory


@pytest.fixture
def shim(library: FaultShim, tmp_path: Path, guarded: Path) -> MemberShim:
    """The shim of one process."""
    return library.for_member(tmp_path / "undo", guarded)


def _run(shim: MemberShim, guarded: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import os, errno\nos.chdir({str(guarded)!r})\n{code}"],
        env={**os.environ, **shim.environment},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _lose_all(shim: MemberShim) -> None:
    lose_power(shim.undo_directory, Random(0), loses_all=True)


_WRITER = """
def sync_directory(path="."):
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(handle)
    os.close(handle)

def new(name, data=b"", synced=True):
    handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    os.pwrite(handle, data, 0)
    if synced:
        os.fdatasync(handle)
        sync_directory()
    return handle
"""


def test_what_was_synced_survives_and_the_rest_does_not(shim: MemberShim, guarded: Path) -> None:
    _run(shim, guarded, _WRITER + 'f = new("a", b"synced"); os.pwrite(f, b"LOST", 0); os.pwrite(f, b"more", 6)')
    assert (guarded / "a").read_bytes() == b"LOSTedmore"

    _lose_all(shim)

    assert (guarded / "a").read_bytes() == b"synced"


def test_a_second_sync_makes_what_came_between_durable(shim: MemberShim, guarded: Path) -> None:
    _run(shim, guarded, _WRITER + 'f = new("a", b"1111"); os.pwrite(f, b"22", 0); os.fsync(f); os.pwrite(f, b"3", 3)')

    _lose_all(shim)

    assert (guarded / "a").read_bytes() == b"2211"


def test_a_new_life_of_the_process_goes_on_with_what_is_not_durable(shim: MemberShim, guarded: Path) -> None:
    _run(shim, guarded, _WRITER + 'f = new("a", b"synced"); os.pwrite(f, b"1", 0)')
    _run(shim, guarded, 'f = os.open("a", os.O_RDWR); os.pwrite(f, b"2", 1); os.ftruncate(f, 3)')
    assert (guarded / "a").read_bytes() == b"12n"

    _lose_all(shim)

    assert (guarded / "a").read_bytes() == b"synced"


def test_a_file_whose_directory_was_not_synced_is_gone(shim: MemberShim, guarded: Path) -> None:
    _run(shim, guarded, _WRITER + 'new("kept", b"k"); f = new("gone", b"g", synced=False); os.fsync(f)')

    _lose_all(shim)

    assert sorted(path.name for path in guarded.iterdir()) == ["kept"]


def test_a_rename_and_a_removal_are_undone(shim: MemberShim, guarded: Path) -> None:
    code = 'new("a", b"old"); new("b", b"new"); new("c", b"here"); os.replace("b", "a"); os.unlink("c")'
    _run(shim, guarded, _WRITER + code)
    assert sorted(path.name for path in guarded.iterdir()) == ["a"]

    _lose_all(shim)

    assert {path.name: path.read_bytes() for path in guarded.iterdir()} == {"a": b"old", "b": b"new", "c": b"here"}


def test_a_rename_that_was_synced_stays(shim: MemberShim, guarded: Path) -> None:
    _run(shim, guarded, _WRITER + 'new("a", b"old"); new("b", b"new"); os.replace("b", "a"); sync_directory()')

    _lose_all(shim)

    assert {path.name: path.read_bytes() for path in guarded.iterdir()} == {"a": b"new"}


def test_directories_that_were_made_are_gone_with_what_is_in_them(shim: MemberShim, guarded: Path) -> None:
    _run(shim, guarded, _WRITER + 'os.makedirs("x/y"); open("x/y/f", "wb").write(b"1")')

    _lose_all(shim)

    assert list(guarded.iterdir()) == []


@pytest.mark.parametrize("seed", range(20))
def test_each_page_is_the_synced_one_or_the_newest(shim: MemberShim, guarded: Path, seed: int) -> None:
    code = 'f = new("a", b"o" * 40960)\nfor page in range(0, 10, 2): os.pwrite(f, b"n" * 4096, page * 4096)'
    _run(shim, guarded, _WRITER + code)

    lose_power(shim.undo_directory, Random(seed))

    data = (guarded / "a").read_bytes()
    assert len(data) == 40960
    for page in range(10):
        content = data[page * 4096 : (page + 1) * 4096]
        assert content == b"o" * 4096 or (page % 2 == 0 and content == b"n" * 4096)


def test_after_a_power_loss_there_is_nothing_left_to_lose(shim: MemberShim, guarded: Path) -> None:
    _run(shim, guarded, _WRITER + 'f = new("a", b"synced"); os.pwrite(f, b"LOST", 0)')
    _lose_all(shim)
    _run(shim, guarded, 'f = os.open("a", os.O_RDWR); os.pwrite(f, b"X", 0); os.fdatasync(f)')

    _lose_all(shim)

    assert (guarded / "a").read_bytes() == b"Xynced"


def test_a_failing_sync_makes_nothing_durable(shim: MemberShim, guarded: Path) -> None:
    _run(shim, guarded, _WRITER + 'new("a", b"synced")')
    shim.set_sync_error(errno.EIO)

    told = _run(
        shim,
        guarded,
        'f = os.open("a", os.O_RDWR); os.pwrite(f, b"L", 0)\n'
        "try: os.fdatasync(f)\nexcept OSError as e: print(e.errno == errno.EIO)",
    )

    assert (told, shim.failed_sync_count) == ("True\n", 1)
    _lose_all(shim)
    assert (guarded / "a").read_bytes() == b"synced"


def test_a_full_disk_takes_nothing_and_says_so(shim: MemberShim, guarded: Path, tmp_path: Path) -> None:
    shim.set_write_error(errno.ENOSPC)

    told = _run(
        shim,
        guarded,
        'try: os.open("a", os.O_RDWR | os.O_CREAT)\nexcept OSError as e: print(e.errno == errno.ENOSPC)\n'
        f'print(os.statvfs(".").f_bavail, os.statvfs({str(guarded)!r}).f_bavail)\n'
        f'open({str(tmp_path / "elsewhere")!r}, "w").write("1")',
    )

    assert told.splitlines()[0] == "True"
    assert told.splitlines()[1].endswith(" 0")
    assert (tmp_path / "elsewhere").read_text() == "1"
    assert list(guarded.iterdir()) == []


def test_the_wall_clock_is_off_and_the_monotonic_one_is_not(shim: MemberShim, guarded: Path) -> None:
    shim.set_clock_offset(-86_400.0)

    earliest = time.time(), time.monotonic()
    told = _run(shim, guarded, "import time; print(time.time(), time.monotonic())")
    latest = time.time(), time.monotonic()

    wall, monotonic = map(float, told.split())
    assert earliest[0] <= wall + 86_400.0 <= latest[0]
    assert earliest[1] <= monotonic <= latest[1]
