"""What an archive tells of damage that its readers met: once, then now and then, and for as long as it is there."""

from __future__ import annotations

import errno

import pytest
from structlog.testing import capture_logs

from tests.unit.archive.streams import DIRECTORY, StreamBuilder, launch
from trimaran.archive import Archive, ArchiveError, ArchiveErrorCode, CorruptionError
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.store.damage import REPEAT_NS

FRAME = 160
END = 20 * FRAME


async def recorded(disk: MemoryFileSystem, now_ns: list[int]) -> Archive:
    archive = await launch(disk, monotonic_ns=lambda: now_ns[0])
    recording = await archive.start_recording(
        stream_id=100, session_id=7, channel="c", source_identity="s", preallocate=False
    )
    stream = StreamBuilder()
    for _ in range(20):
        for chunk in stream.message(100):
            recording.append(chunk)
    recording.flush()
    return archive


async def test_damage_is_told_once_then_after_a_minute_and_every_read_is_counted() -> None:
    disk, now_ns = MemoryFileSystem(), [0]
    archive = await recorded(disk, now_ns)
    disk.damage(DIRECTORY / "0-0.rec", 40, b"\1\2")

    with capture_logs() as lines:
        for now_ns[0] in (0, 1, REPEAT_NS - 1, REPEAT_NS):
            with pytest.raises(CorruptionError, match=r"file=0-0\.rec; .*member"):
                archive.read(0, 0, END, stop_position=END)

    told = [line for line in lines if line["event"] == "recording.damaged"]
    assert [(line["position"], line["file"], line["repeated"]) for line in told] == [
        (0, "0-0.rec", 0),
        (0, "0-0.rec", 2),
    ]
    assert archive.damage.failed_read_count == 4
    assert len(archive.damage.places) == 1


async def test_damage_that_was_put_right_is_told_no_more() -> None:
    disk, now_ns = MemoryFileSystem(), [0]
    archive = await recorded(disk, now_ns)
    whole = disk.content(DIRECTORY / "0-0.rec")[40:42]
    disk.damage(DIRECTORY / "0-0.rec", 40, b"\1\2")
    with pytest.raises(CorruptionError):
        archive.read(0, 0, END, stop_position=END)

    disk.damage(DIRECTORY / "0-0.rec", 40, whole)
    archive.read(0, 0, END, stop_position=END)

    assert archive.damage.places == []


@pytest.mark.parametrize(("number", "is_damage"), [(errno.EIO, True), (errno.EMFILE, False)])
async def test_a_disk_that_cannot_read_is_damage_and_one_that_refuses_for_now_is_not(
    number: int, is_damage: bool
) -> None:
    """What lies before the place is read all the same, so the place is found to the frame."""
    disk, now_ns = MemoryFileSystem(), [0]
    archive = await recorded(disk, now_ns)
    real = disk.pread

    def pread(handle: int, length: int, offset: int) -> bytes:
        if number == errno.EMFILE or offset + length > 3 * FRAME:
            raise OSError(number, "refused")
        return real(handle, length, offset)

    disk.pread = pread  # type: ignore[method-assign]
    position = 0
    with pytest.raises(ArchiveError) as caught:  # noqa: PT012 - how many reads it takes is open
        while True:
            position += len(archive.read(0, position, END, stop_position=END))

    assert caught.value.code is ArchiveErrorCode.STORAGE_FAILED
    assert position == (3 * FRAME if is_damage else 0)
    assert [place.position for place in archive.damage.places] == ([3 * FRAME] if is_damage else [])
