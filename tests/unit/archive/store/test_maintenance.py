"""Changing an archive directory on which nobody runs: what is asked, nothing else, and whole at any crash."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from tests.unit.archive.streams import (
    DIRECTORY,
    TERM_LENGTH,
    PowerLoss,
    PowerSupply,
    StreamBuilder,
    launch,
    small_config,
)
from trimaran.archive import ArchiveError, CorruptionError, RecordingState
from trimaran.archive.disk.file_system import write_fully
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.files.catalog import REDO_FILE_NAME, Catalog, read_catalog
from trimaran.archive.files.edit_journal import EDIT_FILE_NAME
from trimaran.archive.files.reader import FrameReader
from trimaran.archive.format.segment_names import parse_segment_file_name
from trimaran.archive.reading.verify import verify_recording
from trimaran.archive.store.maintenance import CAPACITY_LIMIT_BYTES, OfflineArchive
from trimaran.service_api.wire.checksum import ChecksumKind

LENGTHS = [0, 100, 5000, *range(1000, 1150)]
CONFIG = small_config(checksums=False)
KEPT = (0, 3)
"""The recordings that stay: one as it was made, and one of which the first segment is detached."""


async def make_archive() -> MemoryFileSystem:
    """Four recordings without checksums: 0 valid, 1 deleted, 2 invalid, 3 with a detached segment."""
    disk = MemoryFileSystem()
    archive = await launch(disk, config=CONFIG)
    for recording_id in range(4):
        recording = await archive.start_recording(
            stream_id=100, session_id=77, channel="c" * (10 + 60 * recording_id), source_identity="s", preallocate=False
        )
        stream = StreamBuilder(checksums=False, seed=recording_id)
        for length in LENGTHS:
            for chunk in stream.message(length):
                recording.append(chunk)
        await recording.stop()
    await archive.purge_recording(1)
    await archive.detach_segments(3, TERM_LENGTH)
    await archive.aclose()
    OfflineArchive(disk, DIRECTORY).set_state({2}, RecordingState.INVALID)
    return disk


def states(disk: MemoryFileSystem) -> dict[int, RecordingState]:
    found = [entry.descriptor for entry in read_catalog(disk, DIRECTORY).entries]
    return {int(descriptor.recording_id): descriptor.state for descriptor in found if descriptor is not None}


def recordings_with_files(disk: MemoryFileSystem) -> set[int]:
    parsed = [parse_segment_file_name(name) for name in disk.list_directory(DIRECTORY)]
    return {found[0] for found in parsed if found is not None}


def payloads(disk: MemoryFileSystem, recording_id: int) -> list[tuple[int, bytes]]:
    """What a recording says, frame by frame, whatever checksums it has."""
    entries = read_catalog(disk, DIRECTORY).entries
    (descriptor,) = (e.descriptor for e in entries if e.descriptor and e.descriptor.recording_id == recording_id)
    assert descriptor is not None
    reader = FrameReader(DIRECTORY, descriptor, file_system=disk)
    found = [(frame.position, frame.payload) for frame in reader]
    assert reader.position == descriptor.stop_position
    return found


def stamp(archive: OfflineArchive) -> None:
    for entry in archive.read().entries:
        assert entry.descriptor is not None
        if entry.descriptor.state is RecordingState.VALID and not entry.descriptor.checksummed:
            archive.write_checksums(entry, ChecksumKind.CRC32)


CHANGES: dict[str, Callable[[OfflineArchive], None]] = {
    "compact": OfflineArchive.compact,
    "mark invalid": lambda archive: archive.set_state({0}, RecordingState.INVALID),
    "capacity": lambda archive: archive.set_capacity(2 << 20),
    "checksum": stamp,
    "orphans": lambda archive: archive.remove_files(list(archive.superfluous_files())),
}


async def test_compact_removes_what_is_not_valid_and_its_files() -> None:
    disk = await make_archive()
    before = {number: payloads(disk, number) for number in KEPT}

    OfflineArchive(disk, DIRECTORY).compact()

    assert states(disk) == dict.fromkeys(KEPT, RecordingState.VALID)
    assert recordings_with_files(disk) == set(KEPT)
    assert {number: payloads(disk, number) for number in KEPT} == before
    assert read_catalog(disk, DIRECTORY).file_length == 1 << 20


async def test_the_ids_of_removed_recordings_are_not_given_anew() -> None:
    disk = await make_archive()
    archive = OfflineArchive(disk, DIRECTORY)
    archive.set_state({2, 3}, RecordingState.INVALID)

    archive.compact()

    assert read_catalog(disk, DIRECTORY).header.next_recording_id == 4
    running = await launch(disk, config=CONFIG)
    recording = await running.start_recording(stream_id=1, session_id=1, channel="c", source_identity="s")
    assert recording.recording_id == 4
    await running.aclose()


async def test_a_redo_record_of_the_old_file_does_not_come_back_in_the_new_one() -> None:
    """The old place of the second entry is where the new file ends."""
    disk = MemoryFileSystem()
    archive = await launch(disk, config=CONFIG)
    for _ in range(2):
        recording = await archive.start_recording(stream_id=1, session_id=1, channel="c", source_identity="s")
        await recording.stop()
    await archive.aclose()
    offline = OfflineArchive(disk, DIRECTORY)
    offline.set_state({0}, RecordingState.INVALID)
    running = await launch(disk, config=CONFIG)
    await (await running.extend_recording(1, session_id=2)).stop()
    await running.aclose()

    offline.compact()

    assert disk.file_length(disk.open_file(DIRECTORY / REDO_FILE_NAME)) == 0
    catalog = Catalog(disk, DIRECTORY, sync_level=1)
    catalog.open()
    assert [descriptor.recording_id for descriptor in catalog.descriptors()] == [1]
    catalog.close()


async def test_compact_refuses_a_catalog_in_which_a_valid_entry_is_wrong() -> None:
    disk = await make_archive()
    entry = read_catalog(disk, DIRECTORY).entries[0]
    handle = disk.open_file(DIRECTORY / "archive.catalog")
    write_fully(disk, handle, b"\x07", entry.offset + 96)  # the length of a term
    before = disk.pread(handle, 4096, 0)

    with pytest.raises(CorruptionError, match=r"nothing.*changed"):
        OfflineArchive(disk, DIRECTORY).compact()

    assert disk.pread(handle, 4096, 0) == before
    assert recordings_with_files(disk) == {0, 2, 3}


async def test_a_wrong_entry_that_is_marked_invalid_can_be_compacted_away() -> None:
    disk = await make_archive()
    entry = read_catalog(disk, DIRECTORY).entries[0]
    handle = disk.open_file(DIRECTORY / "archive.catalog")
    write_fully(disk, handle, b"\x07", entry.offset + 96)
    archive = OfflineArchive(disk, DIRECTORY)
    archive.settle()

    archive.set_state({0}, RecordingState.INVALID)
    archive.compact()

    assert states(disk) == {3: RecordingState.VALID}
    await (await launch(disk, config=CONFIG)).aclose()


async def test_checksums_are_right_and_nothing_else_has_changed() -> None:
    disk = await make_archive()
    before = {number: payloads(disk, number) for number in KEPT}

    stamp(OfflineArchive(disk, DIRECTORY))

    for entry in read_catalog(disk, DIRECTORY).entries:
        assert entry.descriptor is not None
        assert entry.descriptor.checksummed == (entry.descriptor.recording_id in KEPT)
        assert entry.problem is None
        verdict = verify_recording(disk, DIRECTORY, entry)
        assert verdict.problems == []
    assert {number: payloads(disk, number) for number in KEPT} == before
    running = await launch(disk, config=small_config(checksums=True))
    recording = await running.extend_recording(0, session_id=5, preallocate=False)
    assert recording.append_position == running.descriptor(3).stop_position
    await running.aclose()


async def test_checksums_are_not_written_into_a_segment_with_a_wrong_frame() -> None:
    disk = await make_archive()
    handle = disk.open_file(DIRECTORY / f"0-{TERM_LENGTH}.rec")
    write_fully(disk, handle, b"\x63", 16)  # the stream id of the segment's first frame
    before = disk.pread(handle, TERM_LENGTH, 0)
    entry = read_catalog(disk, DIRECTORY).entries[0]

    with pytest.raises(CorruptionError, match=rf"stream id.*recording_id=0 position={TERM_LENGTH}"):
        OfflineArchive(disk, DIRECTORY).write_checksums(entry, ChecksumKind.CRC32)

    assert disk.pread(disk.open_file(DIRECTORY / f"0-{TERM_LENGTH}.rec"), TERM_LENGTH, 0) == before
    after = read_catalog(disk, DIRECTORY).entries[0].descriptor
    assert after is not None
    assert not after.checksummed
    assert not [name for name in disk.list_directory(DIRECTORY) if name.endswith((".next", ".new"))]


async def test_checksums_are_not_written_into_a_recording_of_which_the_end_is_not_known() -> None:
    disk = await make_archive()
    running = await launch(disk, config=CONFIG)
    await running.extend_recording(0, session_id=5, preallocate=False)
    await running.abandon()

    with pytest.raises(ArchiveError, match="not stopped"):
        OfflineArchive(disk, DIRECTORY).write_checksums(read_catalog(disk, DIRECTORY).entries[0], ChecksumKind.CRC32)


async def test_superfluous_files_are_those_of_no_recording() -> None:
    disk = await make_archive()
    for name in ("0-0.rec.next", "1-0.rec", "9-0.rec", f"0-{40 * TERM_LENGTH}.rec", "notes.txt", "0-0.rec.bak"):
        disk.close_file(disk.open_file(DIRECTORY / name, create=True))

    found = {file.name: file.reason for file in OfflineArchive(disk, DIRECTORY).superfluous_files()}

    stop_position = payloads(disk, 0)[-1][0] + 1152 + 32
    assert found == {
        "0-0.rec.next": "never became a segment",
        f"0-{40 * TERM_LENGTH}.rec": f"after the stop position, {stop_position}",
        "1-0.rec": "its recording is deleted",
        "3-0.rec": f"detached: before the start position, {TERM_LENGTH}",
        "9-0.rec": "its recording is not in the catalog",
    }


async def test_nothing_is_changed_while_an_edit_of_segments_is_half_done() -> None:
    disk = await make_archive()
    disk.close_file(disk.open_file(DIRECTORY / EDIT_FILE_NAME, create=True))

    with pytest.raises(ArchiveError, match="archive once"):
        OfflineArchive(disk, DIRECTORY).settle()


async def test_the_catalog_grows_and_does_not_shrink() -> None:
    disk = await make_archive()
    archive, before = OfflineArchive(disk, DIRECTORY), read_catalog(disk, DIRECTORY).entries

    archive.set_capacity(3 << 20)

    assert read_catalog(disk, DIRECTORY).file_length == 3 << 20
    assert read_catalog(disk, DIRECTORY).entries == before
    for length in (1 << 20, CAPACITY_LIMIT_BYTES + 1):
        with pytest.raises(ArchiveError, match=f"expected={3 << 20} to {CAPACITY_LIMIT_BYTES}"):
            archive.set_capacity(length)


def _is_below(random: Random, share: float) -> bool:
    return random.random() < share


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("is_power_loss", [False, True])
async def test_a_crash_at_any_operation_leaves_the_old_state_or_the_new_one(name: str, is_power_loss: bool) -> None:
    """And doing it again completes it. Every recording that stays says what it said."""
    random, change = Random(name), CHANGES[name]
    whole = await make_archive()
    before, contents = states(whole), {number: payloads(whole, number) for number in KEPT}
    invalid = payloads(whole, 2)
    counter = PowerSupply()
    whole.on_operation = counter
    change(OfflineArchive(whole, DIRECTORY))
    after, files = states(whole), recordings_with_files(whole)
    step = max(1, counter.operation_count // 25)

    for operation in range(0, counter.operation_count, step):
        disk, power = await make_archive(), PowerSupply()
        disk.on_operation = power
        power.operations_left = operation
        with contextlib.suppress(PowerLoss):
            change(OfflineArchive(disk, DIRECTORY))
        power.operations_left = -1
        kept_count = random.randrange(5)
        disk.crash(partial(_is_below, random, kept_count / 4)) if is_power_loss else disk.crash_process()

        assert states(disk) in (before, after)
        assert {number: payloads(disk, number) for number in KEPT} == contents
        if states(disk) == before:
            assert payloads(disk, 2) == invalid  # its files go only once the catalog has given it up
        again = OfflineArchive(disk, DIRECTORY)
        again.settle()
        change(again)
        if name == "compact":
            CHANGES["orphans"](again)  # what the crash left of the files of those that are gone
            assert recordings_with_files(disk) == files
        assert states(disk) == after
        assert {number: payloads(disk, number) for number in KEPT} == contents
        await (await launch(disk, config=CONFIG, is_power_loss_possible=is_power_loss)).aclose()
