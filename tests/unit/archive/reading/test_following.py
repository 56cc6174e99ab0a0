"""Following a recording by its files: what comes, in order, whatever becomes of the recording meanwhile."""

from __future__ import annotations

from random import Random

import pytest

from tests.unit.archive.streams import DIRECTORY, TERM_LENGTH, StreamBuilder, launch, small_config
from trimaran.archive import Archive, CorruptionError, Recording
from trimaran.archive.disk.file_system import write_fully
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.files.reader import RecordedMessage
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import ArchiveLocation
from trimaran.archive.reading.following import PATIENCE_LOOKS, RecordingFollower


class Source:
    """An archive that records a stream, and a follower that knows its disk only."""

    def __init__(self, disk: MemoryFileSystem, archive: Archive, recording: Recording) -> None:
        self.disk = disk
        self.archive = archive
        self.recording = recording
        self.stream = StreamBuilder()
        self.lengths: list[int] = []
        descriptor = read_catalog(disk, DIRECTORY).entries[0].descriptor
        assert descriptor is not None
        self.follower = RecordingFollower(LogFile(ArchiveLocation(disk, DIRECTORY), descriptor))

    async def record(self, *lengths: int) -> None:
        """Record a message of each length, durably."""
        for length in lengths:
            for chunk in self.stream.message(length):
                self.recording.append(chunk)
            self.lengths.append(length)
        self.recording.flush()
        await self.recording.wait_recorded(self.stream.position)

    def look(self) -> list[RecordedMessage]:
        return list(self.follower.look())

    def seen(self) -> list[int]:
        return [len(message.payload) for message in self.look()]


async def make_source(segment_length_bytes: int = TERM_LENGTH) -> Source:
    disk = MemoryFileSystem()
    archive = await launch(disk, config=small_config(segment_length_bytes=segment_length_bytes))
    recording = await archive.start_recording(
        stream_id=100, session_id=1, channel="c", source_identity="s", preallocate=False
    )
    return Source(disk, archive, recording)


@pytest.fixture
async def source() -> Source:
    return await make_source()


async def test_messages_are_given_once_as_they_come(source: Source) -> None:
    assert source.seen() == []
    await source.record(10, 20)
    assert source.seen() == [10, 20]
    await source.record(3000)
    assert source.seen() == [3000]
    assert source.seen() == []
    assert source.follower.position == source.stream.position


async def test_every_message_is_seen_once_however_looks_and_segment_rolls_fall(source: Source) -> None:
    random, seen = Random(5), []
    for _ in range(60):
        await source.record(*(random.randrange(8000) for _ in range(random.randrange(4))))
        if random.random() < 0.5:
            seen += source.seen()
    seen += source.seen()

    assert source.stream.position > 5 * TERM_LENGTH
    assert seen == source.lengths


async def test_a_message_of_which_only_the_beginning_is_there_waits_for_its_end(source: Source) -> None:
    await source.record(50)
    (chunk,) = source.stream.message(3000)
    first_fragment = 1408
    source.recording.append(chunk[:first_fragment])
    source.recording.flush()
    await source.recording.wait_recorded(source.stream.position - len(chunk) + first_fragment)

    assert source.seen() == [50]
    assert source.seen() == []
    source.recording.append(chunk[first_fragment:])
    source.recording.flush()
    await source.recording.wait_recorded(source.stream.position)
    assert source.seen() == [3000]


async def test_the_last_messages_are_found_in_the_segments_they_need(source: Source) -> None:
    await source.record(*range(1000, 1200))

    assert [len(m.payload) for m in source.follower.last_messages(3)] == [1197, 1198, 1199]
    assert [len(m.payload) for m in source.follower.last_messages(150)] == list(range(1050, 1200))
    assert source.follower.last_messages(0) == []
    await source.record(7)
    assert source.seen() == [7]


@pytest.mark.parametrize("is_stopped", [False, True])
@pytest.mark.parametrize("count", [3, 100, 400])
async def test_the_last_messages_are_found_where_a_segment_holds_many_terms(is_stopped: bool, count: int) -> None:
    source = await make_source(segment_length_bytes=4 * TERM_LENGTH)
    await source.record(*range(1000, 1320))
    assert 5 * TERM_LENGTH < source.stream.position < 6 * TERM_LENGTH  # the last two terms of a segment are blank
    if is_stopped:
        await source.recording.stop()
        assert source.look()
        assert source.look() == []  # the catalog is read again

    found = source.follower.last_messages(count)

    assert [len(message.payload) for message in found] == source.lengths[-count:]
    assert source.follower.position == source.stream.position
    assert source.look() == []


