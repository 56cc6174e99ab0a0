"""The recording log that a member makes of a snapshot that another one shipped."""

from __future__ import annotations

import pytest

from trimaran.cluster.core.log.recording_log import RecordedSnapshot, RecordingLog
from trimaran.cluster.core.log.shipped_snapshot import ShippedTerm, check_offer, make_recording_log
from trimaran.service_api.errors import RemoteProtocolError


def shipped(log_position: int) -> list[RecordedSnapshot]:
    return [
        RecordedSnapshot(
            recording_id=7 - service_id,
            leadership_term_id=1,
            term_base_log_position=0,
            log_position=log_position,
            timestamp=9,
            service_id=service_id,
        )
        for service_id in (-1, 0)
    ]


def seeded(*, is_valid: bool) -> RecordingLog:
    log = make_recording_log([], shipped(0), log_recording_id=-1)
    if not is_valid:
        log.invalidate_snapshots(0, 1)
    return log


def test_a_seed_comes_without_terms() -> None:
    assert check_offer([], shipped(0), service_count=1) == 0
    assert seeded(is_valid=True).seed(1) == seeded(is_valid=True).latest_snapshots(1)


@pytest.mark.parametrize("log_position", [-32, 64])
def test_another_snapshot_does_not(log_position: int) -> None:
    with pytest.raises(RemoteProtocolError, match=r"expected .* 1"):
        check_offer([], shipped(log_position), service_count=1)


@pytest.mark.parametrize("is_valid", [True, False])
def test_a_member_with_a_seed_keeps_it_beside_what_is_shipped(is_valid: bool) -> None:
    """Without it, it would give the log from 0 on to a member that begins empty, as if nothing were before it."""
    terms = [ShippedTerm(1, 0, 5)]

    log = make_recording_log(terms, shipped(64), log_recording_id=3, seed=seeded(is_valid=is_valid).entries)

    assert log.is_seeded
    assert bool(log.seed(1)) is is_valid
    assert [entry.log_position for entry in log.latest_snapshots(1)] == [64, 64]
