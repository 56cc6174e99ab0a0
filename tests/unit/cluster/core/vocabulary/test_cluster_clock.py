"""Cluster time: it goes on with monotonic time, whatever the time of day does, and drifts towards the time of day."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import Solo
from tests.unit.cluster.core.vocabulary.test_terms import START, appended
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.cluster_clock import DRIFT_DIVISOR, ClusterClock
from trimaran.service_api.types import TICKS_PER_MS, TimeUnit
from trimaran.service_api.wire.log.messages import TimerEvent

S = 1_000_000_000
HOUR_MS = 3_600_000
NOON_MS = 1_700_000_000_000
"""A time of day."""


def leading(
    time_unit: TimeUnit = TimeUnit.MILLIS, *, log_time_ms: int = NOON_MS, epoch_ms: int = NOON_MS
) -> ClusterClock:
    """The clock of a leader whose term begins at monotonic time 0."""
    clock = ClusterClock(time_unit)
    clock.note(log_time_ms * TICKS_PER_MS[time_unit], 0)
    clock.begin_term(0, epoch_ms)
    return clock


def run(clock: ClusterClock, begin_ns: int, end_ns: int, epoch_ms_at_0: int) -> None:
    """Steer ten times a second by a time of day that was `epoch_ms_at_0` at monotonic time 0."""
    for now_ns in range(begin_ns, end_ns + 1, 100 * MS):
        clock.steer(now_ns, epoch_ms_at_0 + now_ns // MS)


@pytest.mark.parametrize("time_unit", [*TimeUnit])
def test_cluster_time_goes_on_from_a_log_that_is_an_hour_ahead(time_unit: TimeUnit) -> None:
    """The issue: one leader with a clock an hour ahead stopped all timers after it."""
    clock, ticks = leading(time_unit, log_time_ms=NOON_MS + HOUR_MS), TICKS_PER_MS[time_unit]

    run(clock, 0, 2 * S, NOON_MS)

    passed_ms = clock.stamp(2 * S) / ticks - (NOON_MS + HOUR_MS)
    assert 1_900 <= passed_ms <= 2_000


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_cluster_time_does_not_leap_with_the_time_of_day(jump_ms: int) -> None:
    clock = leading()
    run(clock, 0, 10 * S, NOON_MS)

    run(clock, 10 * S, 12 * S, NOON_MS + jump_ms)

    passed_ms = clock.stamp(12 * S) - NOON_MS
    assert 11_900 <= passed_ms <= 12_100
    assert (passed_ms > 12_000) == (jump_ms > 0)


@pytest.mark.parametrize("jump_ms", [2_000, -2_000])
def test_cluster_time_drifts_to_the_time_of_day_and_stays_there(jump_ms: int) -> None:
    clock = leading()

    run(clock, 0, 60 * S, NOON_MS + jump_ms)

    assert clock.stamp(60 * S) == pytest.approx(NOON_MS + jump_ms + 60_000, abs=1)


def test_term_begins_with_the_time_of_day_where_that_is_ahead_of_the_log() -> None:
    """The cluster was stopped over night."""
    clock = leading(log_time_ms=NOON_MS - 12 * HOUR_MS)

    assert clock.stamp(0) == NOON_MS


def test_term_begins_with_the_majoritys_time_of_day() -> None:
    """This leader's clock is an hour ahead, and it knows."""
    clock = ClusterClock()
    clock.note(NOON_MS - 5, 0)
    clock.correction_ns = -HOUR_MS * MS

    clock.begin_term(0, NOON_MS + HOUR_MS)

    assert clock.stamp(0) == NOON_MS


def test_follower_counts_on_so_that_an_idle_time_is_not_lost_to_timers() -> None:
    """1. The log is an hour ahead. 2. Nothing is appended for ten minutes. 3. This follower becomes leader."""
    clock = ClusterClock()
    clock.note(NOON_MS + HOUR_MS, 0)

    clock.note(NOON_MS + HOUR_MS, 600 * S)
    clock.note_replayed(NOON_MS + HOUR_MS, 600 * S)
    clock.begin_term(600 * S, NOON_MS + 600_000)

    assert clock.stamp(600 * S) == NOON_MS + HOUR_MS + 600_000


def test_entries_that_an_election_delivers_late_do_not_set_the_count_back() -> None:
    clock = ClusterClock()
    clock.note(NOON_MS, 0)

    clock.note_replayed(NOON_MS + 100, 3 * S)

    assert clock.read(3 * S) == NOON_MS + 3_000


def test_start_does_not_count_the_time_before_it() -> None:
    """A snapshot is loaded before the monotonic clock means anything here."""
    clock = ClusterClock()
    clock.note(NOON_MS, 0)

    clock.start(86_400 * S)

    assert clock.read(86_400 * S) == NOON_MS


def test_last_time_that_an_entry_can_hold_is_not_passed() -> None:
    clock = ClusterClock()
    clock.note((1 << 63) - 1, 0)
    clock.begin_term(0, NOON_MS)

    assert clock.stamp(60 * S) == (1 << 63) - 1


@given(
    st.lists(
        st.tuples(st.integers(0, 10 * S), st.integers(-2 * HOUR_MS, 2 * HOUR_MS), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([*TimeUnit]),
)
def test_cluster_time_never_goes_back_and_keeps_within_its_drift(
    steps: list[tuple[int, int, bool]], time_unit: TimeUnit
) -> None:
    clock, now_ns, ticks = leading(time_unit), 0, TICKS_PER_MS[time_unit]
    first = newest = clock.stamp(0)
    for elapsed_ns, offset_ms, is_steered in steps:
        now_ns += elapsed_ns
        if is_steered:
            clock.steer(now_ns, NOON_MS + offset_ms + now_ns // MS)
        stamped = clock.stamp(now_ns)
        assert stamped >= newest
        newest = stamped

    passed_ns = (newest - first) * MS // ticks
    slack_ns = now_ns // DRIFT_DIVISOR + MS + 1
    assert now_ns - slack_ns <= passed_ns <= now_ns + slack_ns


# --- a leader


def test_timer_of_two_seconds_fires_in_two_seconds_after_a_leader_whose_clock_was_an_hour_ahead() -> None:
    solo = Solo(terms=START).reach_leader_log_replication()
    log_time = solo.timestamp + HOUR_MS
    solo.feed(solo.append_position(1, 640), ev.ReplayDone(640, log_time))
    appended(solo)
    solo.module.timers.schedule(1, log_time + 2_000)

    early, late = [], []
    for _ in range(19):
        solo.wait(100 * MS)
        solo.feed(solo.append_position(1, 640))
        early += appended(solo)
    for _ in range(3):
        solo.wait(100 * MS)
        solo.feed(solo.append_position(1, 640))
        late += appended(solo)

    assert early == []
    assert [type(event) for event in late] == [TimerEvent]
