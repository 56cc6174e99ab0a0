"""A bit that flips where no start of its member looks, while another member needs what is there.

A bit of the leader's log flips below its newest snapshot, and another member loses its disk. What that member needs, a
third one has: the cluster heals itself, and nobody has a cause to stop. The bit is put right once that member has
everything.
"""

from __future__ import annotations

from random import Random

from .damage import draw_bit, flip_bit, lose_disk
from .target import FaultTarget


def flip_below_snapshot(target: FaultTarget, random: Random) -> bool:
    """Flip a bit; False if the cluster might not heal itself, or there is no such place."""
    leader, referee = target.cluster.leader(), target.referee
    members = target.voters()
    if leader not in members or leader.node is None or len(members) < 3 or target.causes:
        return False
    if referee.damaged or len(target.orders.reachable()) > 1:
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
    places = [at for at in referee.services.delivered if begin <= at < end]
    place = draw_bit(places[random.randrange(len(places))], leader, random) if places else None
    if place is None:
        return False
    path, offset, bit = place
    if not (whole := flip_bit(leader, path, offset, bit)):
        return False
    target.flipped = leader, path, offset, whole
    referee.damaged[leader.member_id] = None
    lose_disk(target, wiped, random)
    return True


def mend_flip(target: FaultTarget) -> None:
    """Put the bit right, if nobody has mended it; a segment that was purged meanwhile has none."""
    if target.flipped is None:
        return
    (member, path, offset, whole), target.flipped = target.flipped, None
    if member.machine.disk.durable_read(path, 1, offset):
        member.machine.disk.damage(path, offset, whole)
    target.referee.damaged.pop(member.member_id, None)
