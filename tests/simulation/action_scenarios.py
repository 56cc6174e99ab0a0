"""Directed scenarios of what an operator orders: a shutdown, a suspension, an order that comes to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimaran.cluster.core.control_toggle import ControlToggle
from trimaran.cluster.core.events import ActionRequested
from trimaran.cluster.core.module_state import ModuleState
from trimaran.cluster.simulation.cluster import Member
from trimaran.cluster.simulation.rules import expect

if TYPE_CHECKING:
    from .scenarios import Scene


def a_cluster_that_stops(scene: Scene) -> None:
    """A cluster is shut down just after a follower died: it comes back at once, and all stop at one position.

    Then all start again, each from its snapshot.
    """
    leader = scene.start()
    workload = scene.add_client()
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
    workload.stop()


def a_suspended_cluster(scene: Scene) -> None:
    """The leader of a suspended cluster dies: the next one takes no input either, until it is told to resume."""
    leader = scene.start()
    workload = scene.add_client()
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
    workload.stop()


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


def _order(member: Member, action: ControlToggle) -> None:
    assert member.node is not None
    assert member.machine.loop is not None
    member.machine.loop.call_soon(member.node.agent.post, ActionRequested(0, action))