async def test_a_recording_that_is_stopped_and_extended_goes_on(source: Source) -> None:
    await source.record(10)
    await source.recording.stop()
    assert source.seen() == [10]
    assert source.seen() == []
    source.recording = await source.archive.extend_recording(0, session_id=2, preallocate=False)
    await source.record(11)

    assert source.seen() in ([], [11])
    assert source.seen() == [11]
    assert source.follower.notices == []


async def test_what_retention_took_before_it_was_seen_is_told(source: Source) -> None:
    await source.record(10)
    assert source.seen() == [10]
    position = source.follower.position
    await source.record(*[1000] * 200)
    await source.archive.purge_segments(0, 2 * TERM_LENGTH)
    start_position = source.archive.descriptor(0).start_position

    assert source.seen() == []
    assert source.follower.notices == [
        f"recording_id=0 was purged: {start_position - position} bytes before position={start_position} were not seen"
    ]
    assert set(source.seen()) == {1000}
    assert source.follower.position == source.stream.position


async def test_a_recording_that_is_cut_back_and_goes_on_otherwise_is_told(source: Source) -> None:
    await source.record(10, 20, 30)
    assert source.seen() == [10, 20, 30]
    await source.recording.stop()
    await source.archive.truncate_recording(0, 64)
    source.recording = await source.archive.extend_recording(0, session_id=2, preallocate=False)
    source.stream = StreamBuilder(position=64, seed=9)
    await source.record(21, 31, 41)

    assert source.seen() == []
    assert source.follower.position == 64
    assert source.follower.notices == [
        "recording_id=0 was truncated to position=64; frames read from there to position=192 are no longer in it"
    ]
    assert source.seen() == [21, 31, 41]


async def test_a_recording_that_is_deleted_ends_the_following(source: Source) -> None:
    await source.record(10)
    await source.recording.stop()
    assert source.seen() == [10]
    await source.archive.purge_recording(0)

    assert source.seen() == []
    assert source.follower.is_ended
    assert source.follower.notices == ["recording_id=0 is DELETED: position=64 was its end"]


async def test_a_frame_that_is_half_written_is_waited_for(source: Source) -> None:
    await source.record(10, 500)
    handle = source.disk.open_file(DIRECTORY / "0-0.rec")
    whole = source.disk.pread(handle, 544, 64)
    write_fully(source.disk, handle, bytes(300), 64 + 244)

    assert source.seen() == [10]
    assert source.seen() == []
    write_fully(source.disk, handle, whole, 64)
    assert source.seen() == [500]


async def test_a_torn_write_is_waited_for_as_long_as_nothing_follows_it(source: Source) -> None:
    await source.record(10, 500)
    handle = source.disk.open_file(DIRECTORY / "0-0.rec")
    write_fully(source.disk, handle, b"\xff", 64 + 100)

    assert source.seen() == [10]
    assert [source.seen() for _ in range(3 * PATIENCE_LOOKS)] == [[]] * (3 * PATIENCE_LOOKS)
    assert (source.follower.ending().kind, source.follower.ending().damage) == ("open", None)


async def test_a_frame_that_stays_wrong_is_damage_if_one_follows_it(source: Source) -> None:
    await source.record(10, 500, 20)
    handle = source.disk.open_file(DIRECTORY / "0-0.rec")
    write_fully(source.disk, handle, b"\xff", 64 + 100)

    assert source.seen() == [10]
    assert [source.seen() for _ in range(PATIENCE_LOOKS - 2)] == [[]] * (PATIENCE_LOOKS - 2)
    with pytest.raises(CorruptionError, match=r"wrong checksum.*position=64"):
        source.look()


async def test_damage_before_the_end_of_a_stopped_recording_is_told_at_once(source: Source) -> None:
    await source.record(10, 500)
    await source.recording.stop()
    source.look()
    source.look()
    handle = source.disk.open_file(DIRECTORY / "0-0.rec")
    write_fully(source.disk, handle, b"\xff", 64 + 100)

    assert [len(message.payload) for message in source.follower.last_messages(5)] == [10]
    assert "wrong checksum" in (source.follower.ending().damage or "")
    with pytest.raises(CorruptionError, match="wrong checksum"):
        source.look()
