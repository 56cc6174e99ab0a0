"""The end of all faults: a majority of sound members is mended for good, the others are left for dead."""

from __future__ import annotations

from random import Random

from ....core.vocabulary.members import quorum_threshold
from ..cluster import Member
from ..world.machine import no_fault
from .network_faults import cut_off, mend_links
from .standby_chains import draw_dead_source
from .target import Cause, FaultTarget


def end_faults(target: FaultTarget) -> None:
    """Mend a majority for good, and leave the others for dead.

    Damaged directories are replaced. A member that lost its files cannot vote before it has caught up, so the
    majority is one of sound members.
    """
    target.is_over = True
    target.cluster.store.mend()
    target.orders.end()
    random = Random(f"{target.cluster.seed} core")
    spare, members = _draw_spare(target, random), target.orders.reachable_members()
    mend_links(target)
    for member in target.members():
        _mend_machine(target, member)
        if member in spare:
            target.abandoned.append(member)
            _abandon(target, member, random)
            continue
        target.cluster.resume(member.member_id)
        if member in members:
            target.cluster.start(member.member_id)
    target.causes.clear()  # from here on nobody has a cause to stop


def core_of(target: FaultTarget) -> list[Member]:
    """Return the members of the cluster, as they are now, that were not left for dead."""
    members = [target.cluster.members[one.member_id] for one in target.referee.membership.current.members]
    return [member for member in members if member not in target.abandoned]


def find_lingering(target: FaultTarget) -> list[Member]:
    """Return the members that were removed, are told so by a member that they know, and run all the same.

    Who is cut off is not among them: a process that is a member by its own word alone stops nobody (`roster`).
    """
    membership, core = target.referee.membership, {member.member_id for member in core_of(target)}
    return [
        member
        for member in target.cluster.running()
        if membership.is_removed(member.member_id) and member not in target.abandoned
        if member.node is not None and any(map(member.node.module.ctx.roster.vouches_for, core))
    ]


def _draw_spare(target: FaultTarget, random: Random) -> list[Member]:
    """Draw who is left for dead: whichever members the cluster will have, a majority of sound ones is left."""
    configurations = target.orders.reachable()
    sound = [member for member in target.voters() if target.is_able(member)]
    spare_limit = max(0, len(sound) - quorum_threshold(len(target.referee.membership.current.voter_ids)))
    drawn = random.sample(sound, random.randint(0, spare_limit)) if random.random() < 0.5 else []
    drawn += draw_dead_source(target)
    able = {member.member_id for member in target.orders.reachable_members() if target.is_able(member)}
    spare: list[Member] = []
    for member in drawn:
        left = able - {member.member_id}
        if all(2 * len(left & each.voter_ids) > len(each.voter_ids) for each in configurations):
            spare.append(member)
            able = left
    return spare


def _mend_machine(target: FaultTarget, member: Member) -> None:
    machine = member.machine
    machine.on_disk_operation = no_fault
    member.service_failure.disarm()
    machine.disk.capacity_bytes = machine.disk.write_limit_bytes = None
    machine.timing.stall_until_ns = 0
    if member.member_id in target.causes:
        target.cluster.kill(member.member_id)  # it may be on its way out; `end_faults` starts it again
    if target.causes.get(member.member_id) is Cause.FLIP and not target.retires(member):
        target.wipe_directory(member)


def _abandon(target: FaultTarget, member: Member, random: Random) -> None:
    """Let a member be dead, stand still, or be cut off, for good."""
    match random.randrange(3):
        case 0:
            target.cluster.kill(member.member_id)
        case 1:
            target.cluster.pause(member.member_id)
        case _ if len(target.groups) > 1:  # which may need the machine
            target.cluster.kill(member.member_id)
        case _:
            cut_off(target, member)
