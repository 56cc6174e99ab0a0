"""The planted bug and the directed scenario of code that was changed between two starts of a member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trimaran.cluster.service.service_code import CodeGuard
from trimaran.cluster.testing.simulation.world.expect import expect

from .plant import Plant, Planting

if TYPE_CHECKING:
    from .scenarios import Scene


def a_member_with_other_code(scene: Scene) -> None:
    """A follower comes back with another version of the services: it does not replay what the old one ran."""
    scene.start()
    scene.add_client()
    scene.run_until(lambda: scene.history.acknowledged_count >= 20, 10, "a cluster serves")
    member = scene.followers()[0]
    scene.cluster.kill(member.member_id)
    old = member.config
    member.config = old.model_copy(update={"app_version": old.app_version + 1})
    scene.failures[member.member_id] = None
    scene.cluster.start(member.member_id)
    scene.run(1)
    expect(not member.is_running, "other code replays no old entries unasked", member=member.member_id)
    member.config = member.config.model_copy(update={"accept_code": "any"})
    scene.cluster.start(member.member_id)
    scene.run(1)
    expect(member.is_running, "other code replays old entries once it is told to", member=member.member_id)


def _replay_with_whatever_code(planting: Planting) -> None:
    def check(self: CodeGuard, event: Any, code_digest: int) -> None:
        if (code_digest, event.app_version) != (self.digest, self.app_version):
            planting.ran()

    planting.replace(CodeGuard, "check", check)


PLANTS = (
    Plant(
        "other-code-replays",
        31,
        "other code replays no old entries unasked",
        _replay_with_whatever_code,
        scenario="other-code",
    ),
)
