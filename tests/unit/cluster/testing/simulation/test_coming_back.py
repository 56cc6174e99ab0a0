"""A member whose recording log or catalog cannot be trusted comes back without a vote, and copies everything again."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.facts import has_facts
from tests.unit.cluster.testing.simulation.small_cluster import QUICK, SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from tests.unit.cluster.testing.simulation.test_repair import archive_of, is_back
from tests.unit.cluster.testing.simulation.test_snapshots import Keeper, cluster_with_snapshot
from trimaran.cluster.runtime.files.node_state_file import NodeStateFile
from trimaran.cluster.testing.simulation.cluster import Member

FILES = ("cluster/recording.log", "archive/archive.catalog")


@pytest.fixture
def small() -> Iterator[SmallCluster]:
    with cluster_with_snapshot(message_count=400) as made:
        yield made


def spoil(small: SmallCluster, member: Member, name: str) -> None:
    """Overwrite the beginning of a file of a member that is down; the catalog has no redo record either."""
    small.referee.damaged[member.member_id] = None
    disk, path = member.machine.disk, member.config.directory / name
    disk.damage(path, 0 if name == FILES[0] else 32, b"\xa5" * 64)
    redo = path.with_name("archive.catalog.redo")
    if redo.name in disk.list_directory(path.parent):
        disk.damage(redo, 0, b"\xa5" * 64)


def names_of(member: Member, directory: str) -> list[str]:
    return member.machine.disk.list_directory(member.config.directory / directory)


def note_voters(small: SmallCluster) -> list[bool]:
    """Whether each node that is made from now on is a voter at that time."""
    voters, watch = [], small.cluster.on_node

    def note(member: Member) -> None:
        assert member.node is not None
        voters.append(member.node.module.ctx.is_voter)
        watch(member)

    small.cluster.on_node = note
    return voters


@pytest.mark.parametrize("name", FILES)
def test_a_member_comes_back_without_a_vote_and_copies_what_the_leader_has(small: SmallCluster, name: str) -> None:
    member = small.follower
    whole = archive_of(member)
    small.cluster.kill(member.member_id)
    spoil(small, member, name)
    voters = note_voters(small)

    small.cluster.start(member.member_id)
    small.wait(lambda: is_back(small, member), limit_ns=60 * SECOND)

    assert voters == [False]
    assert member.node is not None
    assert member.node.module.ctx.is_voter
    assert archive_of(member)["0-0.rec"] == whole["0-0.rec"]
    assert "recording.log.aside" in names_of(member, "cluster")
    assert {"0-0.rec.aside", "archive.catalog.aside"} <= set(names_of(member, "archive"))


@pytest.mark.parametrize(
    ("name", "step"),
    [
        (FILES[0], "vote withdrawn"),
        (FILES[0], "recording log moved"),
        (FILES[0], "catalog moved"),
        (FILES[1], "vote withdrawn"),
        (FILES[1], "a segment moved"),
    ],
)
def test_a_start_goes_on_with_what_a_crash_has_interrupted(small: SmallCluster, name: str, step: str) -> None:
    member = small.follower
    whole = archive_of(member)
    small.cluster.kill(member.member_id)
    spoil(small, member, name)
    disk, directory = member.machine.disk, member.config.directory
    state = NodeStateFile.open(directory / "cluster", file_system=disk)
    state.withdraw_vote(0)
    state.close()
    steps = {"recording log moved": FILES[0], "a segment moved": "archive/0-0.rec", "catalog moved": FILES[1]}
    for done, moved in steps.items():
        if step != "vote withdrawn" and list(steps).index(done) <= list(steps).index(step):
            disk.rename(directory / moved, directory / f"{moved}.aside")
    segments = {
        path: disk.content(directory / "archive" / path)
        for path in ("0-0.rec", "0-131072.rec")
        if path in names_of(member, "archive")
    }
    voters = note_voters(small)

    small.cluster.start(member.member_id)
    small.wait(lambda: is_back(small, member), limit_ns=60 * SECOND)

    assert voters == [False]
    assert archive_of(member)["0-0.rec"] == whole["0-0.rec"]
    for path, content in segments.items():
        assert disk.content(directory / "archive" / f"{path}.aside") == content


def test_what_was_set_aside_stays_where_its_copy_is_damaged_before_the_member_has_its_vote_again(
    small: SmallCluster,
) -> None:
    """The copy holds nothing that was acknowledged with a vote; what was set aside may."""
    member = small.follower
    disk, archive = member.machine.disk, member.config.directory / "archive"
    small.cluster.kill(member.member_id)
    whole = disk.content(archive / "0-0.rec")
    spoil(small, member, FILES[0])
    made = note_voters(small)
    small.cluster.start(member.member_id)
    small.wait(lambda: bool(made), limit_ns=60 * SECOND)
    small.cluster.kill(member.member_id)
    assert disk.content(archive / "0-0.rec.aside") == whole
    spoil(small, member, FILES[1])

    small.cluster.start(member.member_id)
    small.wait(lambda: is_back(small, member), limit_ns=60 * SECOND)

    assert disk.content(archive / "0-0.rec.aside") == whole


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_set_aside_while_the_others_are_no_majority_in_a_term(small: SmallCluster, name: str) -> None:
    member = small.follower
    for each in small.cluster.running():
        small.cluster.kill(each.member_id)
    spoil(small, member, name)
    before = names_of(member, "archive"), archive_of(member)

    small.cluster.start(member.member_id)
    small.wait(lambda: not member.is_running, limit_ns=60 * SECOND)

    assert has_facts(member.refusal, "without a vote", "did not now")
    assert (names_of(member, "archive"), archive_of(member)) == before


@pytest.mark.parametrize("operation", ["open", "sync", "pread"])
@pytest.mark.parametrize("name", [FILES[1], "archive/archive.catalog.redo"])
def test_nothing_is_set_aside_because_a_disk_refuses(small: SmallCluster, name: str, operation: str) -> None:
    """The next start reads what nobody has read this time: it is all there."""
    member = small.follower
    small.cluster.kill(member.member_id)
    before, count = names_of(member, "archive"), 0

    def fail(what: str, path: object, length: int) -> None:
        nonlocal count
        if (what, path) == (operation, member.config.directory / name):
            count += 1
            raise OSError(errno.EIO, "simulated disk error", str(path))

    member.machine.on_disk_operation = fail
    small.cluster.start(member.member_id)
    small.wait(lambda: not member.is_running, limit_ns=60 * SECOND)

    assert (count, names_of(member, "archive")) == (1, before)
    assert name.rpartition("/")[2] in str(member.refusal)
    member.machine.on_disk_operation = lambda what, path, length: None
    voters = note_voters(small)
    small.cluster.start(member.member_id)
    small.wait(lambda: is_back(small, member), limit_ns=60 * SECOND)
    assert voters == [True]


@pytest.mark.parametrize("name", FILES)
def test_a_member_alone_sets_nothing_aside(name: str) -> None:
    with small_cluster(settings=replace(QUICK, member_count=1), make_service=Keeper) as small:
        small.start()
        member = small.leader
        small.cluster.kill(member.member_id)
        spoil(small, member, name)

        small.cluster.start(member.member_id)
        small.wait(lambda: not member.is_running)

        assert "restore" in str(member.refusal)
        assert "comes back" not in str(member.refusal)
