"""Strikes at disks and at the object store: they are slow, hang, write in part, fail or are full, for a while."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from typing import Final

from .....archive.disk.memory_file_system import MemoryFileSystem
from ..cluster import Member
from ..world.machine import no_fault
from ..world.object_store import StoreFault
from .ordinary import draw_timing
from .target import Cause, FaultTarget

_MS: Final = 1_000_000


def slow_disk(target: FaultTarget, random: Random) -> bool:
    """Have syncs take milliseconds for a while."""
    member = target.draw_member(random)
    timing = member.machine.timing
    timing.min_ns, timing.mean_ns = 2 * _MS, random.choice((4, 15)) * _MS
    target.after(target.draw_duration_ns(random, 1.0), draw_timing, target.cluster, member)
    return True


def stall_disk(target: FaultTarget, random: Random) -> bool:
    """Have a disk do nothing for a while."""
    timing = target.draw_member(random).machine.timing
    timing.stall_until_ns = target.cluster.now_ns + target.draw_duration_ns(random, 0.5)
    return True


def short_write(target: FaultTarget, random: Random) -> bool:
    """Have the disk take less than it is given, for a while."""
    disk = target.draw_member(random).machine.disk
    disk.write_limit_bytes = random.choice((200, 400, 700))
    target.after(target.draw_duration_ns(random, 0.5), _mend_writes, disk)
    return True


def fail_disk(target: FaultTarget, random: Random) -> bool:
    """Have one operation of the disk fail: the node stops, and may start again."""
    member = target.draw_member(random)
    remaining = random.randrange(1, 60)

    def fail_once(name: str, path: object, length: int) -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0:
            member.machine.on_disk_operation = no_fault
            if name == "sync":
                assert isinstance(path, Path)
                member.machine.disk.drop_unsynced(path)
            raise OSError(errno.EIO, "simulated disk error", str(path))

    if not target.may_fail(member):
        return False
    target.causes[member.member_id] = Cause.DISK_ERROR
    member.machine.on_disk_operation = fail_once
    return True


def fill_disk(target: FaultTarget, random: Random) -> bool:
    """Have a disk be full, now or soon, for a while."""
    member = target.draw_member(random)
    disk = member.machine.disk
    if not target.may_fail(member):
        return False
    target.causes[member.member_id] = Cause.DISK_FULL
    disk.capacity_bytes = disk.used_bytes + random.choice((0, 10_000, 200_000))
    target.after(target.draw_duration_ns(random, 1.0), _free_disk, member)
    return True


def fail_store(target: FaultTarget, random: Random) -> bool:
    """Have the object store fail in one way for a while; False while nobody uses it."""
    store, fault = target.cluster.store, random.choice([*StoreFault])
    store.strike(fault)
    target.after(target.draw_duration_ns(random, 0.7), store.mend)
    return bool(store.objects)


def _mend_writes(disk: MemoryFileSystem) -> None:
    disk.write_limit_bytes = None


def _free_disk(member: Member) -> None:
    member.machine.disk.capacity_bytes = None
