"""A member whose segments are gone, while its catalog and its recording log are there, fills itself from the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.cluster.testing.simulation.small_cluster import SmallCluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from tests.unit.cluster.testing.simulation.test_coming_back import names_of, note_voters
from tests.unit.cluster.testing.simulation.test_repair import archive_of, is_back
from tests.unit.cluster.testing.simulation.test_snapshots import cluster_with_snapshot
from trimaran.cluster.testing.simulation.cluster import Member


@pytest.fixture
def small() -> Iterator[SmallCluster]:
    with cluster_with_snapshot(message_count=400) as made:
        yield made


def stop(small: SmallCluster, member: Member, *, in_order: bool) -> None:
    """End a member's process: as a crash, or so that its catalog says where the log ends."""
    if not in_order:
        small.cluster.kill(member.member_id)
        return
    node = member.node
    assert node is not None
    assert member.machine.loop is not None
    member.machine.loop.call_soon(node.stop)
    small.wait(lambda: not member.is_running)


def lose_segments(small: SmallCluster, member: Member, prefix: str, *, kept: int = 0) -> None:
    """Remove files of a member that is down: all that begin so, or all but the first ones."""
    small.referee.damaged[member.member_id] = None
    directory = member.config.directory / "archive"
    names = [name for name in names_of(member, "archive") if name.startswith(prefix) and name.endswith(".rec")]
    assert names
    for name in sorted(names, key=lambda name: int(name.partition("-")[2].removesuffix(".rec")))[kept:]:
        member.machine.disk.remove(directory / name)
    member.machine.disk.sync_directory(directory)


@pytest.mark.parametrize("in_order", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize(("prefix", "kept"), [("", 0), ("0-", 0), ("0-", 1)], ids=["all", "log", "end of the log"])
def test_a_member_without_its_segments_fills_itself(
    small: SmallCluster, prefix: str, kept: int, *, in_order: bool
) -> None:
    member = small.follower
    whole = archive_of(member)
    stop(small, member, in_order=in_order)
    lose_segments(small, member, prefix, kept=kept)
    voters, is_end_known = note_voters(small), in_order and kept > 0

    small.cluster.start(member.member_id)
    small.wait(lambda: is_back(small, member), limit_ns=60 * SECOND)

    assert voters == [is_end_known]
    assert archive_of(member)["0-0.rec"] == whole["0-0.rec"]
