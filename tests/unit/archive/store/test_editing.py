"""Truncate, purge, detach, attach and migrate: what each does, what it refuses, and that a crash leaves it whole."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Awaitable, Callable, Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.archive.streams import (
    DIRECTORY,
    TERM_LENGTH,
    PowerLoss,
    PowerSupply,
    StreamBuilder,
    failing,
    launch,
    read_all,
    small_config,
)
from trimaran.archive import Archive, ArchiveError, ArchiveErrorCode, CorruptionError
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.files.edit_journal import EDIT_FILE_NAME, Edit, EditKind, decode_edit
from trimaran.archive.reading.verify import verify_recording

END = 3 * TERM_LENGTH + 4096


async def record(archive: Archive, *, begin: int = 0, end: int = END, seed: int = 0, is_active: bool = False) -> bytes:
    """Record [begin, end) of a stream of random frames in segments of one term."""
    recording = await archive.start_recording(
        stream_id=100, session_id=1, channel="c", source_identity="s", start_position=begin, preallocate=False
    )
    log = b""
    for chunk in StreamBuilder(position=begin, seed=seed).fill_to(end):
        recording.append(chunk)
        log += chunk
    recording.flush()
    await recording.wait_recorded(end)
    if not is_active:
        await recording.stop()
    return log


def segment_names(disk: MemoryFileSystem) -> list[str]:
    return [name for name in disk.list_directory(DIRECTORY) if name.endswith(".rec")]


def problems(disk: MemoryFileSystem) -> list[str]:
    verdicts = [verify_recording(disk, DIRECTORY, entry) for entry in read_catalog(disk, DIRECTORY).entries]
    return [problem for verdict in verdicts for problem in verdict.problems]


@contextlib.contextmanager
def refused(code: ArchiveErrorCode, match: str) -> Iterator[None]:
    with pytest.raises(ArchiveError, match=match) as caught:
        yield
    assert caught.value.code is code
    assert caught.value.recording_id is not None


# --- what each does


async def test_truncation_says_how_many_segments_it_removed() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    log = await record(archive)

    assert await archive.truncate_recording(0, TERM_LENGTH) == 2
    assert await archive.truncate_recording(0, TERM_LENGTH) == 0

    assert read_all(archive) == log[:TERM_LENGTH]
    assert segment_names(disk) == ["0-0.rec", "0-65536.rec"]
    assert problems(disk) == []
    await archive.aclose()


async def test_detached_segments_stay_through_a_restart_until_they_are_attached_or_deleted() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    log = await record(archive)

    await archive.detach_segments(0, 2 * TERM_LENGTH)
    assert read_all(archive) == log[2 * TERM_LENGTH :]
    await archive.aclose()
    archive = await launch(disk)
    assert len(segment_names(disk)) == 4
    assert problems(disk) == []
    assert await archive.attach_segments(0) == 2
    assert read_all(archive) == log
    await archive.detach_segments(0, TERM_LENGTH)
    assert await archive.delete_detached_segments(0) == 1
    assert await archive.delete_detached_segments(0) == 0
    assert await archive.attach_segments(0) == 0
    await archive.aclose()

    archive = await launch(disk)
    assert read_all(archive) == log[TERM_LENGTH:]
    await archive.aclose()


async def test_a_recording_that_began_inside_a_term_is_attached_from_there() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    begin = TERM_LENGTH + 4096
    log = await record(archive, begin=begin, is_active=True)

    await archive.detach_segments(0, 3 * TERM_LENGTH)

    assert await archive.attach_segments(0) == 2
    assert archive.descriptor(0).start_position == begin
    assert read_all(archive) == log
    await archive.aclose()


async def test_a_purge_takes_what_was_detached_with_it() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    await record(archive)
    await archive.detach_segments(0, TERM_LENGTH)

    await archive.purge_segments(0, 2 * TERM_LENGTH)

    assert segment_names(disk) == ["0-131072.rec", "0-196608.rec"]
    await archive.aclose()


@pytest.mark.parametrize("is_active", [False, True])
async def test_segments_migrate_to_the_front(is_active: bool) -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    first = await record(archive, end=2 * TERM_LENGTH)
    second = await record(archive, begin=2 * TERM_LENGTH, seed=1, is_active=is_active)

    assert await archive.migrate_segments(0, 1) == 2

    assert read_all(archive, 1) == first + second
    src = archive.descriptor(0)
    assert (src.start_position, src.stop_position) == (0, 0)
    assert segment_names(disk) == ["1-0.rec", "1-131072.rec", "1-196608.rec", "1-65536.rec"]
    assert await archive.migrate_segments(0, 1) == 0
    await archive.aclose()
    archive = await launch(disk)
    assert read_all(archive, 1) == first + second
    assert problems(disk) == []
    recording = await archive.extend_recording(0, session_id=1, preallocate=False)
    recording.append(first[:1408])
    await recording.stop()
    assert read_all(archive, 0) == first[:1408]
    await archive.aclose()


async def test_segments_migrate_to_the_end() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    first = await record(archive, end=2 * TERM_LENGTH)
    second = await record(archive, begin=2 * TERM_LENGTH, seed=1)

    assert await archive.migrate_segments(1, 0) == 2

    assert read_all(archive, 0) == first + second
    src = archive.descriptor(1)
    assert (src.start_position, src.stop_position) == (2 * TERM_LENGTH, 2 * TERM_LENGTH)
    assert [name for name in segment_names(disk) if name.startswith("1-")] == []
    recording = await archive.extend_recording(0, session_id=1, preallocate=False)
    more = StreamBuilder(position=END).message(100)[0]
    recording.append(more)
    await archive.aclose()
    archive = await launch(disk)
    assert read_all(archive, 0) == first + second + more
    assert problems(disk) == []
    await archive.aclose()


async def test_a_channel_is_renamed_shorter_and_longer_and_found_by_its_new_name() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    logs = [await record(archive, end=4096, seed=seed) for seed in range(3)]

    for channel in ("aeron:udp?endpoint=localhost:" + "9" * 200, "", "d"):
        await archive.update_channel(1, channel)
        disk.crash()
        archive = await launch(disk)
        assert [d.original_channel for d in archive.descriptors()] == ["c", channel, "c"]
        assert [read_all(archive, recording_id) for recording_id in range(3)] == logs

    await record(archive, end=4096)
    assert [d.recording_id for d in archive.descriptors(channel_fragment="d")] == [1]
    await archive.aclose()


async def test_recordings_are_found_by_range_channel_and_stream_and_the_last_that_matches() -> None:
    archive = await launch()
    for channel, stream_id, session_id in [("ab", 1, 5), ("bc", 2, 5), ("ab", 1, 6), ("xab", 1, 5), ("ab", 1, 5)]:
        recording = await archive.start_recording(
            stream_id=stream_id, session_id=session_id, channel=channel, source_identity="s", preallocate=False
        )
        await recording.stop()
    await archive.purge_recording(4)

    def ids(**query: object) -> list[int]:
        return [d.recording_id for d in archive.descriptors(**query)]  # type: ignore[arg-type]  # any of its options

    assert ids() == [0, 1, 2, 3]
    assert ids(from_recording_id=1, limit=2) == [1, 2]
    assert ids(channel_fragment="ab", stream_id=1) == [0, 2, 3]
    assert ids(stream_id=2) == [1]
    assert ids(channel_fragment="c", stream_id=1) == []
    last = archive.find_last_matching
    assert last(min_recording_id=0, channel_fragment="ab", stream_id=1, session_id=5) == 3
    assert last(min_recording_id=0, channel_fragment="ab", stream_id=1, session_id=6) == 2
    assert last(min_recording_id=3, channel_fragment="ab", stream_id=1, session_id=6) is None
    await archive.aclose()


async def test_stopping_says_whether_there_was_anything_to_stop() -> None:
    archive = await launch()
    await record(archive, is_active=True)

    assert await archive.stop_recording(0) is True
    assert await archive.stop_recording(0) is False
    with refused(ArchiveErrorCode.UNKNOWN_RECORDING, "unknown recording"):
        await archive.stop_recording(7)
    assert archive.descriptor(0).stop_position == END
    await archive.aclose()


# --- what each refuses


async def test_an_active_recording_is_not_cut_purged_or_moved() -> None:
    archive = await launch()
    await record(archive, is_active=True)
    await record(archive, end=END)

    for attempt in (
        archive.truncate_recording(0, 0),
        archive.purge_recording(0),
        archive.migrate_segments(0, 1),
        archive.extend_recording(0, session_id=1),
    ):
        with refused(ArchiveErrorCode.ACTIVE_RECORDING, "recording is active: stop it first"):
            await attempt
    await archive.aclose()


EDITS: dict[str, Callable[[Archive], Awaitable[object]]] = {
    "truncate": lambda archive: archive.truncate_recording(0, TERM_LENGTH),
    "purge": lambda archive: archive.purge_segments(0, 2 * TERM_LENGTH),
    "detach": lambda archive: archive.detach_segments(0, 2 * TERM_LENGTH),
    "purge all": lambda archive: archive.purge_recording(0),
    "migrate": lambda archive: archive.migrate_segments(0, 1),
}


@pytest.mark.parametrize("name", EDITS)
async def test_what_is_being_read_is_left_until_it_was(name: str) -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    log = await record(archive, end=3 * TERM_LENGTH)
    await record(archive, begin=3 * TERM_LENGTH)

    with archive.reading(0, lambda: TERM_LENGTH + 32):
        with refused(ArchiveErrorCode.GENERIC, rf"cannot {name[:5]}.*being read: readers=1 lowest_position=65568"):
            await EDITS[name](archive)
        assert read_all(archive) == log
    await EDITS[name](archive)
    await archive.aclose()


async def test_a_reader_that_has_gone_on_holds_nothing_back() -> None:
    archive = await launch()
    await record(archive)

    with archive.reading(0, lambda: 2 * TERM_LENGTH):
        await archive.detach_segments(0, TERM_LENGTH)
        assert await archive.purge_segments(0, 2 * TERM_LENGTH) == 2
    await archive.aclose()


@pytest.mark.parametrize("position", [0, 32, TERM_LENGTH - 32, TERM_LENGTH + 32, 4 * TERM_LENGTH, -TERM_LENGTH])
async def test_a_detach_names_the_positions_that_it_takes(position: int) -> None:
    archive = await launch()
    await record(archive)

    with refused(ArchiveErrorCode.INVALID_POSITION, r"segments after the first begin at: 65536 to 196608 in steps of"):
        await archive.detach_segments(0, position)
    await archive.aclose()


async def test_recordings_that_do_not_join_are_not_joined() -> None:
    archive = await launch()
    await record(archive, end=2 * TERM_LENGTH)
    await record(archive, begin=3 * TERM_LENGTH, end=4 * TERM_LENGTH)
    await record(archive, begin=2 * TERM_LENGTH, end=2 * TERM_LENGTH + 4096)
    await record(archive, begin=2 * TERM_LENGTH + 4096)

    for src, dst in ((0, 1), (1, 0), (2, 3), (3, 2)):
        with refused(ArchiveErrorCode.INVALID_POSITION, "do not join at a segment boundary"):
            await archive.migrate_segments(src, dst)
    with refused(ArchiveErrorCode.GENERIC, "source and destination are the same"):
        await archive.migrate_segments(0, 0)
    await archive.aclose()


async def test_recordings_of_another_layout_are_not_joined() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    await record(archive, end=2 * TERM_LENGTH)
    await archive.aclose()
    archive = await launch(disk, config=small_config(mtu_length_bytes=4096))
    await record(archive, begin=2 * TERM_LENGTH)

    with refused(ArchiveErrorCode.GENERIC, "mtu_length=1408 expected=4096"):
        await archive.migrate_segments(0, 1)
    await archive.aclose()


async def test_a_detached_segment_of_the_destination_is_not_overwritten() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    first = await record(archive, end=2 * TERM_LENGTH)
    second = await record(archive, seed=1)
    await archive.detach_segments(1, 2 * TERM_LENGTH)

    with refused(ArchiveErrorCode.GENERIC, r"in the way: file=1-0\.rec; delete the detached segments first"):
        await archive.migrate_segments(0, 1)
    assert (read_all(archive, 0), read_all(archive, 1)) == (first, second[2 * TERM_LENGTH :])

    await archive.delete_detached_segments(1)
    assert await archive.migrate_segments(0, 1) == 2
    assert read_all(archive, 1) == first + second[2 * TERM_LENGTH :]
    await archive.aclose()


@pytest.mark.parametrize(
    ("offset", "what"),
    [
        (40, "wrong checksum"),
        (9, "wrong term offset"),
        (20, "wrong term id"),
        (16, "wrong stream id"),
        (0, "invalid frame length"),
    ],
)
async def test_a_damaged_segment_is_not_attached(offset: int, what: str) -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    log = await record(archive)
    await archive.detach_segments(0, 2 * TERM_LENGTH)
    disk.damage(DIRECTORY / "0-0.rec", 1408 * 10 + offset, b"\xee")

    with pytest.raises(CorruptionError, match=rf"file=0-0\.rec {what}.*position=14080"):
        await archive.attach_segments(0)
    assert read_all(archive) == log[2 * TERM_LENGTH :]

    disk.remove(DIRECTORY / "0-0.rec")
    assert await archive.attach_segments(0) == 1
    assert read_all(archive) == log[TERM_LENGTH:]
    await archive.aclose()


async def test_a_segment_cut_short_is_not_attached() -> None:
    disk = MemoryFileSystem()
    archive = await launch(disk)
    await record(archive)
    await archive.detach_segments(0, TERM_LENGTH)
    handle = disk.open_file(DIRECTORY / "0-0.rec")
    disk.set_length(handle, TERM_LENGTH - 32)

    with pytest.raises(CorruptionError, match=r"file=0-0\.rec length=65504 expected=65536"):
        await archive.attach_segments(0)
    await archive.aclose()


# --- crashes


def test_an_edit_that_is_not_whole_was_not_begun() -> None:
    edit = Edit(kind=EditKind.MIGRATE, recording_id=1, position=2, stop_position=3, dst_recording_id=4, timestamp_ms=5)
    data = edit.encode()

    assert decode_edit(data) == edit
    assert [decode_edit(data[:length]) for length in range(len(data))] == [None] * len(data)
    flipped = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    assert [decode_edit(bad) for bad in flipped] == [None] * len(data)


State = tuple[tuple[int, int | None, bytes], ...]


def state_of(archive: Archive) -> State:
    """Everything that is recorded: the range of each recording, and its bytes."""
    return tuple((d.start_position, d.stop_position, read_all(archive, d.recording_id)) for d in archive.descriptors())


async def two_recordings(disk: MemoryFileSystem) -> Archive:
    """One of three segments, of which the first is detached, and one that goes on from there."""
    archive = await launch(disk)
    await record(archive, end=3 * TERM_LENGTH)
    await record(archive, begin=3 * TERM_LENGTH, end=5 * TERM_LENGTH + 4096, seed=1)
    await archive.detach_segments(0, TERM_LENGTH)
    return archive


CRASHED_EDITS: dict[str, Callable[[Archive], Awaitable[object]]] = {
    "truncate": lambda archive: archive.truncate_recording(1, 3 * TERM_LENGTH + 1408),
    "truncate to the start": lambda archive: archive.truncate_recording(1, 3 * TERM_LENGTH),
    "purge": lambda archive: archive.purge_segments(1, 5 * TERM_LENGTH),
    "purge all": lambda archive: archive.purge_recording(1),
    "detach": lambda archive: archive.detach_segments(1, 4 * TERM_LENGTH),
    "attach": lambda archive: archive.attach_segments(0),
    "delete detached": lambda archive: archive.delete_detached_segments(0),
    "migrate to the front": lambda archive: archive.migrate_segments(0, 1),
    "migrate to the end": lambda archive: archive.migrate_segments(1, 0),
    "rename": lambda archive: archive.update_channel(0, "x" * 300),
}


@pytest.mark.parametrize("name", CRASHED_EDITS)
@settings(max_examples=25)
@given(share=st.sampled_from((0.0, 0.5, 1.0)), is_power_loss=st.booleans(), seed=st.integers(0, 1 << 32))
async def test_a_crash_at_any_operation_leaves_an_edit_done_or_not_begun(
    name: str, share: float, is_power_loss: bool, seed: int
) -> None:
    random = Random(seed)
    disk, power = MemoryFileSystem(), PowerSupply()
    archive = await two_recordings(disk)
    before = state_of(archive)
    disk.on_operation = power
    power.operations_left = random.randrange(24)
    is_done = False

    with contextlib.suppress(PowerLoss):
        await CRASHED_EDITS[name](archive)
        is_done = True
    if not is_done and random.random() < 0.5:
        # The next start is cut short as well.
        crash(disk, random, share, is_power_loss)
        power.operations_left = random.randrange(12)
        with contextlib.suppress(PowerLoss):
            await launch(disk, is_power_loss_possible=is_power_loss)
    power.operations_left = -1
    crash(disk, random, share, is_power_loss)
    after_crash = await launch(disk, is_power_loss_possible=is_power_loss)

    found = state_of(after_crash)
    expected = await result_of(name)
    assert found == expected if is_done else found in (before, expected)
    assert problems(disk) == []
    assert EDIT_FILE_NAME not in disk.list_directory(DIRECTORY)
    left = set(segment_names(disk))
    assert left in (await segments_of(None), await segments_of(name))
    await after_crash.aclose()


def crash(disk: MemoryFileSystem, random: Random, share: float, is_power_loss: bool) -> None:
    if is_power_loss:
        disk.crash(lambda: random.random() < share)
    else:
        disk.crash_process()


_results: dict[str | None, tuple[State, set[str]]] = {}


async def _undisturbed(name: str | None) -> tuple[State, set[str]]:
    if name not in _results:
        disk = MemoryFileSystem()
        archive = await two_recordings(disk)
        if name is not None:
            await CRASHED_EDITS[name](archive)
        _results[name] = state_of(archive), set(segment_names(disk))
        await archive.aclose()
    return _results[name]


async def result_of(name: str) -> State:
    return (await _undisturbed(name))[0]


async def segments_of(name: str | None) -> set[str]:
    return (await _undisturbed(name))[1]


@pytest.mark.parametrize("operation", ["rename", "remove", "pwrite", "sync_directory"])
@pytest.mark.parametrize("name", CRASHED_EDITS)
async def test_an_edit_that_the_disk_refused_half_way_is_completed_before_the_next_change(
    name: str, operation: str
) -> None:
    disk = MemoryFileSystem()
    archive = await two_recordings(disk)
    before = state_of(archive)

    for skipped in range(6):
        disk.on_operation = failing_after(skipped, operation)
        with contextlib.suppress(ArchiveError):
            await CRASHED_EDITS[name](archive)
        disk.on_operation = None
        last = await archive.start_recording(
            stream_id=9, session_id=1, channel="c", source_identity="s", preallocate=False
        )
        await last.stop()
        await archive.purge_recording(last.recording_id)
        assert state_of(archive) in (before, await result_of(name))
    assert problems(disk) == []
    await archive.aclose()


def failing_after(count: int, name: str) -> Callable[[str, object, int], None]:
    """Fail the operation of this name that comes after `count` others."""
    fail, left = failing(OSError(errno.EIO, "input/output error"), name), [count]

    def on_operation(operation: str, path: object, length: int) -> None:
        if operation == name:
            left[0] -= 1
            if left[0] < 0:
                fail(operation, path, length)  # type: ignore[arg-type]  # what a disk gives

    return on_operation


async def test_reads_go_on_while_segments_are_moved() -> None:
    """A read between the steps gets what is recorded or a refusal, never a missing file."""
    disk = MemoryFileSystem()
    archive = await two_recordings(disk)
    everything = read_all(archive, 0) + read_all(archive, 1)
    reads = [0]

    def read_meanwhile(operation: str, path: object, length: int) -> None:
        if operation in ("open", "pread"):
            return
        for recording_id in (0, 1):
            with contextlib.suppress(ArchiveError):
                data = archive.read(recording_id, 2 * TERM_LENGTH, 1408, stop_position=3 * TERM_LENGTH)
                assert data == everything[TERM_LENGTH : TERM_LENGTH + 1408]
                reads[0] += 1

    disk.on_operation = read_meanwhile
    await archive.migrate_segments(0, 1)
    disk.on_operation = None

    assert archive.damage.places == []
    assert reads[0] > 5
    assert read_all(archive, 1) == everything
    await archive.aclose()
