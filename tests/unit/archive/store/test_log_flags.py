"""A flipped flag of a log or a snapshot, which may show only at the next frame, is mended from another copy."""

from __future__ import annotations

from random import Random

import pytest

from tests.unit.archive.streams import DIRECTORY, TERM_LENGTH, launch, read_all
from tests.unit.service_api.wire.log.sample_logs import ROOM, make_publisher, new_term, session_message
from trimaran.archive import Archive, CorruptionError
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.service_api.types import LOG_STREAM_ID, SERVICE_SNAPSHOT_STREAM_ID
from trimaran.service_api.wire.frame import FLAG_BEGIN, FLAG_END, TYPE_PADDING, iter_headers

FLAGS_OFFSET = 5


def make_log(*lengths: int) -> bytes:
    publisher = make_publisher()
    publisher.append_positioned(new_term())
    for length in lengths:
        publisher.append_message(session_message(length, Random(1)))
    return b"".join(publisher.log_buffer.take_pending())


async def record(
    disk: MemoryFileSystem,
    data: bytes,
    *,
    channel: str = "trimaran:tcp?alias=log",
    stream_id: int = LOG_STREAM_ID,
) -> Archive:
    archive = await launch(disk)
    recording = await archive.start_recording(
        stream_id=stream_id, session_id=7, channel=channel, source_identity="test"
    )
    for begin in range(0, len(data), TERM_LENGTH):
        recording.append(data[begin : begin + TERM_LENGTH])
        recording.flush()
    await recording.wait_recorded(len(data))
    return archive


def flip(disk: MemoryFileSystem, data: bytes, position: int, bit: int) -> None:
    base = position - position % TERM_LENGTH
    flags = data[position + FLAGS_OFFSET]
    disk.damage(DIRECTORY / f"0-{base}.rec", position - base + FLAGS_OFFSET, bytes([flags ^ bit]))


def read_to_damage(archive: Archive, data: bytes) -> int:
    """Read until a read fails, and give where."""
    position = 0
    try:
        while position < len(data):
            position += len(archive.read(0, position, 4096, stop_position=len(data)))
    except CorruptionError:
        return position
    raise AssertionError("no read has failed")


async def mend(archive: Archive, data: bytes) -> tuple[int, int]:
    """Read to the damage and mend it; give where it showed, and where it began."""
    met = read_to_damage(archive, data)
    begin = archive.find_damage(0, met)
    segment_end = begin - begin % TERM_LENGTH + TERM_LENGTH
    await archive.mend_recording(0, begin, data[begin : min(segment_end, len(data))])
    return met, begin


def positions(data: bytes) -> list[int]:
    return [offset for offset, _ in iter_headers(data)]


@pytest.mark.parametrize(
    ("lengths", "index", "bit"),
    [
        pytest.param((40, ROOM, 40, 40), 2, FLAG_END, id="a whole message that fills its frame loses its end"),
        pytest.param((40, ROOM, 40, 40), 2, FLAG_BEGIN, id="a whole message loses its beginning"),
        pytest.param((40, 40, 40, 40), 2, FLAG_END, id="a whole message loses its end"),
        pytest.param((40, 3 * ROOM, 40), 2, FLAG_END, id="a first fragment becomes a whole message"),
        pytest.param((40, 3 * ROOM, 40), 2, FLAG_BEGIN, id="a first fragment becomes a middle one"),
        pytest.param((40, 3 * ROOM, 40), 3, FLAG_BEGIN, id="a middle fragment becomes a first one"),
        pytest.param((40, 3 * ROOM, 40), 3, FLAG_END, id="a middle fragment becomes a last one"),
        pytest.param((40, 3 * ROOM, 40), 4, FLAG_END, id="a last fragment becomes a middle one"),
        pytest.param((40, 3 * ROOM, 40), 4, FLAG_BEGIN, id="a last fragment becomes a whole message"),
        pytest.param((40, 2 * ROOM + 32, 40), 3, FLAG_END, id="a last fragment that fills its frame loses its end"),
    ],
)
async def test_a_flipped_flag_is_mended(lengths: tuple[int, ...], index: int, bit: int) -> None:
    data, disk = make_log(*lengths), MemoryFileSystem()
    archive = await record(disk, data)
    position = positions(data)[index]
    flip(disk, data, position, bit)

    met, begin = await mend(archive, data)

    assert begin <= position <= met
    assert read_all(archive) == data
    assert not archive.damage.places


async def test_an_end_that_is_lost_before_the_padding_of_a_term_is_mended() -> None:
    """It shows at the first entry of the next term, which lies in the next segment."""
    count = TERM_LENGTH // 1408 - 1
    data, disk = make_log(*[ROOM] * count, 2 * ROOM, 40, 40), MemoryFileSystem()
    padding = next(offset for offset, header in iter_headers(data) if header.type == TYPE_PADDING)
    archive = await record(disk, data)
    flip(disk, data, positions(data)[positions(data).index(padding) - 1], FLAG_END)

    met, begin = await mend(archive, data)

    assert (met, begin) == (TERM_LENGTH, padding - 1408)
    assert read_all(archive) == data


async def test_an_end_that_a_snapshot_loses_is_mended() -> None:
    publisher = make_publisher(stream_id=SERVICE_SNAPSHOT_STREAM_ID)
    for length in (40, 1408 - 32, 3000, 40):
        publisher.append_message(b"x" * length)
    data, disk = b"".join(publisher.log_buffer.take_pending()), MemoryFileSystem()
    channel = "trimaran:archive?alias=service-0-snapshot"
    archive = await record(disk, data, channel=channel, stream_id=SERVICE_SNAPSHOT_STREAM_ID)
    flip(disk, data, positions(data)[1], FLAG_END)

    met, begin = await mend(archive, data)

    assert (met, begin) == (positions(data)[2], positions(data)[1])
    assert read_all(archive) == data


async def test_a_recording_of_an_application_keeps_its_flags() -> None:
    data, disk = make_log(40, ROOM, 40), MemoryFileSystem()
    archive = await record(disk, data, channel="aeron:ipc")
    flip(disk, data, positions(data)[2], FLAG_END)

    assert read_all(archive) != data
    assert not archive.damage.places
