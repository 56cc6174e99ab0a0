"""The real disk: what only a kernel can show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trimaran.archive.disk.file_system import OsFileSystem

LENGTH = 1 << 20
STEP = 64 << 10
"""What is written in one call: the kernel keeps or drops that as a whole."""


def is_in_memory(handle: int, offset: int) -> bool:
    """Whether the kernel can give a page of a file without asking the disk."""
    try:
        return os.preadv(handle, [bytearray(4096)], offset, os.RWF_NOWAIT) == 4096
    except BlockingIOError:
        return False


@pytest.fixture
def written(tmp_path: Path) -> int:
    """A durable file of random bytes, open, which the kernel keeps in memory."""
    disk = OsFileSystem()
    handle = disk.open_file(tmp_path / "file", create=True)
    for offset in range(0, LENGTH, STEP):
        disk.pwrite(handle, os.urandom(STEP), offset)
    disk.sync_file(handle)
    return handle


def test_what_is_evicted_is_read_from_the_disk_and_the_rest_stays_in_memory(written: int) -> None:
    disk, half = OsFileSystem(), LENGTH // 2
    content = disk.pread(written, LENGTH, 0)
    try:
        assert is_in_memory(written, 0)
    except OSError as error:  # EOPNOTSUPP: a file system that is itself in memory
        pytest.skip(f"no way to ask what is in memory: {error}")

    disk.evict(written, 0, half)

    assert not is_in_memory(written, 0)
    assert is_in_memory(written, LENGTH - 4096)
    assert disk.pread(written, LENGTH, 0) == content


def test_evicting_what_cannot_be_evicted_does_no_harm() -> None:
    reader, writer = os.pipe()
    try:
        OsFileSystem().evict(reader, 0, LENGTH)
    finally:
        os.close(reader)
        os.close(writer)
