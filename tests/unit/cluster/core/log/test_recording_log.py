"""The recording log against files that Aeron's own class wrote, and its rules for change."""

from __future__ import annotations

import gzip
import json
import tarfile
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.places import AERON
from trimaran.cluster.cli.recording_log import rows_of
from trimaran.cluster.core.log.recording_log import EntryWrite, RecordedSnapshot, RecordingLog
from trimaran.service_api.errors import ClusterError, InvariantViolation, RemoteProtocolError
from trimaran.service_api.types import NULL_POSITION, NULL_VALUE
from trimaran.service_api.wire.log.recording_log import EntryType, RecordingLogEntry


@cache
def truth() -> dict[str, Any]:
    with gzip.open(AERON / "truth-state-files.json.gz", "rt") as file:
        return {name: state for name, state in json.load(file).items() if "entries" in state}


@cache
def file_of(name: str) -> bytes:
    with tarfile.open(AERON / "state-files.tar.gz") as tar:
        member = tar.extractfile(f"state-files/{name}/recording.log")
        assert member is not None
        return member.read()


def index_of(entry: RecordingLogEntry | None) -> int | None:
    return None if entry is None else entry.entry_index


def apply(data: bytes, writes: list[EntryWrite]) -> bytes:
    """What a file of `data` holds after the writes."""
    file = bytearray(data)
    for write in writes:
        end = write.file_position + len(write.data)
        file.extend(bytes(max(0, end - len(file))))
        file[write.file_position : end] = write.data
    return bytes(file)


def a_log(*terms: tuple[int, int]) -> RecordingLog:
    """A log with terms as (leadership_term_id, term_base_log_position), its writes taken."""
    log = RecordingLog()
    for term_id, base in terms:
        log.append_term(
            recording_id=7, leadership_term_id=term_id, term_base_log_position=base, timestamp=1000 + term_id
        )
    log.take_writes()
    return log


def add_snapshot(log: RecordingLog, log_position: int, *service_ids: int, recording_id: int = 50) -> None:
    for service_id in service_ids:
        log.append_snapshot(
            RecordedSnapshot(
                recording_id=recording_id,
                leadership_term_id=0,
                term_base_log_position=0,
                log_position=log_position,
                timestamp=log_position,
                service_id=service_id,
            )
        )


def bounds(log: RecordingLog) -> list[tuple[int, int, int]]:
    return [
        (entry.leadership_term_id, entry.term_base_log_position, entry.log_position)
        for entry in log.entries
        if entry.is_valid_term
    ]


@pytest.mark.parametrize("name", truth())
def test_real_file_is_read_as_the_real_class_reads_it(name: str) -> None:
    expected = truth()[name]

    log = RecordingLog.parse(file_of(name))

    assert rows_of(log) == expected["entries"]
    assert (log.next_entry_index, log.end_position) == (expected["next_entry_index"], expected["file_length"])
    assert index_of(log.last_term()) == expected["last_term_entry_index"]
    assert log.recovery_plan(0).log_recording_id == expected["last_term_recording_id"]
    for service_id in (-1, 0, 1):
        wanted = expected[f"latest_snapshot_entry_index_service_{service_id}"]
        assert index_of(log.latest_snapshot(service_id)) == wanted
    standby = {
        endpoint: [entry.entry_index for entry in entries]
        for endpoint, entries in log.latest_standby_snapshots(1).items()
    }
    assert standby == expected["latest_standby_snapshots_service_count_1"]


@pytest.mark.parametrize("name", truth())
def test_real_entries_encode_back_to_the_byte(name: str) -> None:
    """After its fields an entry may hold what a longer one left there: not compared."""
    data = file_of(name)

    for entry in RecordingLog.parse(data).entries:
        is_standby = entry.entry_type is EntryType.STANDBY_SNAPSHOT
        end = entry.file_position + (52 + len(entry.archive_endpoint) if is_standby else 48)

        assert entry.encode()[: end - entry.file_position] == data[entry.file_position : end]


def test_failed_terms_are_back_filled_as_the_real_class_does() -> None:
    """The same calls that made the sample give the same bytes."""
    log = RecordingLog()

    log.ensure_coherent(
        recording_id=4,
        leadership_term_id=3,
        term_base_log_position=0,
        log_position=NULL_POSITION,
        timestamp=1700000000000,
    )
    log.ensure_coherent(
        recording_id=4,
        leadership_term_id=6,
        term_base_log_position=64000,
        log_position=NULL_POSITION,
        timestamp=1700000000002,
    )

    assert apply(b"", log.take_writes()) == file_of("ensure-coherent")
    assert log.take_writes() == []


def test_ensure_coherent_closes_a_term_that_is_there_and_is_idempotent() -> None:
    log = a_log((0, 0), (1, 640))

    for _ in range(2):
        log.ensure_coherent(
            recording_id=7, leadership_term_id=1, term_base_log_position=640, log_position=960, timestamp=5
        )

    assert bounds(log) == [(0, 0, 640), (1, 640, 960)]
    assert len(log.take_writes()) == 1


