"""Directed scenarios of a disk that changes a bit of the log: of what was said, and of what kind of frame it is."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from trimaran.cluster.core.events import ActionRequested
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.testing.simulation.cluster import Member
from trimaran.cluster.testing.simulation.world.expect import expect
from trimaran.service_api.wire.frame import (
    FLAG_BEGIN,
    FLAG_END,
    FRAME_ALIGNMENT,
    HEADER_LENGTH,
    TYPE_DATA,
    HeaderField,
    unpack_header,
)

if TYPE_CHECKING:
    from .scenarios import Scene

_SLOW_SYNC_NS = 1_500_000_000
_FLAGS_OFFSET = 5
_TYPE_OFFSET = 6
"""Where the flags and the type of a frame are in its header."""


def a_flipped_bit(scene: Scene) -> None:
    """A bit of an old entry flips while its member is down: it starts with what another member has there."""
    _flip_in_old_entry(scene, HEADER_LENGTH + 40)


def data_that_turned_into_padding(scene: Scene) -> None:
    """The same with the bit that says that a frame is no padding: a frame of padding is valid, and says nothing."""
    _flip_in_old_entry(scene, _TYPE_OFFSET)


def an_entry_without_its_end(scene: Scene) -> None:
    """The same with the flag that ends a message: the entry would wait for its rest, and the next one is in its way."""
    _flip_in_old_entry(scene, _FLAGS_OFFSET, FLAG_END)


def an_entry_without_its_beginning(scene: Scene) -> None:
    """The same with the flag that begins a message: the entry looks like the rest of one before it.

    It is older than the newest snapshot, so that no delivery meets it: only who reads the log for damage does.
    """
    _flip_in_old_entry(scene, _FLAGS_OFFSET, FLAG_BEGIN, has_snapshot=True)


def a_reserved_value(scene: Scene) -> None:
    """The same with a number that no leader writes: nobody reads it, and the copies differ."""
    _flip_in_old_entry(scene, HeaderField.RESERVED_VALUE.offset)


def an_entry_that_ends_too_early(scene: Scene) -> None:
    """The same with a bit of the length that alignment rounds away: the entry loses its last bytes."""
    _flip_in_old_entry(scene, HeaderField.FRAME_LENGTH.offset, None)


def a_reserved_value_of_a_snapshot(scene: Scene) -> None:
    """The same in a snapshot: it is the only one of three that holds that number."""
    leader = scene.start()
    scene.add_flood("flood", 1_000)
    scene.run(0.3)
    scene.cluster.clients["flood"].kill()
    victim = scene.followers()[0]
    log = _take_snapshot(scene, leader, victim)
    recording_ids = [entry.recording_id for entry in log.entries if entry.is_valid_snapshot]
    path = victim.config.directory / "archive" / f"{recording_ids[0]}-0.rec"
    scene.cluster.kill(victim.member_id)
    _flip_and_start(scene, victim, path, HeaderField.RESERVED_VALUE.offset, 1)


def _take_snapshot(scene: Scene, leader: Member, follower: Member) -> RecordingLog:
    """Have a snapshot taken; return the recording log of a follower that has it."""
    assert leader.node is not None
    assert leader.machine.loop is not None
    assert follower.node is not None
    leader.machine.loop.call_soon(leader.node.agent.post, ActionRequested(0, ControlToggle.SNAPSHOT))
    log = follower.node.module.ctx.recording_log
    scene.run_until(lambda: bool(log.latest_snapshots(1)), 30, "a snapshot is taken")
    scene.run(1)
    return log


def _flip_in_old_entry(scene: Scene, offset: int, bit: int | None = 1, *, has_snapshot: bool = False) -> None:
    """Flip a bit of an entry; None is the lowest bit that its frame's length has."""
    leader = scene.start()
    scene.add_flood("flood", 1_000)
    scene.run(0.3)
    scene.cluster.clients["flood"].kill()
    victim = scene.followers()[0]
    if has_snapshot:
        _take_snapshot(scene, leader, victim)
    assert victim.node is not None
    path = victim.config.directory / "archive" / f"{victim.node.module.ctx.log_recording_id}-0.rec"
    scene.cluster.kill(victim.member_id)
    delivered = scene.referee.services.delivered
    ends = sorted(delivered)
    begin = next(begin for begin, end in pairwise(ends) if begin > 70_000 and delivered[end][0] == "message")
    header = unpack_header(victim.machine.disk.durable_read(path, HEADER_LENGTH, begin))
    expect(header.type == TYPE_DATA, "an entry begins where the one before it ends", header=header)
    if bit is None:
        bit = header.frame_length & -header.frame_length
        expect(bit < FRAME_ALIGNMENT, "an entry does not fill what its frame takes", header=header)
    _flip_and_start(scene, victim, path, begin + offset, bit)


