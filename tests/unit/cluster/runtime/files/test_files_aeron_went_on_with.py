"""State files of ours that Aeron has gone on with are read, and damage in them is still found where it can be told.

Aeron does not know our checksums: it leaves them where they are, and copies that of one slot into others.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Final

import pytest

from tests.unit.cluster.runtime.files.aeron_writes import AeronRecordingLog, update_candidate_term
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.core.log.recording_log import RecordedSnapshot
from trimaran.cluster.runtime.files.node_state_file import NODE_STATE_FILE_NAME, NodeStateFile
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile, read_recording_log
from trimaran.service_api.errors import ClusterError, InvariantViolation
from trimaran.service_api.wire.log.recording_log import (
    RECORDING_LOG_FILE_NAME,
    EntryType,
    RecordingLogEntry,
    slots_without_checksum,
)

ROOT: Final = Path("/")
RECORDING_LOG: Final = ROOT / RECORDING_LOG_FILE_NAME
NODE_STATE: Final = ROOT / NODE_STATE_FILE_NAME
TERM, SNAPSHOT, STANDBY = EntryType.TERM, EntryType.SNAPSHOT, EntryType.STANDBY_SNAPSHOT


def open_log(disk: MemoryFileSystem) -> RecordingLogFile:
    return RecordingLogFile.open(ROOT, file_system=disk)


def write_terms(disk: MemoryFileSystem, count: int) -> None:
    """Ours: terms of 640 bytes each, the last one open."""
    file = open_log(disk)
    begin = len(file.recording_log.entries)
    for term_id in range(begin, begin + count):
        file.recording_log.append_term(
            recording_id=7, leadership_term_id=term_id, term_base_log_position=term_id * 640, timestamp=term_id + 1
        )
    file.persist()
    file.close()


def write_snapshot(disk: MemoryFileSystem, log_position: int, *, term_id: int = 0, recording_id: int = 10) -> None:
    file = open_log(disk)
    for service_id in (0, -1):
        file.recording_log.append_snapshot(
            RecordedSnapshot(
                recording_id=recording_id - service_id,
                leadership_term_id=term_id,
                term_base_log_position=term_id * 640,
                log_position=log_position,
                timestamp=log_position,
                service_id=service_id,
            )
        )
    file.persist()
    file.close()


def entries(disk: MemoryFileSystem) -> list[RecordingLogEntry]:
    return sorted(read_recording_log(RECORDING_LOG, disk).entries, key=lambda entry: entry.entry_index)


def refused_bits(disk: MemoryFileSystem, path: Path, positions: range) -> list[int]:
    """Which bits of these bytes, flipped one at a time, make the file refused."""
    data, refused = disk.content(path), list[int]()
    for bit in range(positions.start * 8, positions.stop * 8):
        disk.damage(path, bit // 8, bytes([data[bit // 8] ^ 1 << bit % 8]))
        try:
            if path == NODE_STATE:
                NodeStateFile.open(ROOT, file_system=disk).close()
            else:
                read_recording_log(path, disk)
        except ClusterError:
            refused.append(bit)
        disk.damage(path, bit // 8, data[bit // 8 : bit // 8 + 1])
    return refused


def all_bits(positions: range) -> list[int]:
    return list(range(positions.start * 8, positions.stop * 8))


# recording.log


def test_slots_that_aeron_appends_are_read_though_they_hold_the_checksum_of_the_first() -> None:
    disk = MemoryFileSystem()
    write_terms(disk, 2)
    aeron = AeronRecordingLog(disk, RECORDING_LOG)

    aeron.commit_log_position(64, 1280)
    aeron.append(7, 2, 1280, -1, 99, -1, TERM)
    aeron.append(20, 2, 1280, 1600, 100, 0, SNAPSHOT)
    aeron.append(21, 2, 1280, 1600, 100, -1, SNAPSHOT)

    data = disk.content(RECORDING_LOG)
    assert {data[position + 48 : position + 64] for position in (0, 128, 192, 256)} == {data[48:64]}
    assert [(e.entry_type, e.leadership_term_id, e.log_position) for e in entries(disk)] == [
        (TERM, 0, 640),
        (TERM, 1, 1280),
        (TERM, 2, -1),
        (SNAPSHOT, 2, 1600),
        (SNAPSHOT, 2, 1600),
    ]


@pytest.mark.parametrize("count", [63, 64, 65, 127, 128, 129])
def test_slots_that_aeron_appends_to_a_long_file_hold_the_checksum_of_the_first_in_its_buffer(count: int) -> None:
    """It reads 4,096 bytes at a time, 64 slots."""
    disk = MemoryFileSystem()
    write_terms(disk, count)

    position = AeronRecordingLog(disk, RECORDING_LOG).append(7, count, count * 640, -1, 99, -1, TERM)

    data, first = disk.content(RECORDING_LOG), (count - 1) // 64 * 4096
    assert data[position + 48 :] == data[first + 48 : first + 64]
    assert len(entries(disk)) == count + 1


def test_a_flipped_bit_stays_damage_in_every_slot_of_ours_that_aeron_left_or_changed_in_place() -> None:
    disk = MemoryFileSystem()
    write_terms(disk, 2)
    write_snapshot(disk, 1600, term_id=1)
    aeron = AeronRecordingLog(disk, RECORDING_LOG)
    aeron.commit_log_position(64, 1920)
    aeron.invalidate(128, SNAPSHOT)
    aeron.append(7, 2, 1920, -1, 99, -1, TERM)

    refused = refused_bits(disk, RECORDING_LOG, range(256))

    # What Aeron set in place can be any position, and its mark on a snapshot is one bit.
    log_position_of_aeron = range(64 + 24, 64 + 32)
    told_only_by_its_alignment = {64 * 8 + 24 * 8 + bit for bit in range(5)} | {64 * 8 + 32 * 8 - 1}
    invalid_bits = {(128 + 47) * 8 + 7, (192 + 47) * 8 + 7}
    untold = (set(all_bits(log_position_of_aeron)) - told_only_by_its_alignment) | invalid_bits
    assert set(refused) == set(all_bits(range(256))) - untold


def test_in_a_slot_that_aeron_wrote_only_what_cannot_be_is_found() -> None:
    """Nothing protects it: the checksum there is of another slot."""
    disk = MemoryFileSystem()
    write_terms(disk, 1)
    AeronRecordingLog(disk, RECORDING_LOG).append(7, 1, 640, -1, 99, -1, TERM)

    refused = refused_bits(disk, RECORDING_LOG, range(64, 64 + 40))

    assert [bit for bit in refused if bit // 8 not in range(64 + 8, 64 + 16)] == []


def test_a_term_that_differs_by_one_bit_is_not_one_that_aeron_ended() -> None:
    disk = MemoryFileSystem()
    write_terms(disk, 2)  # the first one ends at 640
    AeronRecordingLog(disk, RECORDING_LOG).commit_log_position(0, 640 ^ 64)

    with pytest.raises(ClusterError, match="entry_index=0 position=0: wrong checksum"):
        entries(disk)


def test_a_term_that_aeron_ended_where_no_frame_ends_is_damage() -> None:
    disk = MemoryFileSystem()
    write_terms(disk, 1)
    AeronRecordingLog(disk, RECORDING_LOG).commit_log_position(0, 633)

    with pytest.raises(ClusterError, match="wrong checksum"):
        entries(disk)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_snapshot_that_aeron_made_invalid_and_takes_again_is_read(is_first: bool) -> None:
    """It writes the whole slot: from its buffer, so one that lies first there keeps its own checksum."""
    disk = MemoryFileSystem()
    if not is_first:
        write_terms(disk, 1)
    write_snapshot(disk, 320)
    position = 0 if is_first else 64
    AeronRecordingLog(disk, RECORDING_LOG).invalidate(position, SNAPSHOT)
    AeronRecordingLog(disk, RECORDING_LOG).restore(position, 30, 0, 0, 320, 5000, 0, SNAPSHOT)

    found = [entry for entry in entries(disk) if entry.file_position == position]

    assert [(e.recording_id, e.timestamp, e.is_valid) for e in found] == [(30, 5000, True)]


@pytest.mark.parametrize("field", [0, 32])
def test_a_snapshot_of_which_only_one_field_is_another_is_damage(field: int) -> None:
    disk = MemoryFileSystem()
    write_snapshot(disk, 320)
    disk.damage(RECORDING_LOG, field, struct.pack("<q", 123456))

    with pytest.raises(ClusterError, match="entry_index=0 position=0: wrong checksum"):
        entries(disk)


def test_entries_that_aeron_removes_are_removed() -> None:
    disk = MemoryFileSystem()
    write_terms(disk, 3)
    aeron = AeronRecordingLog(disk, RECORDING_LOG)
    aeron.commit_log_position(64, 3200)
    aeron.remove(64)
    aeron.remove(128)

    assert [entry.leadership_term_id for entry in entries(disk)] == [0]


@pytest.mark.parametrize("endpoint", ["a", "n0:8010", "localhost:8010", "x" * 70])
def test_endpoints_that_stay_in_aerons_buffer_are_no_damage(endpoint: str) -> None:
    """A short one leaves the rest of a checksum after it."""
    disk = MemoryFileSystem()
    write_terms(disk, 2)
    aeron = AeronRecordingLog(disk, RECORDING_LOG)
    aeron.append(40, 1, 640, 960, 50, -1, STANDBY, endpoint=endpoint)
    aeron.append(41, 1, 640, 960, 50, -1, SNAPSHOT)

    assert [e.archive_endpoint for e in entries(disk)] == ["", "", endpoint, ""]


def test_a_member_that_starts_gives_every_slot_its_checksum_again() -> None:
    disk = MemoryFileSystem()
    write_terms(disk, 2)
    aeron = AeronRecordingLog(disk, RECORDING_LOG)
    aeron.commit_log_position(64, 1280)
    aeron.append(7, 2, 1280, -1, 99, -1, TERM)
    before = entries(disk)

    open_log(disk).close()

    assert entries(disk) == before
    assert list(slots_without_checksum(disk.content(RECORDING_LOG))) == []
    assert refused_bits(disk, RECORDING_LOG, range(192)) == all_bits(range(192))


def test_a_crash_between_the_new_checksums_leaves_a_file_that_is_read() -> None:
    disk = MemoryFileSystem()
    write_terms(disk, 70)
    aeron = AeronRecordingLog(disk, RECORDING_LOG)
    for term_id in range(70, 140):
        aeron.commit_log_position((term_id - 1) * 64, term_id * 640)
        aeron.append(7, term_id, term_id * 640, -1, 99, -1, TERM)
    before = entries(disk)

    for position, slot in slots_without_checksum(disk.content(RECORDING_LOG)):
        disk.damage(RECORDING_LOG, position, slot)
        assert entries(disk) == before


@pytest.mark.parametrize("seed", range(40))
def test_members_of_both_kinds_take_turns_at_one_file(seed: int) -> None:
    """Each goes on from what the other left, in any order of what both do; what is read is what was written."""
    rng, disk = random.Random(seed), MemoryFileSystem()
    recording_id = 100
    for _ in range(rng.randint(2, 12)):
        if rng.random() < 0.5:
            write_terms_where_the_last_ends(disk, rng)
            continue
        aeron = AeronRecordingLog(disk, RECORDING_LOG)
        expected = entries(disk) if RECORDING_LOG.name in disk.list_directory(ROOT) else []
        for _ in range(rng.randint(1, 30)):
            recording_id += 2
            append_as_aeron_does(aeron, expected, rng, recording_id)
        assert [(e.leadership_term_id, e.log_position, e.is_valid, e.recording_id) for e in entries(disk)] == [
            (e.leadership_term_id, e.log_position, e.is_valid, e.recording_id) for e in expected
        ]


def write_terms_where_the_last_ends(disk: MemoryFileSystem, rng: random.Random) -> None:
    file = open_log(disk)
    for _ in range(rng.randint(1, 5)):
        last = file.recording_log.last_term()
        term_id = 0 if last is None else last.leadership_term_id + 1
        base = 0 if last is None else max(last.term_base_log_position, last.log_position) + 32 * rng.randint(0, 99)
        try:
            file.recording_log.append_term(
                recording_id=7, leadership_term_id=term_id, term_base_log_position=base, timestamp=term_id
            )
        except InvariantViolation:
            break
    file.persist()
    file.close()


def append_as_aeron_does(
    aeron: AeronRecordingLog, expected: list[RecordingLogEntry], rng: random.Random, recording_id: int
) -> None:
    """One of: a term, which ends the one before; the snapshot of a term; an invalid one; one taken again."""
    terms = [entry for entry in expected if entry.entry_type is TERM]
    snapshots = [entry for entry in expected if entry.entry_type is SNAPSHOT]
    choice = rng.choice("tsir") if terms else "t"
    if choice == "t":
        base = terms[-1].term_base_log_position + 32 * rng.randint(1, 999) if terms else 0
        if terms:
            change(expected, terms[-1], log_position=base)
            aeron.commit_log_position(terms[-1].file_position, base)
        add(aeron, expected, 7, len(terms), base, -1, TERM)
    elif choice == "s":
        base = terms[-1].term_base_log_position
        add(aeron, expected, recording_id, terms[-1].leadership_term_id, base, base + 32 * len(expected), SNAPSHOT)
    elif choice == "i" and snapshots:
        found = rng.choice(snapshots)
        change(expected, found, is_valid=False)
        aeron.invalidate(found.file_position, SNAPSHOT)
    elif choice == "r" and (invalid := [entry for entry in snapshots if not entry.is_valid]):
        found = rng.choice(invalid)
        change(expected, found, is_valid=True, recording_id=recording_id, timestamp=recording_id)
        values = (found.leadership_term_id, found.term_base_log_position, found.log_position)
        aeron.restore(found.file_position, recording_id, *values, recording_id, -1, SNAPSHOT)


def add(
    aeron: AeronRecordingLog,
    expected: list[RecordingLogEntry],
    recording_id: int,
    term_id: int,
    base: int,
    log_position: int,
    entry_type: EntryType,
) -> None:
    position = aeron.append(recording_id, term_id, base, log_position, recording_id, -1, entry_type)
    expected.append(
        RecordingLogEntry(
            recording_id=recording_id,
            leadership_term_id=term_id,
            term_base_log_position=base,
            log_position=log_position,
            timestamp=recording_id,
            entry_type=entry_type,
            entry_index=len(expected),
            file_position=position,
        )
    )


def change(expected: list[RecordingLogEntry], entry: RecordingLogEntry, **fields: object) -> None:
    values = {name: getattr(entry, name) for name in RecordingLogEntry.__slots__} | fields
    expected[entry.entry_index] = RecordingLogEntry(**values)


# node-state.dat


def node_state(disk: MemoryFileSystem) -> bytes:
    file = NodeStateFile.open(ROOT, file_system=disk)
    file.propose_max_candidate_term_id(5, 3200, 1_700_000_000_000)
    file.close()
    return disk.content(NODE_STATE)


@pytest.mark.parametrize(("killed_after", "expected"), [(0, 5), (1, 5), (2, 5), (3, 6)])
def test_a_candidate_term_that_aeron_raised_is_read_even_if_it_was_killed_meanwhile(
    killed_after: int, expected: int
) -> None:
    disk = MemoryFileSystem()
    data = update_candidate_term(node_state(disk), 6, 4000, 1_700_000_009_999, killed_after=killed_after)
    disk.damage(NODE_STATE, 0, data)

    file = NodeStateFile.open(ROOT, file_system=disk)

    assert file.candidate_term_id == expected


def test_a_candidate_term_is_protected_again_once_one_is_written_here() -> None:
    disk = MemoryFileSystem()
    disk.damage(NODE_STATE, 0, update_candidate_term(node_state(disk), 6, 4000, 1_700_000_009_999))
    file = NodeStateFile.open(ROOT, file_system=disk)
    file.propose_max_candidate_term_id(7, 4000, 1_700_000_020_000)
    file.close()

    assert refused_bits(disk, NODE_STATE, range(100)) == all_bits(range(100))


@pytest.mark.parametrize(
    ("candidate_term_id", "timestamp_ms"),
    [
        (4, 1_700_000_009_999),  # Aeron never lowers it
        (9, 1_700_000_000_000),  # Aeron writes the time before
    ],
)
def test_a_candidate_term_that_aeron_cannot_have_written_is_damage(candidate_term_id: int, timestamp_ms: int) -> None:
    disk = MemoryFileSystem()
    disk.damage(NODE_STATE, 0, update_candidate_term(node_state(disk), candidate_term_id, 3200, timestamp_ms))

    with pytest.raises(ClusterError, match="node state"):
        NodeStateFile.open(ROOT, file_system=disk)


def test_a_flipped_bit_that_lowers_the_candidate_term_of_ours_is_damage_though_aeron_wrote() -> None:
    """In what Aeron wrote last, a bit is found where the term would be lower than our last one."""
    disk = MemoryFileSystem()
    disk.damage(NODE_STATE, 0, update_candidate_term(node_state(disk), 6, 4000, 1_700_000_009_999))

    refused = refused_bits(disk, NODE_STATE, range(24, 32))

    assert refused == [24 * 8 + 1, 24 * 8 + 2, 31 * 8 + 7]  # 4, 2 and a negative one; 7, 14 and so on are later terms
