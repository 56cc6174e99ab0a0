"""Damage below the newest snapshot: who reads there is refused, nobody stops, and a leader that cannot help gives way.

Issue 20 §4.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.cluster.testing.simulation.small_cluster import QUICK, SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from tests.unit.cluster.testing.simulation.test_snapshots import Keeper, cluster_with_snapshot
from trimaran.archive import ArchiveError, ArchiveErrorCode
from trimaran.archive.net.client import ArchiveClient
from trimaran.cluster.core.vocabulary.reluctance import Reluctance
from trimaran.cluster.runtime.repair.mender import Mender, RepairOutcome
from trimaran.cluster.testing.simulation.cluster import Member


@pytest.fixture(autouse=True)
def nobody_mends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds as long as nothing is mended: `test_repair` looks at what is."""

    async def wait(mender: Mender, recording_id: int, position: int) -> tuple[RepairOutcome, str]:
        return RepairOutcome.WAITS, "nobody has it"

    monkeypatch.setattr(Mender, "mend", wait)


@pytest.fixture
def small() -> Iterator[SmallCluster]:
    with cluster_with_snapshot(message_count=200) as made:
        yield made


def segment_path(member: Member, position: int) -> Path:
    segment_length = member.config.segment_length_bytes
    recording_id = 0 if member.node is None else member.node.module.ctx.log_recording_id
    return member.config.directory / "archive" / f"{recording_id}-{position - position % segment_length}.rec"


def damage(small: SmallCluster, member: Member, position: int = 640) -> int:
    """Flip a bit in the payload of the first frame from a position on; return where that frame begins."""
    path = segment_path(member, position)
    frames = member.machine.disk.content(path)
    offset = 0
    while offset < position % member.config.segment_length_bytes:
        offset += (int.from_bytes(frames[offset : offset + 4], "little") + 31) // 32 * 32
    member.machine.disk.damage(path, offset + 40, bytes([frames[offset + 40] ^ 1]))
    small.referee.damaged[member.member_id] = None
    return position - position % member.config.segment_length_bytes + offset


def replace_disk(small: SmallCluster, member: Member) -> None:
    small.cluster.kill(member.member_id)
    small.referee.damaged[member.member_id] = None
    small.cluster.wipe(member.member_id)
    small.cluster.start(member.member_id)


def has_everything(small: SmallCluster, member: Member) -> bool:
    return (
        member.node is not None
        and member.node.module.election is None
        and small.is_at_rest()
        and small.referee.has_committed(member)
    )


def refuse_reads(member: Member, position: int, number: int = errno.EIO) -> None:
    """Let the disk of a member refuse to read the segment of a position."""
    path = segment_path(member, position)

    def fail(name: str, at: object, length: int) -> None:
        if name == "pread" and at == path:
            raise OSError(number, "refused", str(path))

    member.machine.on_disk_operation = fail


@pytest.mark.parametrize("position", [0, 640, 65536])
def test_leader_damaged_and_one_disk_replaced_and_third_whole_heals_itself(small: SmallCluster, position: int) -> None:
    damaged, wiped, whole = small.leader, *small.followers
    damage(small, damaged, position)

    replace_disk(small, wiped)
    small.wait(lambda: has_everything(small, wiped))

    assert small.leader is whole
    assert damaged.is_running
    assert damaged.node is not None
    assert [place.recording_id for place in damaged.node.archive.damage.places] == [0]
    small.send(20)
    small.cluster.run_for(5 * SECOND)
    assert small.leader is whole
    small.referee.expect_equal([whole, wiped])


def test_a_start_does_not_read_the_first_entry_of_a_term_that_is_below_the_snapshot(small: SmallCluster) -> None:
    follower = small.follower
    small.send(400, length=400)  # into the next segment: of the last one, a start looks for the end
    assert damage(small, follower, 0) == 0

    small.cluster.kill(follower.member_id)
    small.cluster.start(follower.member_id)

    def is_up_to_date() -> bool:
        return follower.node is not None and follower.node.module.ctx.commit_position == len(small.referee.committed)

    small.wait(is_up_to_date)


def test_the_cluster_heals_itself_under_load(small: SmallCluster) -> None:
    """The leader's log is always some messages longer than the other's: it holds until they are equal."""
    damaged, wiped, whole = small.leader, *small.followers
    damage(small, damaged)
    answered = len(small.answers)
    small.cluster.add_client("load", lambda: small._client("load", 600, 300))

    replace_disk(small, wiped)
    small.wait(lambda: has_everything(small, wiped) and len(small.answers) == answered + 600)

    assert small.leader is whole


def test_a_leader_whose_disk_cannot_read_gives_way_as_well(small: SmallCluster) -> None:
    damaged, wiped, whole = small.leader, *small.followers
    refuse_reads(damaged, 640)

    replace_disk(small, wiped)
    small.wait(lambda: has_everything(small, wiped))

    assert small.leader is whole
    assert damaged.is_running


