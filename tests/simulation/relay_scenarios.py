"""A directed scenario of what services send themselves when the leader that would have appended it dies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimaran.cluster.testing.simulation.cluster import Member
from trimaran.cluster.testing.simulation.services.relay import SERVICE_ID
from trimaran.cluster.testing.simulation.world.network import LinkQuality

if TYPE_CHECKING:
    from .scenarios import Scene

_MS = 1_000_000


def a_leader_that_dies_with_the_offers(scene: Scene) -> None:
    """A leader dies when the others have delivered what made services offer, and the offers have not come to them.

    They have offered the same: whoever leads next appends it.
    """
    scene.cluster.network.quality = LinkQuality(_MS, 8 * _MS)
    scene.start()
    scene.add_client()
    for _ in range(3):
        followers = scene.followers()
        scene.run_until(
            lambda followers=followers: all(map(_offers_beyond_its_log, followers)),  # type: ignore[misc]
            60,
            "a commit overtakes the log",
        )
        leader = scene.await_leader()
        for transport in [*scene.cluster.network.transports]:
            if transport.address[0] == leader.machine.address:
                scene.cluster.network.reset(transport)  # and what is on its way is gone with it
        scene.cluster.kill(leader.member_id)
        scene.run_until(lambda: scene.cluster.leader() is not None, 20, "a majority has a leader")
        scene.cluster.start(leader.member_id)
        scene.run(1)
        scene.expect_service("a majority with a leader serves", for_s=1, gap_s=5)


def _offers_beyond_its_log(member: Member) -> bool:
    """Whether services of a follower wait for messages of which its log has nothing yet."""
    if member.node is None or member.node.module.follower is None:
        return False
    tracker = member.node.module.service_messages.trackers[SERVICE_ID]
    return len(tracker) > 0 and member.node.module.ctx.append_position == member.node.delivered_position
