"""A bit that flips where no start of its member looks, while another member needs what is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from trimaran.cluster.testing.simulation.cluster import Member, SimulatedCluster
from trimaran.cluster.testing.simulation.faults.disk_faults import draw_bit
from trimaran.cluster.testing.simulation.faults.member_orders import MemberOrders
from trimaran.cluster.testing.simulation.rules.referee import Referee


class HiddenFlip:
    """Flips a bit of the leader's log below its newest snapshot, and has another member lose its disk.

    What that member needs, a third one has: the cluster heals itself, and nobody has a cause to stop. The bit is put
    right once that member has everything.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        referee: Referee,
        orders: MemberOrders,
        *,
        may_strike: Callable[[], bool],
        lose_disk: Callable[[Member, Random], None],
    ) -> None:
        self._cluster, self._referee, self._orders = cluster, referee, orders
        self._may_strike, self._lose_disk = may_strike, lose_disk
        self._flipped: tuple[Member, Path, int, bytes] | None = None
        """Whose disk has the bit flipped: in which file, at which offset, the whole byte."""

    def __repr__(self) -> str:
        return f"<HiddenFlip flipped={self._flipped}>"

    def strike(self, random: Random) -> bool:
        """Flip a bit; False if the cluster might not heal itself, or there is no such place."""
        leader, referee = self._cluster.leader(), self._referee
        members = voters_of(self._cluster, referee)
        if leader not in members or leader.node is None or len(members) < 3 or not self._may_strike():
            return False
        if referee.damaged or len(self._orders.reachable()) > 1:
            return False
        wiped = random.choice([member for member in members if member is not leader])
        rest = [member for member in members if member is not wiped]
        is_served = any(member is not leader and not member.config.is_witness for member in rest)  # with a snapshot
        if not (is_served and all(referee.has_joined(member) and referee.is_sound(member) for member in rest)):
            return False
        snapshot_position = leader.node.module.snapshots.newest_position
        segment_length = leader.config.segment_length_bytes
        newest_base = len(referee.committed) // segment_length * segment_length  # a start looks for the end in there
        begin, end = leader.node.log_start_position, min(snapshot_position or 0, newest_base)
        places = [at for at in referee.delivered if begin <= at < end]
        place = draw_bit(places[random.randrange(len(places))], leader, random) if places else None
        if place is None:
            return False
        path, offset, bit = place
        disk = leader.machine.disk
        if not (data := disk.durable_read(path, 1, offset)):
            return False
        disk.damage(path, offset, bytes([data[0] ^ bit]))
        self._flipped = leader, path, offset, data
        referee.damaged[leader.member_id] = None
        self._lose_disk(wiped, random)
        return True

    def mend(self) -> None:
        """Put the bit right, if nobody has mended it; a segment that was purged meanwhile has none."""
        if self._flipped is None:
            return
        (member, path, offset, whole), self._flipped = self._flipped, None
        if member.machine.disk.durable_read(path, 1, offset):
            member.machine.disk.damage(path, offset, whole)
        self._referee.damaged.pop(member.member_id, None)


def voters_of(cluster: SimulatedCluster, referee: Referee) -> list[Member]:
    """Return the voters of the cluster, as it is now."""
    voter_ids = referee.membership.current.voter_ids
    return [member for member in cluster.members.values() if member.member_id in voter_ids]