def test_an_older_term_that_the_leader_cannot_read_is_copied_from_a_member_that_has_it_committed(
    small: SmallCluster,
) -> None:
    """A copy of an older term comes from an archive: any member's that has the whole range committed will do."""
    damaged, wiped, whole = small.leader, *small.followers
    damage(small, damaged)
    small.cluster.kill(wiped.member_id)
    small.cluster.kill(whole.member_id)
    small.cluster.run_for(2 * SECOND)  # the leader's term ends
    small.cluster.start(whole.member_id)
    small.wait(lambda: small.cluster.leader() is not None)
    if small.leader is not damaged:
        small.cluster.kill(whole.member_id)
        small.cluster.run_for(2 * SECOND)
        small.cluster.start(whole.member_id)
        small.wait(lambda: small.cluster.leader() is damaged)
    term_id = damaged.node.module.ctx.leadership_term_id if damaged.node is not None else -1

    replace_disk(small, wiped)
    small.wait(lambda: has_everything(small, wiped))

    assert term_id > 0
    assert small.leader is damaged
    assert damaged.node is not None
    assert damaged.node.module.ctx.leadership_term_id == term_id


def test_a_copy_does_not_wait_for_members_that_stand_still_one_after_the_other() -> None:
    """Seed 547: the first member that was asked did not answer, and each attempt ended before another one's turn."""
    with small_cluster(settings=replace(QUICK, member_count=7), make_service=Keeper) as small:
        small.start()
        small.send(200, length=400)
        damaged = small.leader
        place = damage(small, damaged)
        *_, wiped = small.followers
        still = small.followers[:2]
        small.cluster.kill(wiped.member_id)
        for _ in range(8):  # until the damaged member begins a later term: the copy is of an older one
            others = [member for member in small.cluster.members.values() if member not in (damaged, wiped)]
            for member in others:
                small.cluster.kill(member.member_id)
            small.cluster.run_for(SECOND)
            for member in others:
                small.cluster.start(member.member_id)
            small.wait(lambda: small.cluster.leader() is not None)
            if small.cluster.leader() is damaged:
                break
        assert damaged.node is not None
        for member in still:
            small.cluster.pause(member.member_id)

        replace_disk(small, wiped)
        small.cluster.run_for(5 * SECOND)

        assert wiped.node is not None
        assert wiped.node.module.ctx.append_position > place
        assert small.cluster.leader() is damaged


def test_two_damaged_members_do_not_hand_leadership_to_and_fro_for_ever(small: SmallCluster) -> None:
    """Neither can help: each gives up a term again only after a pause that doubles, so the terms become long."""
    first, wiped, second = small.leader, *small.followers
    damage(small, first)
    damage(small, second)
    replace_disk(small, wiped)
    elections = [0]
    known: list[Member | None] = [first]

    def count() -> bool:
        leader = small.cluster.leader()
        if leader is not None and leader is not known[-1]:
            known.append(leader)
            elections[0] += 1
        return False

    small.cluster.run_until(count, limit_ns=20 * SECOND)
    early = elections[0]
    small.cluster.run_until(count, limit_ns=60 * SECOND)

    assert early <= 12
    assert elections[0] - early <= 4
    assert first.is_running
    assert second.is_running
    small.cluster.kill(wiped.member_id)
    small.send(20)


def test_a_stranger_who_replays_damage_is_refused_and_neither_stops_a_member_nor_ends_a_term(
    small: SmallCluster,
) -> None:
    damaged = small.leader
    position = damage(small, damaged)
    assert damaged.node is not None
    term_id = damaged.node.module.ctx.leadership_term_id
    refusals: list[ArchiveError] = []

    async def replay() -> None:
        endpoint = damaged.config.me.archive
        for _ in range(5):
            async with asyncio.timeout(10), ArchiveClient.connect(endpoint, network=small.cluster.network) as client:
                try:
                    async with client.replay(0) as messages:
                        async for _ in messages:
                            pass
                except ArchiveError as error:
                    refusals.append(error)

    small.cluster.add_client("stranger", replay)
    small.wait(lambda: not small.cluster.clients["stranger"].is_running)
    small.cluster.run_for(3 * SECOND)

    assert len(refusals) == 5
    error = refusals[0]
    assert (error.code, error.recording_id, error.position) == (ArchiveErrorCode.CORRUPT, 0, position)
    assert "file=0-0.rec" in str(error)
    assert small.leader is damaged
    assert damaged.node.module.ctx.leadership_term_id == term_id
    assert damaged.node.archive.damage.failed_read_count == 5
    assert Reluctance.LOG_DAMAGED in damaged.node.module.ctx.reluctance
    assert small.leader.node is damaged.node