def test_ensure_coherent_refuses_another_base_for_a_term() -> None:
    log = a_log((0, 0), (1, 640))

    with pytest.raises(InvariantViolation, match="base position"):
        log.ensure_coherent(
            recording_id=7, leadership_term_id=1, term_base_log_position=672, log_position=-1, timestamp=5
        )


def test_a_new_term_closes_the_one_before_it_first() -> None:
    log = a_log((0, 0))

    log.append_term(recording_id=7, leadership_term_id=1, term_base_log_position=320, timestamp=9)

    writes = log.take_writes()
    assert [(write.entry_index, write.file_position, len(write.data)) for write in writes] == [
        (0, 0, 64),
        (1, 64, 64),
    ]
    assert bounds(log) == [(0, 0, 320), (1, 320, NULL_POSITION)]
    assert repr(log) == "<RecordingLog entries=2 last_term=1>"


def test_a_term_put_in_between_ends_where_the_later_one_begins() -> None:
    log = a_log((0, 0), (3, 960))

    log.append_term(recording_id=7, leadership_term_id=1, term_base_log_position=320, timestamp=9)

    assert bounds(log) == [(0, 0, 320), (1, 320, 960), (3, 960, NULL_POSITION)]
    assert index_of(log.term_entry(1)) == 2


@pytest.mark.parametrize(
    ("term_id", "base", "recording_id", "reason"),
    [
        (1, 640, 7, "appended once"),
        (2, 639, 7, "a term begins"),
        (2, 640, 8, "same recording"),
    ],
)
def test_terms_that_cannot_be_are_refused(term_id: int, base: int, recording_id: int, reason: str) -> None:
    log = a_log((0, 0), (1, 640))

    with pytest.raises(InvariantViolation, match=reason):
        log.append_term(recording_id=recording_id, leadership_term_id=term_id, term_base_log_position=base, timestamp=1)
    assert log.take_writes() == []


def test_a_term_cannot_end_before_it_begins() -> None:
    log = a_log((0, 0), (1, 640))

    with pytest.raises(InvariantViolation, match="a term ends"):
        log.commit_log_position(1, 608)
    with pytest.raises(InvariantViolation, match="in the recording"):
        log.commit_log_position(2, 960)


def test_truncation_removes_terms_that_began_there_or_later_and_opens_the_last() -> None:
    log = a_log((0, 0), (1, 640), (2, 960), (3, 960), (4, 1280))

    log.truncate_terms(960)

    assert bounds(log) == [(0, 0, 640), (1, 640, NULL_POSITION)]
    writes = log.take_writes()
    assert [write.entry_index for write in writes] == [4, 3, 2, 1]
    assert [write.data[44:48] for write in writes] == [b"\xff" * 4] * 3 + [bytes(4)]
    assert log.next_entry_index == 5


def test_truncation_to_the_beginning_leaves_no_term() -> None:
    log = a_log((0, 0), (1, 640))

    log.truncate_terms(0)

    assert log.last_term() is None
    assert log.recovery_plan(1).last_leadership_term_id == NULL_VALUE


def test_only_a_complete_set_of_snapshots_counts() -> None:
    log = a_log((0, 0))
    add_snapshot(log, 320, 1, 0, -1)
    add_snapshot(log, 640, 1, -1)
    add_snapshot(log, 960, 1, 0)

    plan = log.recovery_plan(2)

    assert [(entry.log_position, entry.service_id) for entry in plan.snapshots] == [
        (320, -1),
        (320, 0),
        (320, 1),
    ]
    assert plan.replay_position == 320
    assert plan.log_recording_id == 7
    assert log.recovery_plan(0).replay_position == 640
    assert log.recovery_plan(3).snapshots == ()
    assert log.recovery_plan(3).replay_position == 0


def test_a_member_without_a_log_recovers_from_nothing() -> None:
    plan = RecordingLog().recovery_plan(1)

    assert (plan.last_term, plan.snapshots) == (None, ())
    assert (plan.log_recording_id, plan.last_leadership_term_id, plan.replay_position) == (-1, -1, 0)


def test_invalidated_snapshots_give_way_to_older_ones_and_are_revived_in_place() -> None:
    log = a_log((0, 0))
    add_snapshot(log, 320, 0, -1)
    add_snapshot(log, 640, 0, -1)
    log.take_writes()

    assert log.invalidate_latest_snapshot()
    assert log.recovery_plan(1).replay_position == 320
    assert [write.entry_index for write in log.take_writes()] == [3, 4]

    add_snapshot(log, 640, 0, -1, recording_id=90)
    assert [entry.recording_id for entry in log.recovery_plan(1).snapshots] == [90, 90]
    assert [write.entry_index for write in log.take_writes()] == [3, 4]
    assert log.next_entry_index == 5


def test_every_snapshot_can_be_invalidated_until_none_is_left() -> None:
    log = RecordingLog.parse(file_of("terms-and-snapshots"))

    assert [log.invalidate_latest_snapshot() for _ in range(3)] == [True, True, False]
    assert log.latest_snapshot(-1) is None


