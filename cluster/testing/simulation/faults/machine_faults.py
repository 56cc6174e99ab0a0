"""Strikes at the machines of members: they lose power, end in the middle of a job, or have another time of day."""

from __future__ import annotations

from random import Random
from typing import Final

from ..cluster import Member
from ..world.machine import process_gone
from .process_faults import kill_member
from .target import FaultTarget

_MS: Final = 1_000_000


def power_loss(target: FaultTarget, random: Random) -> bool:
    """Stop a machine without files that are damaged: a flipped bit in a torn write could not be told from a tear."""
    member = target.draw_member(random)
    if not member.machine.has_power or target.has_damage(member):
        return False
    cut_power(target, member, random)
    return True


def power_loss_all(target: FaultTarget, random: Random) -> bool:
    """Stop every machine."""
    members = target.members()
    if any(target.has_damage(member) for member in members):
        return False
    for member in members:
        if member.machine.has_power:
            cut_power(target, member, random)
    return True


def end_midway(target: FaultTarget, random: Random) -> bool:
    """Stop the machine or the process between two operations of the disk, in the middle of a job or not."""
    member = target.draw_member(random)
    machine = member.machine
    remaining, is_power = random.randrange(1, 30), random.random() < 0.7
    if not target.may_fail(member) or target.has_damage(member):
        return False

    def stop(name: str, path: object, length: int) -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0 and member.is_running:
            machine.on_disk_operation = process_gone
            if is_power and not target.has_damage(member):
                cut_power(target, member, random)
            else:
                kill_member(target, member, random)
            process_gone(name, path, length)

    machine.on_disk_operation = stop
    return True


def clock_jump(target: FaultTarget, random: Random) -> bool:
    """Set the time of day of a machine forward or back."""
    clock = target.draw_member(random).machine.clock
    clock.epoch_offset_ns += int(random.uniform(-1, 1) * random.choice((100, 1_000, 60_000, 3_600_000)) * _MS)
    return True


def cut_power(target: FaultTarget, member: Member, random: Random) -> None:
    """Stop the machine of a member, with the processes of all groups."""
    rate = random.choice((0.0, 0.5, 0.5, 1.0))
    for each, one in target.on_machine(member):
        _lose_power(each, one, rate, random)


def _lose_power(target: FaultTarget, member: Member, rate: float, random: Random) -> None:
    """Stop the machine of a member; it keeps a part of what was not synced."""
    was_running = member.is_running
    target.drop_stop(member)
    target.cluster.lose_power(member.member_id, lambda: target.keep_random.random() < rate)
    if was_running or len(target.groups) == 1:  # of another group it may not have begun yet
        target.restart_later(member, random)
