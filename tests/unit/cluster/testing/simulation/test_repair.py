"""What is damaged in a member's archive is found by its scrub or another read, and comes from another member."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tests.facts import has_facts
from tests.sampling import sampled
from tests.unit.cluster.testing.simulation.small_cluster import QUICK, SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from tests.unit.cluster.testing.simulation.test_damage import damage, segment_path
from tests.unit.cluster.testing.simulation.test_snapshots import Keeper, cluster_with_snapshot, newest
from trimaran.archive import CorruptionError
from trimaran.cluster.runtime.repair.upkeep import Upkeep
from trimaran.cluster.testing.simulation.cluster import Member


@pytest.fixture
def small() -> Iterator[SmallCluster]:
    with cluster_with_snapshot(message_count=400) as made:
        yield made


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


PLACES = [*product([False, True], [0, 640, 65536, 140_000])]


@pytest.mark.parametrize(("is_leader", "position"), sampled(PLACES, PLACES[1:5:2] + PLACES[4::2]))
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


def test_a_scrub_reads_as_fast_as_its_setting_and_begins_again_after_its_interval() -> None:
    rate = 16 << 10
    with small_cluster(settings=replace(QUICK, scrub_bytes_per_s=rate, scrub_interval_ms=30_000)) as small:
        small.start()
        small.send(400, length=400)
        member = small.follower
        seen: list[tuple[bool, int]] = []

        def look() -> bool:
            if not seen or seen[-1][0] != upkeep(member).progress.is_running:
                seen.append((upkeep(member).progress.is_running, small.cluster.world.scheduler.now_ns))
            return upkeep(member).progress.pass_count == 2

        small.wait(look, limit_ns=200 * SECOND)

        times_s = [now_ns / SECOND for _, now_ns in seen][1:]
        begun_s, ended_s, begun_again_s, *_ = times_s
        assert ended_s - begun_s == pytest.approx(upkeep(member).progress.read_bytes / rate, rel=0.1)
        assert begun_again_s - ended_s == pytest.approx(30, abs=0.5)


def test_what_a_read_meets_is_mended_without_a_scrub(small: SmallCluster) -> None:
    member = small.follower
    whole = archive_of(member)
    position = damage(small, member)
    assert member.node is not None
    assert member.machine.loop is not None
    archive = member.node.archive

    def read() -> None:
        with pytest.raises(CorruptionError, match="recorded frame"):
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
    small.cluster.run_for(3 * SECOND)
    assert upkeep(member).counts.mended_count == 0
    for other in others:
        small.cluster.start(other.member_id)
    small.wait(lambda: upkeep(member).counts.mended_count == 1, limit_ns=60 * SECOND)

    files = archive_of(member)
    assert files["0-0.rec"] == whole["0-0.rec"]
    assert member.is_running


@pytest.mark.parametrize("position", [70_000, 190_000])
@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "killed"])
def test_a_start_mends_the_log_that_it_needs(*, is_stopped: bool, position: int) -> None:
    """Of a killed member the end is looked for, behind the damage; of a stopped one it is known."""
    with small_cluster(make_service=Keeper) as small:
        small.start()
        small.send(400, length=400)
        member = small.follower
        whole = archive_of(member)
        path = segment_path(member, position)
        if is_stopped:
            stop(small, member)
        else:
            small.cluster.kill(member.member_id)
        damage(small, member, position)

        small.cluster.start(member.member_id)
        small.wait(lambda: is_back(small, member))

        assert archive_of(member)[path.name] == whole[path.name]


def test_a_start_mends_the_snapshot_that_it_needs(small: SmallCluster) -> None:
    member = small.follower
    whole = archive_of(member)
    entry = newest(member)
    assert entry is not None
    small.cluster.kill(member.member_id)
    name = f"{entry.recording_id}-0.rec"
    member.machine.disk.damage(member.config.directory / "archive" / name, 50, b"\xff\xff")
    small.referee.damaged[member.member_id] = None

    small.cluster.start(member.member_id)
    small.wait(lambda: is_back(small, member))

    assert archive_of(member)[name] == whole[name]


def test_a_start_of_all_members_mends_the_damaged_one_once_the_others_have_a_leader() -> None:
    with small_cluster(make_service=Keeper) as small:
        small.start()
        small.send(400, length=400)
        damaged = small.leader
        whole = archive_of(damaged)
        for member in small.cluster.running():
            small.cluster.kill(member.member_id)
        damage(small, damaged, 150_000)

        for member in small.cluster.members.values():
            small.cluster.start(member.member_id)
        small.wait(lambda: small.cluster.leader() is not None and is_back(small, damaged))

        assert archive_of(damaged)["0-131072.rec"][: 1 << 15] == whole["0-131072.rec"][: 1 << 15]


def test_a_member_alone_refuses_to_start_on_damage_and_says_why() -> None:
    with small_cluster(settings=replace(QUICK, member_count=1), make_service=Keeper) as small:
        small.start()
        small.send(400, length=400)
        member = small.leader
        small.cluster.kill(member.member_id)
        before = archive_of(member)
        damage(small, member, 150_000)
        damaged = archive_of(member)
        assert damaged != before

        small.cluster.start(member.member_id)
        small.wait(lambda: not member.is_running)

        assert has_facts(member.refusal, "not mended", "no other member")
        assert str(member.refusal).count("code=CORRUPT") == 1
        assert archive_of(member) == damaged


def test_a_start_that_is_refused_is_refused_the_next_time_too() -> None:
    """Where the end of the log was found behind damage, and nobody can say what belongs there."""
    with small_cluster(make_service=Keeper) as small:
        small.start()
        small.send(400, length=400)
        member = small.follower
        for each in small.cluster.running():
            small.cluster.kill(each.member_id)
        damage(small, member, 190_000)
        refusals = []

        for _ in range(2):
            small.cluster.start(member.member_id)
            small.wait(lambda: not member.is_running, limit_ns=60 * SECOND)
            refusals.append(str(member.refusal))

        assert all("it was not mended: member" in refusal for refusal in refusals)
        assert refusals[0] == refusals[1]


def is_back(small: SmallCluster, member: Member) -> bool:
    return member.node is not None and member.node.module.election is None and small.is_at_rest()


def stop(small: SmallCluster, member: Member) -> None:
    """Stop a member in order."""
    assert member.node is not None
    assert member.machine.loop is not None
    member.machine.loop.call_soon(member.node.departure.begin)
    small.wait(lambda: not member.is_running)


def test_a_member_that_cannot_trust_its_vote_comes_back_without_one_and_gets_it_back(small: SmallCluster) -> None:
    member = small.follower
    small.cluster.kill(member.member_id)
    disk, directory = member.machine.disk, member.config.directory / "cluster"
    byte = disk.content(directory / "node-state.dat")[32]
    disk.damage(directory / "node-state.dat", 32, bytes([byte ^ 1]))
    small.referee.damaged[member.member_id] = None
    voters = []
    small.cluster.on_node = lambda made: voters.append(made.node is not None and made.node.module.ctx.is_voter)

    small.cluster.start(member.member_id)
    small.wait(lambda: is_back(small, member))

    assert voters == [False]
    small.wait(lambda: member.node is not None and member.node.module.ctx.is_voter)
    assert "node-state.dat.damaged" in disk.list_directory(directory)


def test_a_member_alone_does_not_set_its_vote_aside() -> None:
    with small_cluster(settings=replace(QUICK, member_count=1), make_service=Keeper) as small:
        small.start()
        member = small.leader
        small.cluster.kill(member.member_id)
        path = member.config.directory / "cluster" / "node-state.dat"
        byte = member.machine.disk.content(path)[32]
        member.machine.disk.damage(path, 32, bytes([byte ^ 1]))
        small.referee.damaged[member.member_id] = None

        small.cluster.start(member.member_id)
        small.wait(lambda: not member.is_running)

        assert "damaged node state" in str(member.refusal)


def damage_everywhere(small: SmallCluster, position: int) -> None:
    for member in small.cluster.running():
        damage(small, member, position)


def test_what_nobody_has_is_told_and_kept_after_a_snapshot_that_makes_it_superfluous(small: SmallCluster) -> None:
    """A start would need it before that snapshot, and does not after it."""
    small.send(400, length=400)
    position = 240_000
    damage_everywhere(small, position)
    members = list(small.cluster.running())
    before = [newest(member) for member in members]

    scrub(small, small.follower)
    small.wait(lambda: all(newest(each) != old for each, old in zip(members, before, strict=True)))
    small.cluster.run_for(90 * SECOND)

    assert all(member.is_running for member in members)
    for member in members:
        entry, counts = newest(member), upkeep(member).counts
        assert entry is not None
        assert entry.log_position > position
        assert counts.mended_count == 0
    assert [each[1] // 1_000 for each in upkeep(small.follower).counts.lost] == [position // 1_000]


def test_a_member_stops_with_the_reason_where_no_snapshot_makes_superfluous_what_nobody_has() -> None:
    """The service takes none. Once one has stopped, the others wait for it: it might have the range."""
    with small_cluster(seed=3) as small:
        small.start()
        small.send(400, length=400)
        members = list(small.cluster.running())
        damage_everywhere(small, 150_000)

        scrub(small, small.follower)
        small.cluster.run_for(50 * SECOND)
        assert all(member.is_running for member in members)
        small.wait(lambda: not all(member.is_running for member in members))
        small.cluster.run_for(90 * SECOND)

        (stopped,) = [member for member in members if not member.is_running]
        assert has_facts(stopped.refusal, "no member has", "trimaran recover")
