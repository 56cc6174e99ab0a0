"""How fast the disks and links of a simulated cluster are while no fault strikes: drawn once for each seed."""

from __future__ import annotations

from random import Random
from typing import Final

from ..cluster import Member, SimulatedCluster
from ..world.network import LinkQuality

_MS: Final = 1_000_000


def draw_timing(cluster: SimulatedCluster, member: Member) -> None:
    """Give a member's disk its ordinary speed: the same one whenever it is drawn."""
    random = Random(f"{cluster.world.seed} timing {member.member_id}")
    timing = member.machine.timing
    timing.min_ns = random.choice((30_000, 80_000, 400_000))
    timing.mean_ns = timing.min_ns * random.choice((2, 3, 8))


def draw_quality(cluster: SimulatedCluster) -> LinkQuality:
    """Return the ordinary quality of all links: the same one whenever it is drawn."""
    random = Random(f"{cluster.world.seed} quality")
    mean_ns = random.choice((150_000, 500_000, 2 * _MS, cluster.settings.leader_heartbeat_timeout_ns // 200))
    return LinkQuality(mean_ns // 3, mean_ns, random.choice((0.0, 0.0, 0.05, 0.3)))
