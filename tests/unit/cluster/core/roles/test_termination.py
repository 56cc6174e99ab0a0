"""Stopping a whole cluster at one position: who is told, how often, who waits for whom, and what calls it off."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.roles.test_actions import ask, commit, details, lead, steps
from tests.unit.cluster.core.sessions.test_sessions import lose_leadership
from tests.unit.cluster.core.snapshots.test_snapshot import action, deliver_action
from tests.unit.cluster.core.solo import Solo, before, messages, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.control_toggle import ActionStep, ControlToggle
from trimaran.cluster.core.vocabulary.module_state import ModuleState
from trimaran.cluster.messages.consensus import TerminationAck, TerminationPosition
from trimaran.service_api.types import MemberId, TermId

T, M, A = ControlToggle, ModuleState, ActionStep
SECOND = 1_000 * MS


def ack(member_id: int, position: int, *, term_id: int = 0) -> TerminationAck:
    return TerminationAck(leadership_term_id=TermId(term_id), log_position=position, member_id=MemberId(member_id))


def stop_at(position: int, *, term_id: int = 1) -> TerminationPosition:
    return TerminationPosition(leadership_term_id=TermId(term_id), log_position=position)


def follower(position: int = 64) -> Solo:
    """A follower of member 1 in term 1 that has recorded the log up to a position."""
    return Solo(terms=[(0, 0, position)]).follow()


def told(effects: list[fx.Effect]) -> list[tuple[int, int]]:
    return [
        (effect.member_id, effect.message.log_position)
        for effect in of(effects, fx.SendToMember)
        if isinstance(effect.message, TerminationPosition)
    ]


def wait_alive(solo: Solo, duration_ns: int) -> list[fx.Effect]:
    """Let time pass while member 1 goes on reporting."""
    effects: list[fx.Effect] = []
    for _ in range(duration_ns // (100 * MS)):
        effects += solo.wait(100 * MS) + solo.feed(solo.append_position(1, solo.ctx.append_position))
    return effects


# --- the leader


def test_followers_are_told_once_the_position_is_committed() -> None:
    solo = lead()

    at_once = solo.feed(ev.ActionRequested(1, T.SHUTDOWN))
    position = solo.ctx.log_buffer.append_position
    effects = commit(solo)

    assert told(at_once) == []
    assert told(effects) == [(1, position), (2, position)]
    assert of(effects, fx.AwaitDelivery) == [fx.AwaitDelivery(position)]


def test_leader_stops_last_and_writes_down_where_the_term_ends() -> None:
    """Source: aeron.md §3.11."""
    solo = lead()
    ask(solo, T.ABORT)
    position = solo.ctx.log_buffer.append_position

    delivered = solo.feed(ev.DeliveredTo(position))
    first = solo.feed(ack(1, position))
    second = solo.feed(ack(2, position))

    assert of([*delivered, *first], fx.Terminate) == []
    assert [effect.log_position for effect in of(second, fx.Terminate)] == [position]
    assert before(second, fx.PersistRecordingLog, fx.Terminate)
    assert steps(second)[-1] == (A.DONE, position, True)
    assert solo.module.actions.state is M.CLOSED
    last = solo.ctx.recording_log.last_term()
    assert last is not None
    assert last.log_position == position


def test_shutdown_waits_for_the_leaders_own_snapshot() -> None:
    solo = lead()
    ask(solo, T.SHUTDOWN)
    position = solo.ctx.log_buffer.append_position
    commit(solo)
    deliver_action(solo, action(position))
    early = solo.feed(ev.DeliveredTo(position), ack(1, position), ack(2, position))

    effects = solo.feed(ev.SnapshotTaken(position, (4,), 5))

    assert of(early, fx.Terminate) == []
    assert len(of(effects, fx.Terminate)) == 1
    assert [step for step, _, _ in steps(effects)] == [A.SNAPSHOT_TAKEN, A.DONE]


def test_shutdown_whose_snapshot_failed_on_the_leader_stops_all_the_same_and_says_so() -> None:
    """Followers may have theirs and stop; the log holds everything."""
    solo = lead()
    ask(solo, T.SHUTDOWN)
    position = solo.ctx.log_buffer.append_position
    commit(solo)
    deliver_action(solo, action(position))
    solo.feed(ev.DeliveredTo(position), ack(1, position), ack(2, position))

    effects = solo.feed(ev.SnapshotFailed(position, "disk full"))

    assert len(of(effects, fx.Terminate)) == 1
    assert steps(effects) == [(A.FAILED, position, True)]
    assert details(effects) == ["the leader took no snapshot: disk full"]


def test_leader_waits_no_longer_than_its_deadline_and_names_who_did_not_acknowledge() -> None:
    solo = lead()
    ask(solo, T.ABORT)
    position = solo.ctx.log_buffer.append_position
    solo.feed(ev.DeliveredTo(position), ack(1, position))

    early = wait_alive(solo, 9 * SECOND)
    late = wait_alive(solo, 2 * SECOND)

    assert of(early, fx.Terminate) == []
    assert len(of(late, fx.Terminate)) == 1
    assert details(late)[-1] == "no word from members [2] within 10 s"
    assert steps(late)[-1] == (A.FAILED, position, True)


def test_leader_does_not_wait_for_a_member_that_is_down() -> None:
    """It learns nothing however long the leader stays. But one that stops closes its links while its word may be on
    its way, so a link that is closed is not enough."""
    solo = lead()
    solo.feed(ev.LinkChanged(MemberId(2), is_up=False))
    ask(solo, T.ABORT)
    position = solo.ctx.log_buffer.append_position
    solo.feed(ev.DeliveredTo(position), ack(1, position))
    timeout_ns = solo.ctx.config.leader_heartbeat_timeout_ns

    early = wait_alive(solo, timeout_ns - 200 * MS)
    late = wait_alive(solo, 400 * MS)

    assert of(early, fx.Terminate) == []
    assert len(of(late, fx.Terminate)) == 1
    assert details(late)[-1] == "members [2] are down"
    assert steps(late)[-1] == (A.FAILED, position, True)


@pytest.mark.parametrize("is_up", [True, False], ids=["silent, with a link", "the other one, too"])
def test_leader_waits_until_its_deadline_where_somebody_may_be_left_to_elect(is_up: bool) -> None:
    """A member may be alive behind a broken network; two of three would go on with the log, and lead."""
    solo = lead()
    for member_id in () if is_up else (1, 2):
        solo.feed(ev.LinkChanged(MemberId(member_id), is_up=False))
    ask(solo, T.ABORT)
    position = solo.ctx.log_buffer.append_position
    solo.feed(ev.DeliveredTo(position), *([ack(1, position)] if is_up else []))

    assert of(solo.wait(9 * SECOND), fx.Terminate) == []
    assert len(of(solo.wait(2 * SECOND), fx.Terminate)) == 1


def test_leader_begins_no_election_because_followers_stop_one_after_another() -> None:
    solo = lead()
    ask(solo, T.ABORT)
    position = solo.ctx.log_buffer.append_position
    solo.feed(ack(1, position), ev.LinkChanged(MemberId(1), is_up=False), ev.LinkChanged(MemberId(2), is_up=False))

    effects = solo.wait(8 * SECOND)

    assert solo.module.election is None
    assert told(effects).count((2, position)) >= 30


def test_acknowledgement_of_another_term_or_position_counts_for_nothing() -> None:
    """Source: aeron.md §3.11."""
    solo = lead()
    ask(solo, T.ABORT)
    position = solo.ctx.log_buffer.append_position
    solo.feed(ev.DeliveredTo(position))

    effects = solo.feed(ack(1, position, term_id=5), ack(2, position + 32), ack(1, position), ack(1, position))

    assert of(effects, fx.Terminate) == []


def test_only_member_needs_nobody_to_stop() -> None:
    solo = Solo(member_count=1)
    solo.feed(ev.ReplayDone(0, 0))
    assert solo.module.leader is not None
    solo.record()
    ask(solo, T.ABORT)

    effects = solo.feed(ev.DeliveredTo(solo.ctx.log_buffer.append_position))

    assert len(of(effects, fx.Terminate)) == 1


def test_termination_of_a_deposed_leader_is_called_off() -> None:
    """Source: aeron.md §3.12."""
    solo = lead()
    ask(solo, T.ABORT)
    position = solo.ctx.log_buffer.append_position

    effects = lose_leadership(solo)
    later = solo.feed(ev.DeliveredTo(position), ack(1, position), ack(2, position))

    assert [step for step, _, _ in steps(effects)] == [A.UNKNOWN]
    assert of(later, fx.Terminate) == []
    assert solo.module.actions.state is M.ACTIVE


# --- a follower


def test_follower_stops_when_its_log_is_delivered_that_far_and_acknowledges_what_is_durable() -> None:
    """Source: aeron.md §3.11."""
    solo = follower()

    heard = solo.feed(stop_at(64))
    effects = solo.feed(ev.DeliveredTo(64))

    assert of(heard, fx.AwaitDelivery) == [fx.AwaitDelivery(64)]
    assert messages(effects, TerminationAck, to=1) == [ack(0, 64, term_id=1)]
    assert before(effects, fx.PersistRecordingLog, TerminationAck)
    assert [effect.log_position for effect in of(effects, fx.Terminate)] == [64]


def test_follower_finishes_its_snapshot_first() -> None:
    solo = follower()
    deliver_action(solo, action(64))

    early = solo.feed(stop_at(64), ev.DeliveredTo(64))
    effects = solo.feed(ev.SnapshotTaken(64, (4,), 5))

    assert of(early, fx.Terminate) == []
    assert len(of(effects, fx.Terminate)) == 1


def test_follower_that_is_told_again_does_nothing_new() -> None:
    solo = follower()
    solo.feed(stop_at(64))

    assert of(solo.feed(stop_at(64)), fx.AwaitDelivery) == []


def test_follower_heeds_no_termination_of_another_term() -> None:
    solo = follower()

    effects = solo.feed(stop_at(64, term_id=0), ev.DeliveredTo(64))

    assert of(effects, fx.Terminate) == []


@pytest.mark.parametrize(
    "lost",
    [ev.LinkChanged(MemberId(1), is_up=False), ev.LogImageClosed(77, "closed")],
    ids=["consensus link", "log link"],
)
def test_follower_that_knows_where_to_stop_needs_no_leader_for_it(lost: object) -> None:
    solo = follower()
    solo.feed(stop_at(64))

    solo.feed(lost)
    solo.wait(5 * SECOND)
    assert solo.module.election is None
    effects = solo.feed(ev.DeliveredTo(64))

    assert len(of(effects, fx.Terminate)) == 1


def test_follower_that_lacks_some_of_the_log_needs_a_leader() -> None:
    solo = follower()
    solo.feed(stop_at(96))

    solo.feed(ev.LinkChanged(MemberId(1), is_up=False))
    effects = solo.feed(ev.DeliveredTo(96))

    assert solo.module.election is not None
    assert of(effects, fx.Terminate) == []


def test_follower_drops_a_termination_when_a_member_stands_for_a_higher_term() -> None:
    solo = follower()
    solo.feed(stop_at(64))

    lose_leadership(solo)
    effects = solo.feed(ev.DeliveredTo(64))

    assert of(effects, fx.Terminate) == []