def test_a_snapshot_whose_term_is_missing_is_not_invalidated() -> None:
    log = RecordingLog.parse(file_of("seeded-by-tool"))

    with pytest.raises(ClusterError, match="snapshot: leadership_term_id=3"):
        log.invalidate_latest_snapshot()


def test_standby_snapshots_keep_their_endpoint() -> None:
    log = a_log((0, 0))
    for endpoint in ("localhost:8010", "a" * 3900):
        log.append_standby_snapshot(
            RecordedSnapshot(
                recording_id=1,
                leadership_term_id=0,
                term_base_log_position=0,
                log_position=320,
                timestamp=1,
                service_id=-1,
            ),
            archive_endpoint=endpoint,
        )
    data = apply(a_log((0, 0)).entries[0].encode(), log.take_writes())

    read = RecordingLog.parse(data)

    assert read.entries == log.entries
    assert list(read.latest_standby_snapshots(0)) == ["a" * 3900, "localhost:8010"]
    for endpoint in ("a" * 5000, "é"):
        with pytest.raises(ClusterError, match="archive_endpoint="):
            log.append_standby_snapshot(
                RecordedSnapshot(
                    recording_id=1,
                    leadership_term_id=0,
                    term_base_log_position=0,
                    log_position=320,
                    timestamp=1,
                    service_id=-1,
                ),
                archive_endpoint=endpoint,
            )


def test_an_entry_cut_short_by_a_crash_is_overwritten() -> None:
    whole = file_of("terms-and-snapshots")
    for length in range(640, 640 + 48):
        log = RecordingLog.parse(whole[:length])
        assert (log.next_entry_index, log.end_position) == (10, 640)
    log = RecordingLog.parse(whole + bytes(64))
    assert (log.next_entry_index, log.end_position) == (11, 704)


def test_damage_is_named_by_entry_and_position() -> None:
    whole = bytearray(file_of("terms-and-snapshots"))

    with pytest.raises(RemoteProtocolError, match="entry_index=1 position=64 is empty"):
        RecordingLog.parse(bytes(whole[:64]) + bytes(64) + bytes(whole[128:]))
    with pytest.raises(RemoteProtocolError, match="two valid terms: leadership_term_id=0 entry_index=1 and 0"):
        RecordingLog.parse(bytes(whole[:64] * 2))
    whole[64 + 44] = 9
    with pytest.raises(RemoteProtocolError, match="entry_index=1 position=64 type=9"):
        RecordingLog.parse(bytes(whole))
    standby = bytearray(file_of("standby-snapshots"))
    standby[64 + 48 : 64 + 52] = b"\xff\xff\xff\x7f"
    with pytest.raises(RemoteProtocolError, match="entry_index=1 position=64 endpoint length=2147483647"):
        RecordingLog.parse(bytes(standby))


@given(st.binary(max_size=300))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        log = RecordingLog.parse(data)
    except RemoteProtocolError:
        return
    assert log.end_position % 64 == 0


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[str, int]]:
    return draw(
        st.lists(
            st.tuples(st.sampled_from(["term", "close", "snapshot", "invalidate", "truncate"]), st.integers(0, 5)),
            max_size=25,
        )
    )


@given(changes())
def test_the_file_always_reads_back_as_the_log(steps: list[tuple[str, int]]) -> None:
    """Whatever changes come, applying the writes in order gives a file that parses to the same entries."""
    log, data, position = RecordingLog(), b"", 0
    for timestamp, (step, amount) in enumerate(steps, 1):
        last = log.last_term()
        if step == "term":
            position += amount * 32
            next_term_id = (0 if last is None else last.leadership_term_id + 1) + amount % 2
            log.ensure_coherent(
                recording_id=7,
                leadership_term_id=next_term_id,
                term_base_log_position=0 if last is None else position,
                log_position=NULL_POSITION,
                timestamp=timestamp,
            )
        elif last is None:
            continue
        elif step == "close":
            position += amount * 32
            log.commit_log_position(last.leadership_term_id, position)
        elif step == "snapshot":
            for service_id in (0, -1):
                log.append_snapshot(
                    RecordedSnapshot(
                        recording_id=timestamp,
                        leadership_term_id=last.leadership_term_id,
                        term_base_log_position=last.term_base_log_position,
                        log_position=position,
                        timestamp=timestamp,
                        service_id=service_id,
                    )
                )
        elif step == "invalidate":
            if all(entry.leadership_term_id <= last.leadership_term_id for entry in log.entries):
                log.invalidate_latest_snapshot()
        else:
            position = max(0, position - amount * 32)
            log.truncate_terms(position)
        data = apply(data, log.take_writes())

    read = RecordingLog.parse(data)

    assert read.entries == log.entries
    assert (read.next_entry_index, read.end_position) == (log.next_entry_index, log.end_position)
    terms = [entry for entry in log.entries if entry.is_valid_term]
    for before, after in pairwise(terms):
        assert before.log_position == after.term_base_log_position
