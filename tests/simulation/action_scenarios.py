"""Directed scenarios of what an operator orders: a shutdown, a suspension, an order that comes to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimaran.cluster.core.events import ActionRequested, TransferRequested
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.core.vocabulary.module_state import ModuleState
from trimaran.cluster.testing.simulation.cluster import Member
from trimaran.cluster.testing.simulation.world.expect import expect

if TYPE_CHECKING:
    from .scenarios import Scene


def a_cluster_that_stops(scene: Scene) -> None:
    """A cluster is shut down just after a follower died: it comes back at once, and all stop at one position.

    Then all start again, each from its snapshot.
    """
    leader = scene.start()
    client = scene.add_client()
    scene.run_until(lambda: scene.history.acknowledged_count >= 20, 10, "a cluster serves")
    late = next(member for member in scene.cluster.members.values() if member is not leader)
    elections = scene.referee.counts.elections
    scene.cluster.kill(late.member_id)
    _order(leader, ControlToggle.SHUTDOWN)
    scene.run(0.3)
    scene.cluster.start(late.member_id)
    scene.run_until(
        lambda: not any(member.is_running for member in scene.cluster.members.values()),
        12,
        "a cluster that is shut down stops, all of it",
    )
    expect(scene.referee.counts.elections == elections, "nobody is elected because members stop", elections=elections)
    expect(not scene.cluster.unhandled, "no error is left unhandled", errors=scene.cluster.unhandled[:3])
    loaded = scene.referee.counts.loaded_snapshots
    scene.start()
    count = scene.history.acknowledged_count
    scene.run_until(lambda: scene.history.acknowledged_count > count, 20, "a cluster serves after a shutdown")
    expect(
        scene.referee.counts.loaded_snapshots == loaded + len(scene.cluster.members),
        "a cluster that was shut down starts from its snapshots",
        loaded=scene.referee.counts.loaded_snapshots,
    )
    client.stop()


def a_suspended_cluster(scene: Scene) -> None:
    """The leader of a suspended cluster dies: the next one takes no input either, until it is told to resume."""
    leader = scene.start()
    client = scene.add_client()
    scene.run(1)
    _order(leader, ControlToggle.SUSPEND)
    scene.run(1)
    count = scene.history.acknowledged_count
    scene.run(3)
    scene.cluster.kill(leader.member_id)
    scene.run_until(lambda: scene.cluster.leader() not in (None, leader), 30, "a majority has a leader")
    scene.run(3)
    expect(scene.history.acknowledged_count <= count + 1, "a suspended cluster answers nobody")
    scene.referee.actions.expect_held(scene.referee.committed)
    _order(scene.await_leader(), ControlToggle.RESUME)
    scene.expect_service("a cluster that was resumed serves again", for_s=3, gap_s=5)
    scene.referee.actions.expect_held(scene.referee.committed)
    client.stop()


def an_order_that_comes_to_nothing(scene: Scene) -> None:
    """A leader that is cut off suspends the cluster for itself alone: back among the others it takes input again."""
    leader = scene.start()
    scene.add_client()
    scene.run(1)
    scene.isolate(leader)
    _order(leader, ControlToggle.SUSPEND)
    scene.run(0.1)
    scene.run_until(lambda: scene.cluster.leader() not in (None, leader), 30, "a majority has a leader")
    scene.cluster.network.unblock_all()
    scene.run_until(lambda: leader.node is not None and leader.node.module.follower is not None, 30, "it follows")
    scene.run(1)
    successor = scene.await_leader()
    scene.cluster.kill(successor.member_id)
    spare = next(member for member in scene.cluster.members.values() if member not in (leader, successor))
    scene.run_until(lambda: scene.cluster.leader() in (leader, spare), 30, "a majority has a leader")
    for member in (leader, spare):
        assert member.node is not None
        expect(
            member.node.module.actions.state is ModuleState.ACTIVE,
            "an action that did not commit is rolled back",
            member=member.member_id,
            state=member.node.module.actions.state.name,
        )


def a_leader_that_hands_over(scene: Scene) -> None:
    """First to a member that stands still: the leader gives up, and that member, when it goes on, does not stand.

    Then under a load that keeps every follower behind: the member stands when it has everything, and wins at once.
    """
    leader = scene.start()
    client = scene.add_client()
    scene.run_until(lambda: scene.history.acknowledged_count >= 20, 10, "a cluster serves")
    target = scene.followers()[0]
    assert leader.node is not None
    transfer = leader.node.module.transfer
    _hand_over(leader, target)
    scene.run_until(lambda: transfer.asked_id == target.member_id, 0.2, "a follower comes to have the whole log")
    scene.cluster.pause(target.member_id)
    scene.run(0.3)
    scene.expect_service("a leader that gives a transfer up serves again", for_s=0.3, gap_s=0.2)
    elections = scene.referee.counts.elections
    scene.cluster.resume(target.member_id)
    scene.run(1)
    expect(scene.cluster.leader() is leader, "a transfer that was given up is not obeyed later", cluster=scene.cluster)
    expect(scene.referee.counts.elections == elections, "a transfer that was given up is not obeyed later")
    term_id = _term_id(leader)
    scene.add_flood("flood", 1_000)
    scene.run(0.5)
    scene.run_until(lambda: _end_position(leader) >= _end_position(target) + 8_192, 5, "a load keeps followers behind")
    _hand_over(leader, target)
    actions = leader.node.module.actions
    scene.run_until(lambda: actions.is_holding, 0.1, "a leader that hands over takes no input")
    end_position = _end_position(leader)
    rule = "the member that the leader asks to stand leads the next term"
    scene.run_until(lambda: scene.cluster.leader() is target, 1, rule)
    expect(_term_id(target) == term_id + 1, rule, term=_term_id(target), before=term_id)
    assert target.node is not None
    base = target.node.module.ctx.term_base_log_position
    expect(base == end_position, "nothing of the log is lost in a hand-over", expected=end_position, actual=base)
    scene.expect_service("clients are served after a hand-over", for_s=2, gap_s=1)
    client.stop()


def _hand_over(leader: Member, target: Member) -> None:
    _post(leader, TransferRequested(0, target.member_id))


def _end_position(member: Member) -> int:
    assert member.node is not None
    return member.node.module.ctx.log_buffer.append_position


def _term_id(member: Member) -> int:
    assert member.node is not None
    return member.node.module.ctx.leadership_term_id


def _order(member: Member, action: ControlToggle) -> None:
    _post(member, ActionRequested(0, action))


def _post(member: Member, order: ActionRequested | TransferRequested) -> None:
    assert member.node is not None
    assert member.machine.loop is not None
    member.machine.loop.call_soon(member.node.agent.post, order)
