"""Which snapshots and how much of the log stay, and in which order the rest goes out of the recording log."""

from __future__ import annotations

import pytest

from trimaran.cluster.core.log.recording_log import RecordedSnapshot, RecordingLog
from trimaran.cluster.core.log.retention import (
    KEEP_ALL,
    RetentionPolicy,
    drop_old_snapshots,
    needed_log_position,
)

POSITIONS = (1_000, 2_000, 3_000)


def log_with(*taken: tuple[int, int]) -> RecordingLog:
    """One term, and a set at each position and time: recordings 10, 11 in the first, 20, 21 in the next, and so on."""
    log = RecordingLog()
    log.append_term(recording_id=0, leadership_term_id=0, term_base_log_position=0, timestamp=0)
    for number, (position, time) in enumerate(taken, 1):
        for service_id in (0, -1):
            log.append_snapshot(
                RecordedSnapshot(
                    recording_id=10 * number - service_id,
                    leadership_term_id=0,
                    term_base_log_position=0,
                    log_position=position,
                    timestamp=time,
                    service_id=service_id,
                )
            )
    log.take_writes()
    return log


def log_with_snapshots(*positions: int) -> RecordingLog:
    """The same, where times do not count."""
    return log_with(*((position, position) for position in positions))


def policy(keep_snapshots: int, keep_log_bytes: int = 0) -> RetentionPolicy:
    return RetentionPolicy(keep_all=False, keep_snapshots=keep_snapshots, keep_log_bytes=keep_log_bytes)


def test_nothing_goes_unless_somebody_asked_for_it() -> None:
    log = log_with_snapshots(*POSITIONS)

    assert drop_old_snapshots(log, KEEP_ALL, service_count=1) == ()
    assert needed_log_position(log, KEEP_ALL, service_count=1) == 0
    assert log.take_writes() == []


def test_the_newest_sets_stay_and_the_log_from_the_oldest_of_them() -> None:
    log = log_with_snapshots(*POSITIONS)

    dropped = drop_old_snapshots(log, policy(2), service_count=1)

    assert dropped == (11, 10)
    assert [found[0].log_position for found in log.complete_snapshots(1)] == [2_000, 3_000]
    assert needed_log_position(log, policy(2), service_count=1) == 2_000


def test_the_state_that_a_log_was_seeded_with_stays() -> None:
    """A replay from 0 begins with it; without it the log would give another state."""
    log = log_with_snapshots(0, *POSITIONS)

    dropped = drop_old_snapshots(log, policy(2), service_count=1)

    assert dropped == (21, 20)
    assert [found[0].log_position for found in log.complete_snapshots(1)] == [0, 2_000, 3_000]


def test_the_modules_entry_goes_first_so_that_no_half_set_counts() -> None:
    log = log_with_snapshots(*POSITIONS)
    module, service = log.complete_snapshots(1)[0]

    drop_old_snapshots(log, policy(2), service_count=1)

    assert [write.file_position for write in log.take_writes()] == [module.file_position, service.file_position]


@pytest.mark.parametrize(("keep_log_bytes", "expected"), [(0, 2_000), (1_500, 500), (5_000, 0)])
def test_so_much_of_the_log_stays_below_the_oldest_set(keep_log_bytes: int, expected: int) -> None:
    log = log_with_snapshots(*POSITIONS)

    assert needed_log_position(log, policy(2, keep_log_bytes), service_count=1) == expected


def test_the_whole_log_stands_in_for_sets_that_are_missing() -> None:
    log = log_with_snapshots(1_000)

    assert drop_old_snapshots(log, policy(2), service_count=1) == ()
    assert needed_log_position(log, policy(2), service_count=1) == 0
    assert needed_log_position(log, policy(1), service_count=1) == 1_000


def test_an_invalid_set_does_not_count_and_goes_with_the_old_ones() -> None:
    log = log_with_snapshots(*POSITIONS)
    log.invalidate_latest_snapshot()

    assert drop_old_snapshots(log, policy(2), service_count=1) == ()
    assert needed_log_position(log, policy(2), service_count=1) == 1_000
    for service_id in (0, -1):
        for position in (4_000, 5_000):
            log.append_snapshot(
                RecordedSnapshot(
                    recording_id=position - service_id,
                    leadership_term_id=0,
                    term_base_log_position=0,
                    log_position=position,
                    timestamp=0,
                    service_id=service_id,
                )
            )
    dropped = drop_old_snapshots(log, policy(2), service_count=1)

    assert dropped == (11, 10, 21, 20, 31, 30)
    assert {entry.log_position for entry in log.entries[1:]} == {4_000, 5_000}


def test_an_incomplete_set_above_the_oldest_that_is_kept_stays() -> None:
    log = log_with_snapshots(1_000, 2_000)
    log.append_snapshot(
        RecordedSnapshot(
            recording_id=99,
            leadership_term_id=0,
            term_base_log_position=0,
            log_position=3_000,
            timestamp=0,
            service_id=0,
        )
    )

    assert drop_old_snapshots(log, policy(1), service_count=1) == (11, 10)
    assert [entry.recording_id for entry in log.entries[1:]] == [20, 21, 99]
