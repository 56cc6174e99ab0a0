"""Strikes that damage the files of a member: bits flip, disks are lost.

The atlas keeps this survivable: at most a minority of the members is ever without a sound copy of its files, since no
cluster survives more. A bit is flipped in a frame that is there, where a checksum or a rule protects it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from .....service_api.wire.frame import HEADER_LENGTH, TYPE_PADDING, unpack_header
from .....service_api.wire.log.recording_log import RECORDING_LOG_FILE_NAME
from ....runtime.files.node_state_file import NODE_STATE_FILE_NAME
from ..cluster import DIRECTORY, Member
from . import operator
from .process_faults import kill_member
from .target import Cause, FaultTarget, any_of


def flip_recording(target: FaultTarget, random: Random) -> bool:
    """Flip a bit of an entry that every member should have: a disk that lies."""
    member, referee = target.draw_member(random), target.referee
    ends = [end for end in referee.services.delivered if end < len(referee.committed) - 8_192]
    if len(ends) < 3 or not _may_damage(target, member) or not referee.has_committed(member):
        return False
    if member.node is None:
        return False  # its last start may have been before a power loss: the next one takes a flip for a tear
    segment_length = member.config.segment_length_bytes
    newest_base = len(referee.committed) // segment_length * segment_length
    newest = [end for end in ends[:-1] if end > newest_base]
    if newest and random.random() < 0.5:
        ends = newest  # where the next start looks for the end of the log: it must not take this for the end
    begin = ends[random.randrange(len(ends) - bool(len(ends) > 1))]
    place = draw_bit(begin, member, random)
    if place is None:
        return False
    if member.is_running and random.random() < 0.7:
        kill_member(target, member, random)
    path, offset, bit = place
    return _flip(target, member, path, offset, bit, random)


def _flip_small_file(target: FaultTarget, random: Random, *, name: str, begin: int, end: int) -> bool:
    """Flip a bit in a file that is read at a start, of a member that is killed for it."""
    member = target.draw_member(random)
    if not _may_damage(target, member):
        return False
    if member.is_running:
        kill_member(target, member, random)
    offset, bit = random.randrange(begin, end), 1 << random.randrange(8)
    return _flip(target, member, Path(DIRECTORY / name), offset, bit, random)


flip_catalog: Final = partial(_flip_small_file, name="archive/archive.catalog", begin=32, end=128)
flip_recording_log: Final = partial(_flip_small_file, name=f"cluster/{RECORDING_LOG_FILE_NAME}", begin=0, end=64)
flip_node_state: Final = partial(_flip_small_file, name=f"cluster/{NODE_STATE_FILE_NAME}", begin=24, end=48)


def wipe(target: FaultTarget, random: Random) -> bool:
    """Have a member lose its disk."""
    member = target.draw_member(random)
    victims = target.draw_victims(member, random)
    if not all(_may_damage(each, one) for each, one in victims):
        victims = [(target, member)]
    return any_of(wipe_member(each, one, random) for each, one in victims)


def leave_behind(target: FaultTarget, random: Random) -> bool:
    """Have a member be away, with its disk or without, while the others take snapshots and purge their logs."""
    settings, member = target.cluster.settings, target.draw_member(random, prefer_leader=0.1)
    is_wiped = random.random() < 0.4
    if settings.keep_all or not target.may_fail(member):
        return False
    if is_wiped and not _may_damage(target, member):
        return False
    target.cluster.kill(member.member_id)
    if is_wiped:
        target.referee.damaged[member.member_id] = None
        target.wipe_directory(member)
    for number in range(1, settings.keep_snapshots + 2):
        target.after(number * target.unit_ns, _snapshot_unless_over, target, random)
    target.after((settings.keep_snapshots + 2) * target.unit_ns, target.restart, member)
    return True


def wipe_member(target: FaultTarget, member: Member, random: Random) -> bool:
    """Have the given member lose its disk; False if the atlas does not allow it."""
    if not _may_damage(target, member):
        return False
    lose_disk(target, member, random)
    return True


def lose_disk(target: FaultTarget, member: Member, random: Random) -> None:
    """Have a member lose its disk; it starts again with an empty one."""
    target.cluster.kill(member.member_id)
    target.referee.damaged[member.member_id] = None
    target.wipe_directory(member)
    target.restart_later(member, random)


def draw_bit(begin: int, member: Member, random: Random) -> tuple[Path, int, int] | None:
    """Draw a bit of the frame at a position that its checksum or its rules protect: file, offset, and the bit."""
    segment_length, term_length = member.config.segment_length_bytes, member.config.term_length_bytes
    recording_id = 0 if member.node is None else member.node.module.ctx.log_recording_id
    offset = begin + random.randrange(64)
    bits = [bit for bit in range(8) if not _is_unprotected(offset - begin, bit)]
    base = begin - begin % segment_length
    path = Path(DIRECTORY / f"archive/{recording_id}-{base}.rec")
    header = member.machine.disk.durable_read(path, HEADER_LENGTH, begin - base)
    if not bits or begin // term_length != (begin + 96) // term_length or _is_padding(header):
        return None  # nobody reads padding: what is in it is copied, and means nothing
    return path, offset - base, 1 << random.choice(bits)


def flip_bit(member: Member, path: Path, offset: int, bit: int) -> bytes:
    """Flip a bit on the disk of a member; give the byte as it was, empty if the file does not go so far."""
    disk = member.machine.disk
    data = disk.durable_read(path, 1, offset)
    if data:
        disk.damage(path, offset, bytes([data[0] ^ bit]))
    return data


def _flip(target: FaultTarget, member: Member, path: Path, offset: int, bit: int, random: Random) -> bool:
    if not flip_bit(member, path, offset, bit):
        return False
    target.referee.damaged[member.member_id] = None
    target.causes[member.member_id] = Cause.FLIP
    target.after(target.draw_duration_ns(random, 1.0), _verify, target, member)
    return True


def _verify(target: FaultTarget, member: Member) -> None:
    """Verify the files of a member as an operator does, and replace the directory that is not valid."""
    if not target.is_over and not target.retires(member) and target.causes.get(member.member_id) is Cause.FLIP:
        target.cluster.kill(member.member_id)
        target.wipe_directory(member)
        target.restart_later(member, target.restart_random)


def _snapshot_unless_over(target: FaultTarget, random: Random) -> None:
    if not target.is_over:
        operator.order_snapshot(target, random)


def _may_damage(target: FaultTarget, member: Member) -> bool:
    referee = target.referee
    damaged = referee.damaged
    if member.member_id in damaged or member.member_id in target.causes or not member.machine.has_power:
        return False
    if referee.membership.is_removed(member.member_id):
        return False  # nobody gives it another directory: two of them may take each other for a new cluster
    able = {
        other.member_id
        for other in target.members()
        if other is not member and target.is_able(other) and referee.has_joined(other)
    }
    # The others must be able to do without it, also while their cluster is forming. Who never voted cannot help;
    # who never joined it would, with one that was emptied, take both for a new cluster.
    return all(2 * len(able & each.voter_ids) > len(each.voter_ids) for each in target.orders.reachable())


def _is_unprotected(frame_offset: int, bit: int) -> bool:
    """Return whether nothing protects this bit: as much of the frame length as alignment rounds away is in no checksum.

    A message of a session does not say how long it is, so a zero behind it may belong to it.
    """
    return frame_offset == 0 and bit < 5


def _is_padding(header: bytes) -> bool:
    """Whether a frame header is that of padding; what is too short is none."""
    return len(header) == HEADER_LENGTH and unpack_header(header, 0).type == TYPE_PADDING
