"""An operator who has standbys follow other members, and what becomes of those while they are followed.

A standby that follows another member, its *source*, has to come to everything by itself, whatever its source does: it
dies, stands still, loses its disk, is removed, is promoted, or cannot be reached from the standby alone. The acts are
aimed at sources, which other kinds of faults meet seldom. In the end a source may be left for dead while it is
followed: then the standby is among those that come to rest, all equal. `SourceRule` checks whom standbys follow.
"""

from __future__ import annotations

from random import Random
from typing import Final

from ....core.vocabulary.configuration import MemberKind
from ..cluster import Member
from .damage import wipe_member
from .network_faults import cut_between
from .process_faults import kill_member, pause_member
from .target import FaultTarget

CHAIN: Final = "chain"
"""Standbys follow other members, mostly standbys."""

_LINK_CHANCE: Final = 0.25
"""How often another standby is made to follow, while one does already."""

_DEAD_CHANCE: Final = 0.6
"""How often a standby that is followed is left for dead in the end."""


def chain(target: FaultTarget, random: Random) -> bool:
    """Have a standby follow another member, or do something to one that is followed."""
    wants_link, links = random.random() < _LINK_CHANCE, find_links(target)
    if wants_link or not links:
        return _link(target, random)
    follower, source = random.choice(links)
    return act_on(target, random.choice(SOURCE_ACTS), follower, source, random)


def act_on(target: FaultTarget, act: str, follower: Member, source: Member, random: Random) -> bool:
    """Do something to a source, or to what is between it and its follower; False if it could not be done."""
    match act:
        case "kill":
            return kill_member(target, source, random)
        case "pause":
            return pause_member(target, source, random)
        case "cut":
            return cut_between(target, follower, source, random)
        case "wipe":
            return wipe_member(target, source, random)
        case "remove":
            return target.orders.remove_member(source.member_id, random)
        case "promote":
            return target.orders.promote(source.member_id, random)
        case _:
            return target.orders.follow(follower, None)


SOURCE_ACTS: Final = ("kill", "kill", "pause", "cut", "wipe", "remove", "promote", "unlink")
"""What is done to sources; the second `kill` makes it as likely as two others."""


def find_links(target: FaultTarget) -> list[tuple[Member, Member]]:
    """Return the standbys whose settings name a member to take the log from, each with that member."""
    found = []
    for follower in _standbys(target):
        source_id = follower.config.log_source_id
        if source_id is not None and target.referee.membership.current.find(source_id) is not None:
            found.append((follower, target.cluster.members[source_id]))
    return found


def draw_dead_source(target: FaultTarget) -> list[Member]:
    """Draw which standbys are to be left for dead in the end although others follow them: at most one."""
    standbys, random = _standbys(target), target.chain_end_random
    followed = [source for _, source in find_links(target) if source in standbys]
    if not followed or random.random() >= _DEAD_CHANCE:
        return []
    return [random.choice(followed)]


def _standbys(target: FaultTarget) -> list[Member]:
    current = target.referee.membership.current
    standby_ids = [one.member_id for one in current.members if one.kind is MemberKind.STANDBY]
    return [target.cluster.members[member_id] for member_id in sorted(standby_ids)]


def _link(target: FaultTarget, random: Random) -> bool:
    """Have a standby follow another one, or any member that is older; or have a new one come, which follows."""
    standbys, may_follow_any = _standbys(target), random.random() < 0.2
    if not standbys:
        return False
    if len(standbys) == 1 or random.random() < 0.3:
        return target.orders.add_standby(random, log_source_id=random.choice(standbys).member_id)
    follower = random.choice(standbys[1:])
    older_ids = [
        one.member_id
        for one in target.referee.membership.current.members
        if one.member_id < follower.member_id and (may_follow_any or one.kind is MemberKind.STANDBY)
    ]
    return target.orders.follow(follower, random.choice(older_ids))
