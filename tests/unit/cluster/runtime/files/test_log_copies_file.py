"""The file that says which ranges of a member's log are copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.core.log.log_copies import OPEN_END
from trimaran.cluster.runtime.files.log_copies_file import LOG_COPIES_FILE_NAME, LogCopiesFile
from trimaran.service_api.types import MemberId

DIRECTORY = Path("/cluster")
A, B = MemberId(0), MemberId(1)


@pytest.fixture
def disk() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_directory(DIRECTORY)
    return made


def opened(disk: MemoryFileSystem) -> LogCopiesFile:
    return LogCopiesFile.open(DIRECTORY, disk, {A, B})


def test_what_was_noted_is_there_at_the_next_start(disk: MemoryFileSystem) -> None:
    file = opened(disk)
    assert file.copies.ranges == []
    file.copies.note(0, 4096, {B})

    file.persist()

    assert opened(disk).copies == file.copies
    assert disk.content(DIRECTORY / LOG_COPIES_FILE_NAME).startswith(b"0-4096:1 ")


def test_every_flipped_bit_makes_all_of_the_log_a_copy_of_every_member(disk: MemoryFileSystem) -> None:
    file = opened(disk)
    file.copies.note(0, 4096, {B})
    file.persist()
    path = DIRECTORY / LOG_COPIES_FILE_NAME
    whole = disk.content(path)
    for at in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << at % 8
        handle = disk.open_file(path)
        disk.pwrite(handle, bytes(flipped), 0)
        disk.close_file(handle)

        assert opened(disk).copies.find_sources(1 << 40, OPEN_END) == {A, B}, (at, bytes(flipped))
