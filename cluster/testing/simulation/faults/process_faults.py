"""Strikes at the processes of members: they are killed, stopped in order, paused, or fail in their service."""

from __future__ import annotations

from random import Random

from ..cluster import Member
from .target import Cause, FaultTarget, any_of


def kill_any(target: FaultTarget, random: Random) -> bool:
    """Kill a process; it is started again after a while."""
    return _kill_each(target, target.draw_member(random), random)


def kill_leader(target: FaultTarget, random: Random) -> bool:
    """Kill the process that leads."""
    leader = target.cluster.leader()
    return leader is not None and _kill_each(target, leader, random)


def stop_any(target: FaultTarget, random: Random) -> bool:
    """SIGTERM: the member stops in order."""
    victims = target.draw_victims(target.draw_member(random), random)
    return any_of(_stop_member(each, one) for each, one in victims)


def stop_all(target: FaultTarget, random: Random) -> bool:
    """Stop all at once, as an operator would restart a cluster."""
    return any_of(_stop_member(target, member) for member in target.members())


def pause_any(target: FaultTarget, random: Random) -> bool:
    """Have a process stand still for a while."""
    victims = target.draw_victims(target.draw_member(random), random)
    return any_of(pause_member(each, one, random) for each, one in victims)


def fail_service(target: FaultTarget, random: Random) -> bool:
    """Have the service of a member fail at a later entry."""
    member = target.draw_member(random)
    if not target.may_fail(member):
        return False
    target.causes[member.member_id] = Cause.SERVICE_FAILURE
    member.service_failure.arm(random)
    return True


def kill_member(target: FaultTarget, member: Member, random: Random) -> bool:
    """Kill the process of a member; False if there is none."""
    if not member.is_running:
        return False
    target.drop_stop(member)
    target.cluster.kill(member.member_id)
    target.restart_later(member, random)
    return True


def pause_member(target: FaultTarget, member: Member, random: Random) -> bool:
    """Have the process of a member stand still for a while; False if there is none, or it does already."""
    if not member.is_running or member.is_paused:
        return False
    target.cluster.pause(member.member_id)
    target.after(target.draw_duration_ns(random, 1.0), target.cluster.resume, member.member_id)
    return True


def _kill_each(target: FaultTarget, member: Member, random: Random) -> bool:
    return any_of(kill_member(each, one, random) for each, one in target.draw_victims(member, random))


def _stop_member(target: FaultTarget, member: Member) -> bool:
    loop, node = member.machine.loop, member.node
    if loop is None or node is None or member.member_id in target.causes:
        return False
    target.causes[member.member_id] = Cause.STOP
    loop.call_soon(node.departure.begin)
    return True
