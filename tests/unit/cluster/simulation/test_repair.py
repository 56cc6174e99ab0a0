"""What is damaged in a member's archive is found by its scrub or another read, and comes from another member."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cluster.simulation.small_cluster import SmallCluster, small_cluster
from tests.unit.cluster.simulation.small_world import SECOND
from tests.unit.cluster.simulation.test_damage import damage, segment_path
from tests.unit.cluster.simulation.test_snapshots import Keeper, newest, take
from trimaran.archive import CorruptionError
from trimaran.cluster.runtime.repair.upkeep import Upkeep
from trimaran.cluster.simulation.cluster import Member


@pytest.fixture
def small() -> Iterator[SmallCluster]:
    """Three members with a log of some segments, and a snapshot at its end."""
    with small_cluster(make_service=Keeper) as small:
        small.start()
        small.send(400, length=400)
        take(small)
        small.send(5)
        yield small


def upkeep(member: Member) -> Upkeep:
    assert member.node is not None
    return member.node.upkeep


def scrub(small: SmallCluster, member: Member) -> None:
    """Have a member's scrub read everything once."""
    count = upkeep(member).progress.pass_count
    upkeep(member).ask()
    small.wait(lambda: upkeep(member).progress.pass_count > count)


def archive_of(member: Member) -> dict[str, bytes]:
    """The segment files of a member, by what is durable."""
    disk, directory = member.machine.disk, member.config.directory / "archive"
    names = [name for name in disk.list_directory(directory) if name.endswith(".rec")]
    return {name: disk.durable_read(Path(directory / name), 1 << 20, 0) for name in names}


@pytest.mark.parametrize("position", [0, 640, 65536, 140_000])
@pytest.mark.parametrize("is_leader", [False, True])
def test_a_scrub_finds_a_flipped_bit_and_mends_it(small: SmallCluster, *, is_leader: bool, position: int) -> None:
    member = small.leader if is_leader else small.follower
    whole = archive_of(member)
    damage(small, member, position)
    assert archive_of(member) != whole

    scrub(small, member)

    assert archive_of(member) == whole
    assert member.node is not None
    assert member.node.archive.damage.places == []
    assert (upkeep(member).progress.found_count, upkeep(member).counts.mended_count) == (1, 1)


def test_what_a_read_meets_is_mended_without_a_scrub(small: SmallCluster) -> None:
    member = small.follower
    whole = archive_of(member)
    position = damage(small, member)
    assert member.node is not None
    assert member.machine.loop is not None
    archive = member.node.archive

    def read() -> None:
        with pytest.raises(CorruptionError, match="recorded frame is not valid"):
            archive.read(0, position, 640, stop_position=65_536)

    member.machine.loop.call_soon(read)
    small.wait(lambda: upkeep(member).counts.mended_count == 1)

    assert archive_of(member) == whole
    assert archive.damage.places == []


def test_a_damaged_snapshot_comes_from_a_member_that_has_the_same_one(small: SmallCluster) -> None:
    member = small.follower
    whole = archive_of(member)
    entry = newest(member)
    assert entry is not None
    path = member.config.directory / "archive" / f"{entry.recording_id}-0.rec"
    member.machine.disk.damage(path, 50, b"\xff\xff")

    scrub(small, member)

    assert archive_of(member) == whole


def test_a_segment_file_that_is_gone_comes_back(small: SmallCluster) -> None:
    member = small.follower
    whole = archive_of(member)
    small.send(400, length=400)  # so that nobody writes to that segment any more
    small.referee.damaged[member.member_id] = None
    member.machine.disk.remove(segment_path(member, 140_000))
    member.machine.disk.sync_directory(member.config.directory / "archive")

    scrub(small, member)

    assert archive_of(member)["0-0.rec"] == whole["0-0.rec"]
    assert archive_of(member)["0-131072.rec"] == archive_of(small.leader)["0-131072.rec"]


def test_two_members_damaged_in_different_places_mend_each_other(small: SmallCluster) -> None:
    one, other = small.followers
    whole = archive_of(one)
    damage(small, one, 640)
    damage(small, other, 65536)
    small.cluster.kill(small.leader.member_id)
    small.wait(lambda: small.cluster.leader() is not None)

    for member in (one, other):
        scrub(small, member)
    small.wait(lambda: not any(member.node.archive.damage.places for member in (one, other) if member.node))

    for member in (one, other):
        files = archive_of(member)
        assert all(files[name][:131_072] == data[:131_072] for name, data in whole.items() if name == "0-0.rec")


def test_nothing_is_taken_while_nobody_else_is_there_and_it_is_tried_again(small: SmallCluster) -> None:
    member, whole = small.leader, archive_of(small.leader)
    others = small.followers
    damage(small, member)
    for other in others:
        small.cluster.kill(other.member_id)

    upkeep(member).ask()
    small.cluster.run_until(lambda: False, limit_ns=3 * SECOND)
    assert upkeep(member).counts.mended_count == 0
    for other in others:
        small.cluster.start(other.member_id)
    small.wait(lambda: upkeep(member).counts.mended_count == 1, limit_ns=60 * SECOND)

    files = archive_of(member)
    assert files["0-0.rec"] == whole["0-0.rec"]
    assert member.is_running