def _flip_and_start(scene: Scene, victim: Member, path: Path, at: int, bit: int) -> None:
    """Flip a bit while a member is down, start it, and expect that it has the bit back."""
    byte = victim.machine.disk.durable_read(path, 1, at)[0]
    victim.machine.disk.damage(path, at, bytes([byte ^ bit]))
    scene.referee.damaged[victim.member_id] = None
    scene.cluster.start(victim.member_id)
    scene.run(1)
    if victim.node is not None:
        victim.node.upkeep.ask()
    scene.run(5)
    expect(victim.is_running, "a member whose log is damaged gets what it has lost", member=victim)
    mended = victim.machine.disk.durable_read(path, 1, at)[0]
    expect(mended == byte, "what is mended is what was there", expected=byte, actual=mended)


def a_repair_that_a_minority_offers(scene: Scene) -> None:
    """A deposed leader has other entries where a member's committed ones are damaged; who has them is away for now."""
    deposed = scene.start()
    scene.add_flood("flood", 100)
    scene.run(0.3)
    for follower in scene.followers():
        scene.cut(deposed, follower)
    others = [member for member in scene.cluster.members.values() if member is not deposed]
    scene.run_until(lambda: any(member.is_leader for member in others), 30, "a majority has a leader")
    leader = next(member for member in others if member.is_leader)
    victim = next(member for member in others if member is not leader)
    assert leader.node is not None
    assert deposed.node is not None
    ctx = leader.node.module.ctx
    last = ctx.recording_log.last_term()
    assert last is not None
    begin = last.term_base_log_position
    scene.run_until(lambda: ctx.commit_position > begin + (16 << 10), 30, "a majority serves")
    scene.cluster.clients["flood"].kill()
    scene.run(1)
    expect(deposed.node.module.ctx.append_position > begin, "a minority has other entries", member=deposed)

    offset = begin % victim.config.segment_length_bytes
    path = victim.config.directory / "archive" / f"{last.recording_id}-{begin - offset}.rec"
    disk, length = victim.machine.disk, 8 << 10
    whole = disk.durable_read(path, length, offset)
    disk.damage(path, offset + HEADER_LENGTH + 8, bytes([whole[HEADER_LENGTH + 8] ^ 1]))
    scene.referee.damaged[victim.member_id] = None
    scene.cluster.kill(leader.member_id)
    scene.cluster.network.unblock_all()
    assert victim.node is not None
    victim.node.upkeep.ask()
    scene.run(5)
    scene.cluster.start(leader.member_id)
    scene.run(90)  # it tries again after a minute at the latest
    mended = disk.durable_read(path, length, offset)
    expect(mended == whole, "what is mended is what was committed", position=begin)


def a_member_that_comes_back_empty(scene: Scene) -> None:
    """What is committed is with the leader and with a member that sets its log aside; the third has a slow disk.

    Then the leader is gone, and the third has lost what it had not synced.
    """
    leader = scene.start()
    victim, slow = scene.followers()
    scene.add_flood("flood", 100)
    scene.run(0.3)
    timing = slow.machine.timing
    usual = timing.min_ns, timing.mean_ns
    timing.min_ns = timing.mean_ns = _SLOW_SYNC_NS
    scene.run(0.4)
    scene.cluster.clients["flood"].kill()
    scene.run(0.01)
    scene.cluster.kill(victim.member_id)
    disk, cluster = victim.machine.disk, victim.config.directory / "cluster"
    disk.damage(cluster / "recording.log", 16, bytes([disk.content(cluster / "recording.log")[16] ^ 1]))
    scene.referee.damaged[victim.member_id] = None
    scene.cluster.start(victim.member_id)
    aside = "recording.log.aside"
    scene.run_until(lambda: aside in disk.list_directory(cluster), 30, "a member comes back where others do without it")

    scene.cluster.kill(leader.member_id)
    scene.cluster.lose_power(slow.member_id, lambda: False)
    timing.min_ns, timing.mean_ns = usual
    scene.cluster.start(slow.member_id)
    scene.run(40)
    expect(scene.cluster.leader() is None, "who has lost its log helps nobody to lead", cluster=scene.cluster)

    scene.cluster.start(leader.member_id)
    scene.await_leader()
    scene.run(10)
    members = scene.cluster.members.values()
    expect(all(member.is_running for member in members), "a member that came back serves", cluster=scene.cluster)
