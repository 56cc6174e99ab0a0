"""The real disk: what only a kernel can show."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import pytest

from tests.system.file_systems import is_in_memory
from trimaran.archive.disk.file_system import OsFileSystem

LIBC = ctypes.CDLL(None, use_errno=True)
LENGTH = 1 << 20
STEP = 64 << 10
"""What is written in one call: the kernel keeps or drops that as a whole."""


def is_resident(handle: int, offset: int) -> bool:
    """Whether the kernel keeps a page of a file in memory, asked without reading the page.

    `mincore` answers that. A read with RWF_NOWAIT does not: it starts reading ahead, and a quick disk is done with that
    before the answer.
    """
    page = ctypes.create_string_buffer(1)
    with mmap.mmap(handle, mmap.PAGESIZE, offset=offset) as mapped:
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        if LIBC.mincore(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), page) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
    return bool(page.raw[0] & 1)


@pytest.fixture
def written(tmp_path: Path) -> int:
    """A durable file of random bytes, open, which the kernel keeps in memory."""
    disk = OsFileSystem()
    handle = disk.open_file(tmp_path / "file", create=True)
    for offset in range(0, LENGTH, STEP):
        disk.pwrite(handle, os.urandom(STEP), offset)
    disk.sync_file(handle)
    return handle


def test_what_is_evicted_is_read_from_the_disk_and_the_rest_stays_in_memory(written: int, tmp_path: Path) -> None:
    disk, half = OsFileSystem(), LENGTH // 2
    content = disk.pread(written, LENGTH, 0)
    assert is_resident(written, 0)
    if is_in_memory(tmp_path):
        pytest.skip("the file system of the temporary directory is itself in memory")

    disk.evict(written, 0, half)

    assert not is_resident(written, 0)
    assert is_resident(written, LENGTH - mmap.PAGESIZE)
    assert disk.pread(written, LENGTH, 0) == content


def test_evicting_what_cannot_be_evicted_does_no_harm() -> None:
    reader, writer = os.pipe()
    try:
        OsFileSystem().evict(reader, 0, LENGTH)
    finally:
        os.close(reader)
        os.close(writer)
