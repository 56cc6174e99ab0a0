"""Members that lack the oldest part of the log, which nobody has any more: they are given a snapshot, and come back.

The referee watches: what is committed is on each disk, or in a complete snapshot there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from random import Random

import pytest

from tests.sampling import sampled
from tests.unit.cluster.testing.simulation.small_cluster import QUICK, SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from tests.unit.cluster.testing.simulation.test_snapshots import invalidate
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.testing.simulation.cluster import Member
from trimaran.cluster.testing.simulation.kept_log import complete_snapshot_positions, read_kept_log
from trimaran.service_api import ClientSession, Cluster, ClusteredService, SnapshotImage, SnapshotPublication

SEGMENT = 64 << 10
PURGING = replace(QUICK, segment_length_bytes=SEGMENT, keep_all=False, keep_snapshots=1)


class Chain(ClusteredService):
    """Its state is the hash of all it was given; some ballast makes its snapshots longer."""

    def __init__(self) -> None:
        self.link = b""

    def state_hash(self) -> bytes:
        return self.link

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        if snapshot is not None:
            self.link = [message async for message in snapshot][-1]

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        data = bytes(payload)
        self.link = blake2b(self.link + data, digest_size=8).digest()
        session.offer(data)

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        for number in range(40):
            await snapshot.offer(bytes([number]) * 1_000)
        await snapshot.offer(self.link)


@pytest.fixture
def small() -> Iterator[SmallCluster]:
    with small_cluster(settings=PURGING, make_service=Chain) as made:
        made.start()
        made.send(20, length=1_000)
        yield made


def start_position(member: Member) -> int:
    kept = read_kept_log(member.machine.disk)
    assert kept is not None
    return kept.start_position


def purge(small: SmallCluster) -> int:
    """Fill two segments, take a snapshot, and wait until every running member has purged the log below it."""
    small.send(150, length=1_000)
    position = take(small)
    small.wait(lambda: all(start_position(member) >= position - SEGMENT for member in small.cluster.running()))
    small.send(20, length=1_000)
    return position


def take(small: SmallCluster) -> int:
    leader = small.leader
    assert leader.node is not None
    assert leader.machine.loop is not None
    position = leader.node.module.ctx.log_buffer.append_position
    leader.machine.loop.call_soon(leader.node.agent.post, ev.ActionRequested(0, ControlToggle.SNAPSHOT))
    small.wait(
        lambda: all(
            max(complete_snapshot_positions(member.machine.disk), default=0) > position
            for member in small.cluster.running()
        )
    )
    return max(complete_snapshot_positions(leader.machine.disk))


def damage_snapshot(small: SmallCluster, member: Member) -> tuple[int, Path]:
    """Flip a bit of what the service wrote into a member's newest snapshot; gives the recording and the file."""
    assert member.node is not None
    (snapshot,) = [entry for entry in member.node.module.ctx.recording_log.latest_snapshots(1) if entry.service_id == 0]
    path = member.config.directory / "archive" / f"{snapshot.recording_id}-0.rec"
    byte = member.machine.disk.content(path)[5_000]
    member.machine.disk.damage(path, 5_000, bytes([byte ^ 1]))
    small.referee.damaged[member.member_id] = None
    return snapshot.recording_id, path


def is_back(small: SmallCluster, member: Member) -> bool:
    return (
        member.node is not None
        and member.node.module.election is None
        and small.is_at_rest()
        and small.referee.is_sound(member)
    )


def test_the_log_is_purged_below_the_oldest_snapshot_that_is_kept(small: SmallCluster) -> None:
    positions = [purge(small), purge(small)]

    for member in small.cluster.members.values():
        assert complete_snapshot_positions(member.machine.disk) == positions[1:]
        assert start_position(member) == positions[1] - positions[1] % SEGMENT
        names = member.machine.disk.list_directory(member.config.directory / "archive")
        assert len([name for name in names if name.endswith(".rec")]) <= 5
    for member_id in small.cluster.members:
        small.cluster.kill(member_id)
        small.cluster.start(member_id)
    small.wait(lambda: small.cluster.leader() is not None)
    small.send(10)


@pytest.mark.parametrize("is_wiped", [True, False])
def test_a_member_that_lacks_what_was_purged_is_given_a_snapshot(small: SmallCluster, is_wiped: bool) -> None:
    follower = small.follower
    small.cluster.kill(follower.member_id)
    position = purge(small)
    if is_wiped:
        small.referee.damaged[follower.member_id] = None
        small.cluster.wipe(follower.member_id)

    small.cluster.start(follower.member_id)
    small.wait(lambda: is_back(small, follower))

    assert complete_snapshot_positions(follower.machine.disk) == [position]
    assert start_position(follower) == start_position(small.leader)
    small.referee.damaged.clear()
    small.send(10)
    small.referee.expect_equal([*small.cluster.members.values()])
    small.cluster.kill(follower.member_id)
    small.cluster.start(follower.member_id)
    small.wait(lambda: is_back(small, follower))


def test_a_snapshot_that_the_leader_cannot_read_is_taken_from_another_member(small: SmallCluster) -> None:
    """Issue 20 §4: damage in a snapshot recording that is to be shipped stops nobody."""
    wiped, leader = small.follower, small.leader
    small.cluster.kill(wiped.member_id)
    position = purge(small)
    damage_snapshot(small, leader)
    small.referee.damaged[wiped.member_id] = None
    small.cluster.wipe(wiped.member_id)

    small.cluster.start(wiped.member_id)
    small.wait(lambda: is_back(small, wiped))

    assert complete_snapshot_positions(wiped.machine.disk) == [position]
    assert small.leader is leader
    assert leader.is_running
    small.wait(lambda: leader.node is not None and not leader.node.archive.damage.places)  # a follower has it, too
    assert mended_count(leader) == 1


