"""A damaged range gets the bytes of another copy: which, what is refused, and that a crash leaves it whole."""

from __future__ import annotations

import errno

import pytest

from tests.unit.archive.streams import (
    DIRECTORY,
    TERM_LENGTH,
    PowerLoss,
    PowerSupply,
    StreamBuilder,
    launch,
)
from trimaran.archive import Archive, ArchiveError, ArchiveErrorCode, CorruptionError
from trimaran.archive.disk.memory_file_system import MemoryFileSystem

END = 2 * TERM_LENGTH + 4096
PLACE = 1408 * 3
"""Where the fourth frame begins."""


async def record(archive: Archive, *, is_active: bool = True) -> bytes:
    """Record frames of 1408 bytes in segments of one term; give them."""
    recording = await archive.start_recording(
        stream_id=100, session_id=1, channel="c", source_identity="s", preallocate=False
    )
    log = b"".join(StreamBuilder().fill_to(END))
    for begin in range(0, END, TERM_LENGTH):
        recording.append(log[begin : begin + TERM_LENGTH])
    recording.flush()
    await recording.wait_recorded(END)
    if not is_active:
        await recording.stop()
    return log


def content(disk: MemoryFileSystem) -> bytes:
    return b"".join(disk.content(DIRECTORY / f"0-{base}.rec") for base in range(0, END, TERM_LENGTH))[:END]


@pytest.mark.parametrize("is_active", [True, False])
@pytest.mark.parametrize(
    ("offset", "bad"),
    [(PLACE + 40, b"\1"), (PLACE, b"\xff\xff"), (PLACE + 1400, bytes(2000)), (PLACE, bytes(1408))],
    ids=["payload", "length", "three frames", "zeros"],
)
async def test_a_damaged_range_gets_what_was_recorded_and_no_other_byte_is_written(
    *, is_active: bool, offset: int, bad: bytes
) -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    log = await record(archive, is_active=is_active)
    disk.damage(DIRECTORY / "0-0.rec", offset, bad)
    with pytest.raises(CorruptionError):
        archive.read(0, PLACE, 1408, stop_position=END)

    end_position = await archive.mend_recording(0, PLACE, log[PLACE : PLACE + 10 * 1408])

    assert end_position == PLACE + (3 if len(bad) == 2000 else 1) * 1408
    assert content(disk) == log
    assert archive.damage.places == []


async def test_a_segment_that_is_gone_comes_back() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    log = await record(archive)
    disk.remove(DIRECTORY / f"0-{TERM_LENGTH}.rec")

    assert await archive.mend_recording(0, TERM_LENGTH, log[TERM_LENGTH : 2 * TERM_LENGTH]) == 2 * TERM_LENGTH

    assert content(disk) == log


async def test_what_the_disk_cannot_read_is_written_again() -> None:
    """A disk gives a sector that it lost another place when that is written."""
    disk = MemoryFileSystem()
    archive = await launch(disk)
    log = await record(archive)
    real_pread, real_pwrite, lost = disk.pread, disk.pwrite, {4096}

    def pread(handle: int, length: int, offset: int) -> bytes:
        if any(offset < sector + 4096 and sector < offset + length for sector in lost):
            raise OSError(errno.EIO, "lost")
        return real_pread(handle, length, offset)

    def pwrite(handle: int, data: bytes, offset: int) -> int:
        if any(offset <= sector and sector + 4096 <= offset + len(data) for sector in lost):
            lost.clear()
        return real_pwrite(handle, data, offset)

    disk.pread, disk.pwrite = pread, pwrite  # type: ignore[method-assign, assignment]

    end_position = await archive.mend_recording(0, 2816, log[2816 : 2816 + 10 * 1408])

    assert (lost, end_position) == (set(), 2816 + 4 * 1408)
    assert content(disk) == log


async def test_a_disk_that_keeps_nothing_is_told() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    log = await record(archive)
    disk.damage(DIRECTORY / "0-0.rec", PLACE + 40, b"\1")
    real_pwrite = disk.pwrite

    def pwrite(handle: int, data: bytes, offset: int) -> int:
        return len(data) if offset == PLACE + 40 else real_pwrite(handle, data, offset)

    disk.pwrite = pwrite  # type: ignore[method-assign, assignment]

    with pytest.raises(CorruptionError, match=r"disk.*replace"):
        await archive.mend_recording(0, PLACE, log[PLACE : PLACE + 1408])


async def test_a_valid_frame_that_differs_is_another_history_and_stays() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    log = await record(archive)
    disk.damage(DIRECTORY / "0-0.rec", PLACE + 40, b"\1")
    before = content(disk)
    others = b"".join(StreamBuilder(seed=1).fill_to(END))

    with pytest.raises(CorruptionError, match=rf"history.*position={PLACE + 1408}"):
        await archive.mend_recording(0, PLACE, log[PLACE : PLACE + 1408] + others[PLACE + 1408 : PLACE + 2816])

    assert content(disk) == before


@pytest.mark.parametrize(
    ("position", "length", "code"),
    [
        (PLACE + 8, 1408, ArchiveErrorCode.INVALID_POSITION),
        (END - 64, 1408, ArchiveErrorCode.INVALID_POSITION),
        (TERM_LENGTH - 1408, 2816, ArchiveErrorCode.INVALID_POSITION),
        (PLACE, 0, ArchiveErrorCode.INVALID_POSITION),
        (PLACE + 32, 1408, ArchiveErrorCode.CORRUPT),
        (PLACE, 1400, ArchiveErrorCode.CORRUPT),
    ],
    ids=["unaligned", "beyond the end", "two segments", "nothing", "not valid there", "not whole"],
)
async def test_what_does_not_fit_is_refused(position: int, length: int, code: ArchiveErrorCode) -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    log = await record(archive)

    with pytest.raises(ArchiveError) as caught:
        await archive.mend_recording(0, position, log[PLACE : PLACE + length])

    assert caught.value.code is code
    assert content(disk) == log


async def test_a_power_loss_at_any_point_leaves_the_old_bytes_or_the_new_ones() -> None:
    """The place is in the last batch: torn bytes there would look like a torn tail, and the end would be cut off."""
    place, cut_count = 2 * TERM_LENGTH + 1408, 0
    while True:
        disk, power = MemoryFileSystem(), PowerSupply()
        archive = await launch(disk)
        log = await record(archive, is_active=False)
        disk.damage(DIRECTORY / f"0-{2 * TERM_LENGTH}.rec", 1408 + 40, bytes(700))
        before = content(disk)
        disk.on_operation, power.operations_left = power, cut_count

        try:
            await archive.mend_recording(0, place, log[place : place + 1408])
        except PowerLoss:
            disk.on_operation = lambda name, path, length: None
            disk.crash(iter([bool(cut_count % 2)] * 1000).__next__)
            await launch(disk, is_power_loss_possible=True)
            assert content(disk) in (before, log)
            cut_count += 1
            continue
        assert content(disk) == log
        break
    assert cut_count > 4
