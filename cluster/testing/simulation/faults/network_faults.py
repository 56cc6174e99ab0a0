"""Strikes between the machines of a simulated cluster: links are slow, break, or are cut, and mended after a while."""

from __future__ import annotations

from random import Random

from ..cluster import Member
from ..world.network import LinkQuality
from .ordinary import draw_quality
from .target import FaultTarget


def delay_links(target: FaultTarget, random: Random) -> bool:
    """Have every link be slow for a while."""
    mean_ns, network = int(target.unit_ns * random.choice((0.005, 0.02, 0.1))), target.cluster.network
    network.quality = LinkQuality(mean_ns // 4, mean_ns, draw_quality(target.cluster).split_rate)
    target.after(target.draw_duration_ns(random, 1.0), _restore_quality, target)
    return True


def reset_links(target: FaultTarget, random: Random) -> bool:
    """Break a connection."""
    network = target.cluster.network
    transports = [*network.transports]
    if transports:
        network.reset(transports[random.randrange(len(transports))])
    return bool(transports)


def stall_links(target: FaultTarget, random: Random) -> bool:
    """Cut two machines off from each other for a moment."""
    first, second = random.sample(_addresses(target), 2)
    return _cut(target, [(first, second), (second, first)], target.draw_duration_ns(random, 0.15))


def partition(target: FaultTarget, random: Random) -> bool:
    """Cut the machines into two halves."""
    names = _addresses(target)
    side = [name for name in names if random.random() < 0.5]
    other = [name for name in names if name not in side]
    pairs = [(a, b) for a in side for b in other]
    return _cut(target, pairs + [(b, a) for a, b in pairs], target.draw_duration_ns(random, 1.5))


def cut_one_way(target: FaultTarget, random: Random) -> bool:
    """Have a member hear nobody, or nobody hear it."""
    names = [member.machine.address for member in target.cluster.members.values()]
    victim = target.draw_member(random).machine.address
    others = [name for name in names if name != victim and random.random() < 0.7]
    is_deaf = random.random() < 0.5
    directions = [(name, victim) if is_deaf else (victim, name) for name in others]
    return _cut(target, directions, target.draw_duration_ns(random, 1.5))


def isolate(target: FaultTarget, random: Random) -> bool:
    """Cut a member off from everybody."""
    victim = target.draw_member(random).machine.address
    names = [name for name in _addresses(target) if name != victim]
    directions = [(name, victim) for name in names] + [(victim, name) for name in names]
    return _cut(target, directions, target.draw_duration_ns(random, 1.5))


def swizzle_clog(target: FaultTarget, random: Random) -> bool:
    """Cut links one by one, and mend them in another order. Source: FoundationDB, swizzle-clogging."""
    names = _addresses(target)
    links = [(a, b) for a in names for b in names if a != b and random.random() < 0.3]
    for link in links:
        begin_ns = int(random.random() * target.unit_ns)
        target.after(begin_ns, _cut, target, [link], target.draw_duration_ns(random, 1.0))
    return bool(links)


def cut_between(target: FaultTarget, one: Member, other: Member, random: Random) -> bool:
    """Cut two members off from each other, and from nobody else."""
    a, b = one.machine.address, other.machine.address
    return _cut(target, [(a, b), (b, a)], target.draw_duration_ns(random, 1.5))


def cut_off(target: FaultTarget, member: Member) -> None:
    """Cut a member off for good."""
    network, address = target.cluster.network, member.machine.address
    for name in _addresses(target):
        network.block(name, address)
        network.block(address, name)


def mend_links(target: FaultTarget) -> None:
    """Restore every link."""
    target.cluster.network.unblock_all()
    _restore_quality(target)


def _cut(target: FaultTarget, directions: list[tuple[str, str]], duration_ns: int) -> bool:
    if target.is_over:
        return False
    for source, destination in directions:
        target.cluster.network.block(source, destination)
    target.after(duration_ns, _mend, target, directions)
    return bool(directions)


def _mend(target: FaultTarget, directions: list[tuple[str, str]]) -> None:
    if not target.is_over:
        for source, destination in directions:
            target.cluster.network.unblock(source, destination)


def _restore_quality(target: FaultTarget) -> None:
    target.cluster.network.quality = draw_quality(target.cluster)


def _addresses(target: FaultTarget) -> list[str]:
    return [member.machine.address for member in target.cluster.members.values()] + [*target.cluster.clients]