def mended_count(member: Member) -> int:
    assert member.node is not None
    return member.node.upkeep.counts.mended_count


def test_a_snapshot_is_not_asked_for_of_one_member_after_the_other() -> None:
    """Each that stands still would take 5 s before the next one's turn."""
    with small_cluster(settings=replace(PURGING, member_count=7), make_service=Chain) as small:
        small.start()
        leader, wiped = small.leader, small.followers[-1]
        small.cluster.kill(wiped.member_id)
        purge(small)
        damage_snapshot(small, leader)
        small.referee.damaged[wiped.member_id] = None
        small.cluster.wipe(wiped.member_id)
        for member in small.followers[:2]:
            small.cluster.pause(member.member_id)

        small.cluster.start(wiped.member_id)
        small.cluster.run_for(8 * SECOND)

        assert small.leader is leader
        assert complete_snapshot_positions(wiped.machine.disk) == complete_snapshot_positions(leader.machine.disk)


def test_a_snapshot_on_its_way_tells_how_far_it_has_come(small: SmallCluster) -> None:
    follower = small.follower
    small.cluster.kill(follower.member_id)
    position = purge(small)
    seen: list[tuple[int, int]] = []

    def look() -> bool:
        progress = None if follower.node is None else follower.node.parts.snapshots.fetcher.progress
        if progress is not None and progress.log_position:
            assert progress.log_position == position
            seen.append((progress.copied_bytes, progress.length_bytes))
        return is_back(small, follower)

    small.cluster.start(follower.member_id)
    small.wait(look)

    lengths = {length for _, length in seen if length}
    assert len(lengths) == 1
    assert 40_000 < lengths.pop() == seen[-1][0]
    assert [copied for copied, _ in seen] == sorted(copied for copied, _ in seen)
    assert follower.node is not None
    assert follower.node.parts.snapshots.fetcher.progress is None


def test_a_purged_log_without_a_valid_snapshot_is_refused_and_the_leader_helps_an_empty_directory(
    small: SmallCluster,
) -> None:
    purge(small)
    follower = small.follower
    small.cluster.kill(follower.member_id)
    invalidate(follower)

    small.cluster.start(follower.member_id)
    small.wait(lambda: not follower.is_running)
    assert "no valid snapshot" in str(follower.refusal)
    small.referee.damaged[follower.member_id] = None
    small.cluster.wipe(follower.member_id)
    small.cluster.start(follower.member_id)

    small.wait(lambda: is_back(small, follower))


def test_two_of_three_that_came_back_with_a_snapshot_go_on_without_the_third(small: SmallCluster) -> None:
    first, second = small.followers
    for follower in (first, second):
        small.cluster.kill(follower.member_id)
        purge(small)
        small.referee.damaged[follower.member_id] = None
        small.cluster.wipe(follower.member_id)
        small.cluster.start(follower.member_id)
        small.wait(lambda member=follower: is_back(small, member))  # type: ignore[misc]
        del small.referee.damaged[follower.member_id]
    small.cluster.kill(small.leader.member_id)
    small.wait(lambda: small.cluster.leader() in (first, second))

    small.send(20)


@pytest.mark.parametrize("is_power_loss", [True, False])
@pytest.mark.parametrize("seed", sampled(range(12), range(4, 12)))
def test_a_crash_at_any_moment_of_the_shipping_only_delays_it(
    small: SmallCluster, seed: int, is_power_loss: bool
) -> None:
    random = Random(seed)
    follower = small.follower
    small.cluster.kill(follower.member_id)
    purge(small)
    if seed % 2:
        small.referee.damaged[follower.member_id] = None
        small.cluster.wipe(follower.member_id)

    for _ in range(6):
        end_midway(small, follower, random.randrange(1, 160), random, is_power_loss=is_power_loss)
    small.cluster.start(follower.member_id)
    small.wait(lambda: is_back(small, follower))

    names = follower.machine.disk.list_directory(follower.config.directory / "archive")
    logs = {name.partition("-")[0] for name in names if name.endswith(".rec")}
    assert len(logs) == 3  # the log and one snapshot: no leftover


def end_midway(small: SmallCluster, member: Member, count: int, random: Random, *, is_power_loss: bool) -> None:
    """Start a member, and end it before its disk does so many operations more, or after a while."""
    machine = member.machine

    def stop(name: str, path: object, length: int) -> None:
        nonlocal count
        count -= 1
        if count == 0 and member.is_running:
            if is_power_loss:
                small.cluster.lose_power(member.member_id, lambda: random.random() < 0.5)
            else:
                small.cluster.kill(member.member_id)
        if count <= 0:
            raise OSError("the process has ended")

    small.cluster.start(member.member_id)
    machine.on_disk_operation = stop
    small.cluster.run_until(lambda: not member.is_running, limit_ns=3 * SECOND)
    if member.is_running:
        small.cluster.kill(member.member_id)
    machine.on_disk_operation = lambda name, path, length: None


def test_a_leader_that_dies_while_it_is_asked_is_replaced_by_the_next(small: SmallCluster) -> None:
    follower = small.follower
    small.cluster.kill(follower.member_id)
    purge(small)
    small.cluster.start(follower.member_id)
    small.wait(lambda: len(recording_ids(follower)) > 1)
    old = small.leader

    small.cluster.kill(old.member_id)
    small.cluster.start(old.member_id)

    small.wait(lambda: is_back(small, follower))
    assert len(recording_ids(follower)) == 3


def recording_ids(member: Member) -> set[str]:
    directory = member.config.directory / "archive"
    names = member.machine.disk.list_directory(directory)
    return {name.partition("-")[0] for name in names if name.endswith(".rec")}
