"""Snapshots that nobody asks for: when a leader has one taken, when it waits, and when it leaves it."""

from __future__ import annotations

from typing import Final

import pytest

from tests.unit.cluster.core.snapshots.test_snapshot import action, deliver_action
from tests.unit.cluster.core.snapshots.test_standby_snapshots import STANDBY, offer, with_standbys
from tests.unit.cluster.core.solo import Solo, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.control_toggle import ActionStep, ControlToggle
from trimaran.cluster.core.vocabulary.module_state import ModuleState
from trimaran.cluster.core.vocabulary.snapshot_policy import SnapshotPolicy
from trimaran.service_api.types import CorrelationId, TermId
from trimaran.service_api.wire.log.messages import CLUSTER_ACTION_FLAGS_STANDBY_SNAPSHOT, TimerEvent

S: Final = 1_000_000_000
ENTRY_BYTES: Final = 64
LOG_BYTES: Final = 100 * ENTRY_BYTES


def member(**policy: int) -> Solo:
    """A member with limits, that waits long for others."""
    return Solo(
        snapshot_policy=SnapshotPolicy(**policy),
        leader_heartbeat_timeout_ns=10 * S,
        leader_heartbeat_interval_ns=S,
    )


def lead(**policy: int) -> Solo:
    """A leader with limits, whose first entry is committed."""
    solo = member(**policy).lead()
    commit(solo)
    return solo


def commit(solo: Solo) -> None:
    solo.record()
    solo.feed(solo.append_position(1, solo.ctx.log_buffer.append_position))


def append(solo: Solo, count: int) -> None:
    """So many entries come, and are committed."""
    leader = solo.module.leader
    assert leader is not None
    for number in range(count):
        event = TimerEvent(
            leadership_term_id=TermId(solo.ctx.leadership_term_id), correlation_id=CorrelationId(number), timestamp=0
        )
        leader.publisher.append_message(event.encode())
    commit(solo)


def let_pass(solo: Solo, seconds: int, *, entries_per_second: int = 0) -> list[str]:
    """Let time pass with a steady load; give why snapshots began."""
    begun = []
    for _ in range(seconds):
        append(solo, entries_per_second)
        begun += begins(solo.wait(S))
        solo.feed(solo.append_position(1, solo.ctx.append_position))
    return begun


def begins(effects: list[fx.Effect]) -> list[str]:
    return [found.reason for found in of(effects, fx.ModuleStateChanged) if found.new is ModuleState.SNAPSHOT]


def finish(solo: Solo, *, failure: str | None = None) -> int:
    """The snapshot that has begun is committed, delivered, and recorded or not; give its position."""
    commit(solo)
    position = solo.ctx.log_buffer.append_position
    event = action(position)
    deliver_action(solo, event)
    if failure is None:
        solo.feed(ev.SnapshotTaken(position, (7,), 8))
    else:
        solo.feed(ev.SnapshotFailed(position, failure))
    assert solo.module.actions.toggle is ControlToggle.NEUTRAL
    return position


def test_snapshot_is_taken_at_the_limit_of_length_however_busy_the_leader_is() -> None:
    solo = lead(log_bytes=LOG_BYTES)

    early = let_pass(solo, 9, entries_per_second=10)
    late = let_pass(solo, 3, entries_per_second=10)

    assert early == []
    (reason,) = late
    assert f"limit={LOG_BYTES}" in reason


def test_snapshot_is_taken_before_the_limit_in_a_quiet_second() -> None:
    solo = lead(log_bytes=LOG_BYTES)

    busy = let_pass(solo, 8, entries_per_second=10)
    quiet = let_pass(solo, 2)

    assert (busy, len(quiet)) == ([], 1)


def test_snapshot_is_not_taken_in_a_quiet_second_with_little_log() -> None:
    solo = lead(log_bytes=LOG_BYTES)

    assert let_pass(solo, 6, entries_per_second=10) == []
    assert let_pass(solo, 600) == []


def test_snapshot_is_taken_when_the_newest_is_old() -> None:
    solo = lead(interval_ns=3_600 * S)

    early = let_pass(solo, 2_600)
    late = let_pass(solo, 200)

    assert early == []
    (reason,) = late
    assert "limit=3600000" in reason


def test_idle_cluster_takes_one_snapshot_and_no_more() -> None:
    solo = lead(interval_ns=60 * S)
    assert len(let_pass(solo, 61)) == 1
    finish(solo)

    assert let_pass(solo, 1_000) == []


def test_nobody_is_told_of_a_snapshot_that_nobody_asked_for() -> None:
    solo = lead(interval_ns=60 * S)
    let_pass(solo, 61)

    finish(solo)

    assert of(solo.effects, fx.ActionProgressed) == []
    assert of(solo.effects, fx.AdminProgressed) == []


