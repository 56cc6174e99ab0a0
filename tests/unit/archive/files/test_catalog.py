"""The catalog: Aeron's format, durable, and whole after a crash at any moment."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.archive.streams import DIRECTORY, PowerLoss, PowerSupply
from trimaran.archive import ArchiveError, CorruptionError, RecordingDescriptor, RecordingState
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.files.catalog import REDO_FILE_NAME, Catalog, read_catalog
from trimaran.archive.format.catalog import CATALOG_FILE_NAME, encode_catalog, encode_entry, parse_catalog
from trimaran.service_api.types import RecordingId


def make_descriptor(recording_id: int, **changes: object) -> RecordingDescriptor:
    base = RecordingDescriptor(
        recording_id=RecordingId(recording_id),
        start_timestamp_ms=1_700_000_000_000,
        start_position=0,
        initial_term_id=0,
        segment_file_length=131072,
        term_buffer_length=65536,
        mtu_length=1408,
        session_id=42,
        stream_id=100,
        stripped_channel="trimaran:log",
        original_channel="trimaran:log",
        source_identity="member-0",
        checksummed=True,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # fields of the descriptor


def open_catalog(disk: MemoryFileSystem, sync_level: int = 1) -> Catalog:
    disk.make_directory(DIRECTORY)
    catalog = Catalog(disk, DIRECTORY, sync_level=sync_level)
    catalog.open()
    return catalog


def test_new_catalog_is_laid_out_as_aerons() -> None:
    disk = MemoryFileSystem()

    open_catalog(disk)

    raw = disk.content(DIRECTORY / CATALOG_FILE_NAME)
    assert len(raw) == 1 << 20
    assert raw[:32] == struct.pack("<iiqi12x", 0x0003_0100, 32, 0, 64)
    assert not any(raw[32:])


def test_entries_lie_back_to_back_and_the_next_id_is_kept() -> None:
    disk = MemoryFileSystem()
    catalog = open_catalog(disk)

    catalog.add(make_descriptor(0))
    catalog.add(make_descriptor(1, original_channel="aeron:ipc?alias=" + "x" * 100))
    catalog.add(make_descriptor(2))

    content = read_catalog(disk, DIRECTORY)
    assert [entry.descriptor for entry in content.entries] == catalog.descriptors()
    assert content.header.next_recording_id == 3
    offset = 32
    for entry in content.entries:
        assert entry.offset == offset
        assert entry.length % 64 == 0
        offset += entry.length


def test_update_changes_one_entry_in_place() -> None:
    disk = MemoryFileSystem()
    catalog = open_catalog(disk)
    for recording_id in range(3):
        catalog.add(make_descriptor(recording_id))

    stopped = make_descriptor(1, stop_position=4096, stop_timestamp_ms=1_700_000_000_001)
    catalog.update(stopped)

    reopened = open_catalog(disk)
    assert reopened.descriptors() == [make_descriptor(0), stopped, make_descriptor(2)]
    with pytest.raises(ArchiveError, match="length"):
        catalog.update(replace(stopped, original_channel="x" * 200))


def test_catalog_grows_by_half_when_full() -> None:
    disk = MemoryFileSystem()
    catalog = open_catalog(disk, sync_level=0)
    long_channel = "aeron:udp?alias=" + "x" * 4000

    for recording_id in range(150):
        catalog.add(make_descriptor(recording_id, original_channel=long_channel, stripped_channel=long_channel))

    assert len(disk.content(DIRECTORY / CATALOG_FILE_NAME)) == (1 << 20) * 3 // 2
    assert len(open_catalog(disk).descriptors()) == 150


def test_unknown_recording_is_an_error_with_its_id() -> None:
    catalog = open_catalog(MemoryFileSystem())

    with pytest.raises(ArchiveError, match="UNKNOWN_RECORDING recording_id=5"):
        catalog.get(5)


def test_lost_catalog_beside_segments_is_corruption_and_not_a_fresh_start() -> None:
    disk = MemoryFileSystem()
    disk.make_directory(DIRECTORY)
    disk.open_file(DIRECTORY / "0-0.rec", create=True)

    with pytest.raises(CorruptionError, match="segment files"):
        open_catalog(disk)


@pytest.mark.parametrize("offset", [40, 64 + 16, 64 + 40, 64 + 60, 64 + 70])
def test_damaged_entry_is_corruption_that_names_it(offset: int) -> None:
    disk = MemoryFileSystem()
    catalog = open_catalog(disk)
    catalog.add(make_descriptor(0))
    catalog.add(make_descriptor(1))  # the redo record is that of this one
    raw = disk.content(DIRECTORY / CATALOG_FILE_NAME)

    disk.damage(DIRECTORY / CATALOG_FILE_NAME, offset, bytes([raw[offset] ^ 0x10]))

    with pytest.raises(CorruptionError, match="offset=32"):
        open_catalog(disk)


def test_checksum_left_stale_by_aerons_repair_is_accepted_and_renewed() -> None:
    """Source: samples set A README §5, the quirk."""
    disk = MemoryFileSystem()
    catalog = open_catalog(disk)
    catalog.add(make_descriptor(0))
    stop = struct.pack("<q", 4096)

    disk.damage(DIRECTORY / CATALOG_FILE_NAME, 32 + 80, stop)
    reopened = open_catalog(disk)

    assert read_catalog(disk, DIRECTORY).entries[0].stale_checksum
    assert reopened.get(0).stop_position == 4096
    reopened.update(replace(reopened.get(0), stop_timestamp_ms=1))
    assert not read_catalog(disk, DIRECTORY).entries[0].stale_checksum


@settings(max_examples=300)
@given(operations=st.integers(0, 9), seed=st.integers(0, 1000), count=st.integers(2, 4), updates=st.booleans())
def test_after_power_loss_at_any_moment_the_catalog_is_as_before_or_as_after(
    operations: int, seed: int, count: int, updates: bool
) -> None:
    """The third entry lies across two sectors, each of which may survive without the other."""
    disk, power = MemoryFileSystem(), PowerSupply()
    disk.on_operation = power
    catalog = open_catalog(disk)
    for recording_id in range(count):
        catalog.add(make_descriptor(recording_id))
    before = catalog.descriptors()
    changed = make_descriptor(count - 1, stop_position=64, session_id=9) if updates else make_descriptor(count)
    after = [*before[: changed.recording_id], changed]

    power.operations_left = operations
    finished = False
    try:
        (catalog.update if updates else catalog.add)(changed)
        finished = True
    except PowerLoss:
        pass
    power.operations_left = -1
    generator = random.Random(seed)
    disk.crash(lambda: generator.random() < 0.5)

    found = open_catalog(disk).descriptors()
    assert found == after if finished else found in (before, after)


@given(noise=st.binary(min_size=32, max_size=2000))
def test_arbitrary_bytes_never_crash_the_parser(noise: bytes) -> None:
    header = struct.pack("<iiqi12x", 0x0003_0100, 32, 0, 64)

    content = parse_catalog(header + noise + bytes(256))

    assert all(entry.problem or entry.descriptor for entry in content.entries)


def test_deleted_entries_stay_in_place() -> None:
    disk = MemoryFileSystem()
    catalog = open_catalog(disk)
    catalog.add(make_descriptor(0))
    catalog.update(make_descriptor(0, state=RecordingState.DELETED))
    catalog.add(make_descriptor(1))

    assert [d.state.name for d in open_catalog(disk).descriptors()] == ["DELETED", "VALID"]


def test_entry_with_a_channel_that_is_not_ascii_is_refused() -> None:
    with pytest.raises(ArchiveError, match="not ASCII"):
        encode_entry(make_descriptor(0, original_channel="trimaran:lög"))


def test_catalog_of_another_major_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptionError, match="major=4 expected=3"):
        parse_catalog(struct.pack("<iiqi12x", 0x0004_0000, 32, 0, 64))


def test_redo_record_that_is_torn_changes_nothing() -> None:
    disk = MemoryFileSystem()
    catalog = open_catalog(disk)
    catalog.add(make_descriptor(0))
    disk.damage(DIRECTORY / REDO_FILE_NAME, 50, b"\xff\xff")

    assert open_catalog(disk).descriptors() == [make_descriptor(0)]


@settings(max_examples=100)
@given(seed=st.integers(0, 1 << 32))
def test_catalog_survives_crashes_of_both_kinds_at_any_operation(seed: int) -> None:
    """While it is made, changed and grown; what was read at a start counts as acknowledged from there on."""
    generator = random.Random(seed)
    disk, power = MemoryFileSystem(), PowerSupply()
    disk.on_operation = power
    acknowledged: list[RecordingDescriptor] = []
    attempted: list[RecordingDescriptor] = []
    for _ in range(8):
        power.operations_left = generator.choice((-1, generator.randrange(50)))
        try:
            catalog = open_catalog(disk, sync_level=generator.choice((1, 2)))
            found = catalog.descriptors()
            assert found in (acknowledged, attempted)
            acknowledged = attempted = found
            for _ in range(generator.randrange(12)):
                next_id = len(acknowledged)
                if not acknowledged or generator.random() < 0.5:
                    changed = make_descriptor(next_id, original_channel="x" * generator.choice((20, 300, 200_000)))
                else:
                    last = generator.choice(acknowledged)
                    changed = replace(last, stop_position=generator.randrange(100) * 32, session_id=next_id)
                attempted = [*acknowledged]
                attempted[changed.recording_id : changed.recording_id + 1] = [changed]
                (catalog.update if changed.recording_id < next_id else catalog.add)(changed)
                acknowledged = attempted
        except PowerLoss:
            pass
        if generator.random() < 0.3:
            disk.crash_process()
        else:
            share = generator.choice((0.0, 0.3, 0.7, 1.0))
            disk.crash(lambda share=share: generator.random() < share)  # type: ignore[misc]  # a default binds it
    power.operations_left = -1

    assert open_catalog(disk).descriptors() in (acknowledged, attempted)


def test_an_entry_that_became_shorter_leaves_no_old_place_to_write_again() -> None:
    """What the redo record names would be the end of the new file: the last entry would come back a second time."""
    disk = MemoryFileSystem()
    catalog = open_catalog(disk)
    short = {"stripped_channel": "", "original_channel": "", "source_identity": ""}
    catalog.add(make_descriptor(0, **short | {"original_channel": "x" * 100}))
    catalog.add(make_descriptor(1, **short))
    old_end = read_catalog(disk, DIRECTORY).entries[1].offset

    catalog.replace_entry(make_descriptor(0, **short))
    assert read_catalog(disk, DIRECTORY).end_offset == old_end
    catalog.close()
    open_catalog(disk).close()

    assert [entry.descriptor for entry in read_catalog(disk, DIRECTORY).entries] == [
        make_descriptor(0, **short),
        make_descriptor(1, **short),
    ]


NEXT_ID_OFFSET = 8


@pytest.mark.parametrize("bit", [0, 1, 2, 40, 62])
def test_a_flipped_bit_of_the_next_recording_id_is_put_right(bit: int) -> None:
    disk = MemoryFileSystem()
    catalog = open_catalog(disk)
    for recording_id in range(3):
        catalog.add(make_descriptor(recording_id))
    catalog.update(make_descriptor(1, stop_position=32))
    catalog.close()
    disk.damage(DIRECTORY / CATALOG_FILE_NAME, NEXT_ID_OFFSET, (3 ^ 1 << bit).to_bytes(8, "little"))

    assert open_catalog(disk).next_recording_id == 3
    assert read_catalog(disk, DIRECTORY).header.next_recording_id == 3


def test_the_next_recording_id_of_aeron_is_believed_where_it_wrote_last() -> None:
    """It has added a recording and removed it again, so no recording has the highest id that was used."""
    disk = MemoryFileSystem()
    catalog = open_catalog(disk)
    catalog.add(make_descriptor(0))
    catalog.close()
    data = encode_catalog([make_descriptor(0), make_descriptor(1)], next_recording_id=7)
    disk.damage(DIRECTORY / CATALOG_FILE_NAME, 0, data[:1024])

    assert open_catalog(disk).next_recording_id == 7
    assert open_catalog(disk).next_recording_id == 7
    disk.damage(DIRECTORY / CATALOG_FILE_NAME, NEXT_ID_OFFSET, (7 ^ 1 << 40).to_bytes(8, "little"))
    assert open_catalog(disk).next_recording_id == 7, "a start has noted it"
