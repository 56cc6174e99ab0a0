"""A disk with little room left: nothing begins, what runs goes on and says so once."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.unit.archive.streams import TERM_LENGTH, StreamBuilder, failing, launch, read_all, small_config
from trimaran.archive import Archive, ArchiveConfig, ArchiveError, ArchiveErrorCode, Recording
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.disk.memory_file_system import MemoryFileSystem


async def start(archive: Archive, *, preallocate: bool = False) -> Recording:
    return await archive.start_recording(
        stream_id=100, session_id=1, channel="c", source_identity="s", preallocate=preallocate
    )


def test_the_threshold_is_a_segment_unless_it_is_set() -> None:
    assert ArchiveConfig().space_threshold_bytes == 128 << 20
    assert ArchiveConfig(term_length_bytes=1 << 30).space_threshold_bytes == 1 << 30
    assert ArchiveConfig(low_space_threshold_bytes=0).space_threshold_bytes == 0


async def test_nothing_begins_below_the_threshold() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk, config=small_config(low_space_threshold_bytes=100_000))
    await (await start(archive)).stop()
    names = disk.list_directory(archive.directory)
    disk.capacity_bytes = disk.used_bytes + 99_999

    for attempt in (start(archive), archive.extend_recording(0, session_id=1)):
        with pytest.raises(ArchiveError, match="free_bytes=99999 low_space_threshold_bytes=100000") as caught:
            await attempt
        assert caught.value.code is ArchiveErrorCode.STORAGE_SPACE

    assert disk.list_directory(archive.directory) == names
    assert archive.descriptor(0).stop_position == 0
    snapshot = await archive.start_recording(
        stream_id=107, session_id=1, channel="c", source_identity="s", preallocate=False, may_use_reserve=True
    )
    assert snapshot.recording_id == 1
    disk.capacity_bytes += TERM_LENGTH + 1
    await archive.extend_recording(0, session_id=1)
    await archive.aclose()


async def test_a_start_that_finds_the_disk_full_gives_back_what_it_took() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk, config=small_config(low_space_threshold_bytes=0))
    names, used_bytes = disk.list_directory(archive.directory), disk.used_bytes
    disk.capacity_bytes = disk.used_bytes + TERM_LENGTH - 512

    with pytest.raises(ArchiveError) as caught:
        await start(archive, preallocate=True)

    assert caught.value.code is ArchiveErrorCode.STORAGE_SPACE
    assert (disk.list_directory(archive.directory), disk.used_bytes) == (names, used_bytes)
    await archive.aclose()


async def test_a_first_segment_that_cannot_be_written_is_removed() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    names = disk.list_directory(archive.directory)
    disk.on_operation = failing(OSError(errno.ENOSPC, "no space left on device"), "pwrite")

    with pytest.raises(ArchiveError, match="no space"):
        await start(archive, preallocate=True)

    disk.on_operation = None
    assert disk.list_directory(archive.directory) == names
    await archive.aclose()


async def fill(recording: Recording, written: bytearray) -> None:
    for chunk in StreamBuilder().fill_to(8 * TERM_LENGTH):
        recording.append(chunk)
        recording.flush()
        await recording.wait_recorded(recording.append_position)
        written += chunk


@pytest.mark.parametrize("preallocate", [False, True])
async def test_a_recording_that_runs_warns_once_and_goes_on_until_the_disk_is_full(preallocate: bool) -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    recording = await start(archive, preallocate=preallocate)
    failures: list[BaseException] = []
    recording.on_failed = failures.append
    disk.capacity_bytes = disk.used_bytes + 2 * TERM_LENGTH
    written = bytearray()

    with capture_logs() as logs, pytest.raises(ArchiveError) as caught:
        await fill(recording, written)

    assert caught.value.code is ArchiveErrorCode.STORAGE_SPACE
    assert failures == [caught.value]
    warnings = [log for log in logs if log["event"] == "recording.space_low"]
    assert [(log["recording_id"], log["low_space_threshold_bytes"]) for log in warnings] == [(0, TERM_LENGTH)]
    assert len(written) >= 2 * TERM_LENGTH
    assert read_all(archive).startswith(written)
    await archive.aclose()


def test_the_free_space_is_that_of_the_disk(tmp_path: Path) -> None:
    found = OsFileSystem().disk_space(tmp_path)
    assert 0 < found.free_bytes <= found.size_bytes