def test_what_an_operator_asks_for_waits_until_it_is_taken() -> None:
    solo = lead(interval_ns=60 * S)
    let_pass(solo, 61)

    during = of(solo.feed(ev.ActionRequested(1, ControlToggle.SUSPEND)), fx.ActionProgressed)
    commit(solo)
    deliver_action(solo, action(solo.ctx.log_buffer.append_position))
    after = of(solo.feed(ev.SnapshotFailed(solo.ctx.log_buffer.append_position, "no room")), fx.ActionProgressed)

    assert during == []
    assert after[0].step is ActionStep.APPENDED


def test_snapshot_that_fails_is_tried_again_after_longer_and_longer_times() -> None:
    solo = lead(interval_ns=60 * S)
    waits = []
    for _ in range(4):
        seconds = 0
        while not let_pass(solo, 1):
            seconds += 1
            assert seconds < 10_000
        waits.append(seconds)
        finish(solo, failure="the service failed")

    assert waits[0] < 60
    assert [round(wait / 60) for wait in waits[1:]] == [1, 2, 4]


def test_snapshots_that_last_do_not_follow_each_other() -> None:
    """One that takes 30 s has 270 s of rest after it, though the limit of length is reached in each second."""
    solo = lead(log_bytes=2 * ENTRY_BYTES)
    assert let_pass(solo, 1, entries_per_second=3)
    let_pass(solo, 30)
    finish(solo)

    assert let_pass(solo, 265, entries_per_second=3) == []
    assert len(let_pass(solo, 30, entries_per_second=3)) == 1


def test_suspended_cluster_takes_none() -> None:
    solo = lead(interval_ns=60 * S)
    solo.feed(ev.ActionRequested(1, ControlToggle.SUSPEND))
    commit(solo)

    assert let_pass(solo, 600) == []


@pytest.mark.parametrize("policy", [{}, {"interval_ns": 0, "log_bytes": 0}])
def test_without_limits_none_is_taken(policy: dict[str, int]) -> None:
    solo = lead(**policy)

    assert let_pass(solo, 7_200, entries_per_second=1) == []


def test_follower_begins_none() -> None:
    solo = member(interval_ns=S, log_bytes=1).follow(term_id=0)
    before = solo.ctx.log_buffer.append_position

    solo.wait(2 * S)

    assert solo.ctx.log_buffer.append_position == before
    assert begins(solo.effects) == []


def test_age_counts_from_the_newest_snapshot_also_under_a_new_leader() -> None:
    """A term begins while the newest snapshot is old already."""
    solo = lead(interval_ns=60 * S)
    recording_log = solo.ctx.recording_log

    newest_ms = solo.module.snapshots.find_newest_time_ms()

    assert newest_ms == next(entry.timestamp for entry in recording_log.entries if entry.is_valid_term)


# --- with a standby


def lead_with_standby(**policy: int) -> Solo:
    """A leader with limits, in whose term a standby takes part."""
    solo = with_standbys(lead(**policy))
    commit(solo)
    follow_on(solo)
    return solo


def follow_on(solo: Solo) -> None:
    """The standby, and member 1, report where the log ends."""
    for member_id in (1, STANDBY):
        solo.feed(solo.append_position(member_id, solo.ctx.append_position))


def asked_standbys(solo: Solo, seconds: int) -> list[int]:
    """Let a second pass and another; give where the standbys were asked for a snapshot, as entries that commit."""
    found: list[int] = []
    for _ in range(seconds):
        solo.wait(S)
        commit(solo)
        follow_on(solo)
        if solo.module.actions.toggle is ControlToggle.STANDBY_SNAPSHOT:
            position = solo.ctx.log_buffer.append_position
            deliver_action(solo, action(position, flags=CLUSTER_ACTION_FLAGS_STANDBY_SNAPSHOT))
            found.append(position)
    return found


def test_standby_is_asked_where_one_takes_part_and_no_member_takes_a_snapshot() -> None:
    solo = lead_with_standby(interval_ns=60 * S)

    (position,) = asked_standbys(solo, 61)

    assert begins(solo.effects) == []
    assert solo.module.standbys.is_awaiting
    solo.ctx.commit_position = position
    solo.feed(offer(position, term_base=solo.ctx.term_base_log_position, term_id=solo.ctx.leadership_term_id))
    solo.feed(ev.StandbySnapshotFetched(position, (24,), 25))
    assert not solo.module.standbys.is_awaiting
    assert asked_standbys(solo, 30) == []


def test_members_take_the_next_one_where_nothing_came_of_the_standby() -> None:
    solo = lead_with_standby(interval_ns=60 * S)
    (position,) = asked_standbys(solo, 61)

    solo.feed(offer(position, service_ids=()))
    again = asked_standbys(solo, 3)

    assert (again, len(begins(solo.effects))) == ([], 1)


def test_members_take_them_while_no_standby_takes_part() -> None:
    solo = with_standbys(lead(interval_ns=60 * S))

    assert len(let_pass(solo, 61)) == 1
