"""An operator who has members scrub what they have recorded, in the middle of everything else.

What a scrub finds it mends with what other members have. Whatever it took, a member's log is the committed one then.
"""

from __future__ import annotations

from random import Random
from typing import Final

from .....service_api.types import MemberId
from ....node.node import Node
from ..cluster import Member, SimulatedCluster
from ..rules.referee import Referee
from ..world.expect import expect

SCRUB: Final = "scrub"
"""Members are asked to scrub. Drawn once a seed."""

_CHANCE: Final = 0.4


def has_scrubs(seed: int) -> bool:
    """Whether an operator asks the members of a seed for scrubs."""
    return Random(f"{seed} {SCRUB}").random() < _CHANCE


class Scrubs:
    """Asks for scrubs, now and then, and judges what was mended."""

    def __init__(self, cluster: SimulatedCluster, referee: Referee) -> None:
        self.asked_count = 0
        self._cluster, self._referee = cluster, referee
        self._random = Random(f"{cluster.seed} when to {SCRUB}")
        self._unit_ns = cluster.settings.leader_heartbeat_timeout_ns
        self._seen: dict[MemberId, tuple[Node, int]] = {}
        """How many places the node of each member had mended when it was last looked at."""
        self._plan()
        self._look()

    def __repr__(self) -> str:
        return f"<Scrubs asked={self.asked_count}>"

    def _plan(self) -> None:
        self._cluster.scheduler.call_after(int(self._random.expovariate(1.0) * self._unit_ns) + 1, self._ask)

    def _ask(self) -> None:
        member = self._random.choice([*self._cluster.members.values()])
        loop, node = member.machine.loop, member.node
        if loop is not None and node is not None and not member.is_paused:
            loop.call_soon(node.upkeep.ask)
            self.asked_count += 1
        self._plan()

    def _look(self) -> None:
        for member in self._cluster.running():
            if member.node is not None:
                self._look_at(member, member.node)
        self._cluster.scheduler.call_after(self._unit_ns // 8, self._look)

    def _look_at(self, member: Member, node: Node) -> None:
        seen_node, seen_count = self._seen.get(member.member_id, (None, 0))
        mended_count = node.upkeep.counts.mended_count
        if (seen_node is node and seen_count == mended_count) or mended_count == 0:
            return
        self._seen[member.member_id] = node, mended_count
        if node.upkeep.damage.places:
            return  # what is not mended yet is known to be wrong
        begin = self._referee.disks.kept_log(member).start_position
        end = min(node.module.ctx.commit_position, len(self._referee.committed))
        log = self._referee.disks.durable_log(member, begin, end)
        expect(
            log == self._referee.committed[begin : begin + len(log)],
            "a scrub mends a log with what is committed",
            member=member.member_id,
            begin=begin,
            end=end,
            mended_count=mended_count,
        )
