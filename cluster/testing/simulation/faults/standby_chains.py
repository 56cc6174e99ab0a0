"""An operator who has standbys follow other members, and what becomes of those while they are followed.

A standby that follows another member, its *source*, has to come to everything by itself, whatever its source does: it
dies, stands still, loses its disk, is removed, is promoted, or cannot be reached from the standby alone. The acts are
aimed at sources, which other kinds of faults meet seldom. In the end a source may be left for dead while it is
followed: then the standby is among those that come to rest, all equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from trimaran.cluster.core.vocabulary.configuration import MemberKind
from trimaran.cluster.testing.simulation.cluster import Member, SimulatedCluster
from trimaran.cluster.testing.simulation.faults.member_orders import MemberOrders
from trimaran.cluster.testing.simulation.rules.membership_rules import MembershipRules
from trimaran.cluster.testing.simulation.world.expect import expect
from trimaran.service_api.types import MemberId

CHAIN: Final = "chain"
"""Standbys follow other members, mostly standbys."""

_LINK_CHANCE: Final = 0.25
"""How often another standby is made to follow, while one does already."""

_DEAD_CHANCE: Final = 0.6
"""How often a standby that is followed is left for dead in the end."""


@dataclass(slots=True, frozen=True)
class SourceFaults:
    """What can become of a source, by those who do it. Each returns whether it could be done."""

    kill: Callable[[Member, Random], bool]
    pause: Callable[[Member, Random], bool]
    wipe: Callable[[Member, Random], bool]
    cut: Callable[[Member, Member, Random], bool]
    """Cuts the links between two members."""


class StandbyChains:
    """Has standbys follow other members, strikes at those, and judges from whom a standby takes the log."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        rules: MembershipRules,
        orders: MemberOrders,
        faults: SourceFaults,
    ) -> None:
        self.relayed_count = 0
        """How often a standby was seen that took the log from another member than the leader."""
        self._cluster, self._rules, self._orders, self._faults = cluster, rules, orders, faults
        self._unit_ns = cluster.settings.leader_heartbeat_timeout_ms * 1_000_000
        self._random_end = Random(f"{cluster.seed} end of the {CHAIN}")
        self._look()

    def __repr__(self) -> str:
        return f"<StandbyChains {[(one.member_id, source.member_id) for one, source in self.links()]}>"

    def strike(self, random: Random) -> bool:
        """Have a standby follow another member, or do something to one that is followed."""
        wants_link, links = random.random() < _LINK_CHANCE, self.links()
        if wants_link or not links:
            return self._link(random)
        follower, source = random.choice(links)
        act = random.choice(
            (self._kill, self._kill, self._pause, self._cut, self._wipe, self._remove, self._promote, self._unlink)
        )
        return act(follower, source, random)

    def links(self) -> list[tuple[Member, Member]]:
        """Return the standbys whose settings name a member to take the log from, each with that member."""
        found = []
        for follower in self._standbys():
            source_id = follower.config.log_source_id
            if source_id is not None and self._rules.current.find(source_id) is not None:
                found.append((follower, self._cluster.members[source_id]))
        return found

    def draw_dead(self) -> list[Member]:
        """Draw which standbys are to be left for dead in the end although others follow them: at most one."""
        standbys = self._standbys()
        followed = [source for _, source in self.links() if source in standbys]
        if not followed or self._random_end.random() >= _DEAD_CHANCE:
            return []
        return [self._random_end.choice(followed)]

    # --- what the operator does

    def _standbys(self) -> list[Member]:
        current = self._rules.current
        standby_ids = [one.member_id for one in current.members if one.kind is MemberKind.STANDBY]
        return [self._cluster.members[member_id] for member_id in sorted(standby_ids)]

    def _link(self, random: Random) -> bool:
        """A standby is to follow another one, or any member that is older; or a new one comes, which follows."""
        standbys, may_follow_any = self._standbys(), random.random() < 0.2
        if not standbys:
            return False
        if len(standbys) == 1 or random.random() < 0.3:
            return self._orders.add_standby(random, log_source_id=random.choice(standbys).member_id)
        follower = random.choice(standbys[1:])
        older_ids = [
            one.member_id
            for one in self._rules.current.members
            if one.member_id < follower.member_id and (may_follow_any or one.kind is MemberKind.STANDBY)
        ]
        return self._orders.follow(follower, random.choice(older_ids))

    def _unlink(self, follower: Member, source: Member, random: Random) -> bool:
        return self._orders.follow(follower, None)

    def _remove(self, follower: Member, source: Member, random: Random) -> bool:
        return self._orders.remove_member(source.member_id, random)

    def _promote(self, follower: Member, source: Member, random: Random) -> bool:
        return self._orders.promote(source.member_id, random)

    # --- what becomes of sources

    def _kill(self, follower: Member, source: Member, random: Random) -> bool:
        return self._faults.kill(source, random)

    def _pause(self, follower: Member, source: Member, random: Random) -> bool:
        return self._faults.pause(source, random)

    def _wipe(self, follower: Member, source: Member, random: Random) -> bool:
        return self._faults.wipe(source, random)

    def _cut(self, follower: Member, source: Member, random: Random) -> bool:
        return self._faults.cut(follower, source, random)

    # --- the rule

    def _look(self) -> None:
        for member in self._cluster.running():
            if member.node is not None and member.node.module.ctx.is_relayed:
                self._on_relayed(member, member.node.module.ctx.log_source_id)
        self._cluster.scheduler.call_after(self._unit_ns // 8, self._look)

    def _on_relayed(self, member: Member, source_id: MemberId | None) -> None:
        self.relayed_count += 1
        expect(
            source_id is not None and source_id == member.config.log_source_id and source_id < member.member_id,
            "a member takes the log from the leader, or from the older member that its settings name",
            member=member.member_id,
            source=source_id,
            wanted=member.config.log_source_id,
        )
