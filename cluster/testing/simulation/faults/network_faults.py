"""What goes wrong between the machines of a simulated cluster: links that are slow, break, or are cut."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from trimaran.cluster.testing.simulation.cluster import Member, SimulatedCluster
from trimaran.cluster.testing.simulation.world.network import LinkQuality

_MS: Final = 1_000_000


class NetworkFaults:
    """Makes links fail, and restores them after a while. Each fault returns whether there was a link to strike."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        *,
        unit_ns: int,
        after: Callable[..., None],
        draw_member: Callable[[Random], Member],
        draw_duration_ns: Callable[[Random, float], int],
    ) -> None:
        self._cluster, self._network, self._unit_ns = cluster, cluster.network, unit_ns
        self._after, self._draw_member, self._draw_duration_ns = after, draw_member, draw_duration_ns
        self._is_over = False
        self._base_quality = _draw_quality(Random(f"{cluster.world.seed} quality"), unit_ns)
        self._network.quality = self._base_quality

    def __repr__(self) -> str:
        return f"<NetworkFaults quality={self._network.quality}>"

    def delay(self, random: Random) -> bool:
        """Every link is slow for a while."""
        mean_ns = int(self._unit_ns * random.choice((0.005, 0.02, 0.1)))
        self._network.quality = LinkQuality(mean_ns // 4, mean_ns, self._base_quality.split_rate)
        self._after(self._draw_duration_ns(random, 1.0), self._restore_quality)
        return True

    def _restore_quality(self) -> None:
        self._network.quality = self._base_quality

    def reset(self, random: Random) -> bool:
        """A connection breaks."""
        transports = [*self._network.transports]
        if transports:
            self._network.reset(transports[random.randrange(len(transports))])
        return bool(transports)

    def stall(self, random: Random) -> bool:
        """Two machines hear nothing of each other for a moment."""
        names = self._addresses()
        first, second = random.sample(names, 2)
        return self._cut([(first, second), (second, first)], self._draw_duration_ns(random, 0.15))

    def partition(self, random: Random) -> bool:
        """The machines are cut into two halves."""
        names = self._addresses()
        side = [name for name in names if random.random() < 0.5]
        other = [name for name in names if name not in side]
        pairs = [(a, b) for a in side for b in other]
        return self._cut(pairs + [(b, a) for a, b in pairs], self._draw_duration_ns(random, 1.5))

    def one_way(self, random: Random) -> bool:
        """A member hears nobody, or nobody hears it."""
        names = [member.machine.address for member in self._cluster.members.values()]
        victim = self._draw_member(random).machine.address
        others = [name for name in names if name != victim and random.random() < 0.7]
        is_deaf = random.random() < 0.5
        return self._cut(
            [(name, victim) if is_deaf else (victim, name) for name in others], self._draw_duration_ns(random, 1.5)
        )

    def isolate(self, random: Random) -> bool:
        """A member is cut off from everybody."""
        victim = self._draw_member(random).machine.address
        names = [name for name in self._addresses() if name != victim]
        return self._cut(
            [(name, victim) for name in names] + [(victim, name) for name in names], self._draw_duration_ns(random, 1.5)
        )

    def between(self, one: Member, other: Member, random: Random) -> bool:
        """Two members are cut off from each other, and from nobody else."""
        a, b = one.machine.address, other.machine.address
        return self._cut([(a, b), (b, a)], self._draw_duration_ns(random, 1.5))

    def swizzle_clog(self, random: Random) -> bool:
        """Cut links one by one, and mend them in another order. Source: FoundationDB, swizzle-clogging."""
        names = self._addresses()
        links = [(a, b) for a in names for b in names if a != b and random.random() < 0.3]
        for link in links:
            begin_ns = int(random.random() * self._unit_ns)
            self._after(begin_ns, self._cut, [link], self._draw_duration_ns(random, 1.0))
        return bool(links)

    def _cut(self, directions: list[tuple[str, str]], duration_ns: int) -> bool:
        if self._is_over:
            return False
        for source, target in directions:
            self._network.block(source, target)
        self._after(duration_ns, self._mend, directions)
        return bool(directions)

    def _mend(self, directions: list[tuple[str, str]]) -> None:
        if not self._is_over:
            for source, target in directions:
                self._network.unblock(source, target)

    def _addresses(self) -> list[str]:
        return [member.machine.address for member in self._cluster.members.values()] + [*self._cluster.clients]

    def cut_off(self, member: Member) -> None:
        """Cut a member off for good."""
        for name in self._addresses():
            self._network.block(name, member.machine.address)
            self._network.block(member.machine.address, name)

    def end(self) -> None:
        """Strike no more, and restore every link."""
        self._is_over = True
        self._network.unblock_all()
        self._restore_quality()


def _draw_quality(random: Random, unit_ns: int) -> LinkQuality:
    mean_ns = random.choice((150_000, 500_000, 2 * _MS, unit_ns // 200))
    return LinkQuality(mean_ns // 3, mean_ns, random.choice((0.0, 0.0, 0.05, 0.3)))
