"""Processes that purge their logs: who lacks what is gone, or has an empty directory, comes back with a snapshot.

The segments are small, so that a few hundred requests fill several.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.system.cluster_process import Member, SystemCluster
from tests.system.directory_checker import check_directory
from tests.system.requester import Requester
from tests.system.test_snapshots import take

pytestmark = pytest.mark.slow

PURGING = {
    "term_length_bytes": "65536",
    "segment_length_bytes": "65536",
    "mtu_length_bytes": "1408",
    "keep_all": "false",
    "keep_snapshots": "1",
    "keep_log_bytes": "0",
}


async def purge(cluster: SystemCluster, requester: Requester, *, count: int = 300) -> int:
    """Fill segments, take a snapshot, and wait until every running member has purged its log below it."""
    await requester.request(count, length=1_000)
    position = await take(cluster)
    base = position // 65536 * 65536
    for member in cluster.running:
        await member.wait_for_event("recording.segments_purged", start_position=base)
    return position


async def follower_of(cluster: SystemCluster) -> Member:
    leadership = await cluster.wait_for_leader()
    return next(member for i, member in cluster.members.items() if i != leadership.leader_member_id)


@pytest.mark.parametrize("is_wiped", [True, False])
async def test_a_member_comes_back_with_the_leaders_snapshot(data_dir: Path, is_wiped: bool) -> None:
    async with SystemCluster(data_dir, settings=PURGING) as cluster, cluster.requester() as requester:
        await requester.request(20)
        follower = await follower_of(cluster)
        follower.kill()
        position = await purge(cluster, requester)
        if is_wiped:
            shutil.rmtree(cluster.directory_of(follower.member_id))

        follower = cluster.start(follower.member_id)
        await follower.wait_for_event("snapshot.installed", log_position=position)
        loaded = await follower.wait_for_event("test_service.loaded")
        await follower.wait_for_event("election.closed")
        await requester.request(50)
        await cluster.wait_for_equal_logs()

        assert loaded["log_position"] == position
        assert len(follower.events("node.started")) == 2  # in one process
        others = [member for member in cluster.running if member is not follower]
        others[0].kill()
        await requester.request(50)  # its vote and its disk count again
    log = check_directory(cluster.directory_of(follower.member_id)).log
    assert log.start_position == position // 65536 * 65536


async def test_a_member_that_is_killed_while_it_gets_a_snapshot_begins_again(data_dir: Path) -> None:
    async with SystemCluster(data_dir, settings=PURGING) as cluster, cluster.requester() as requester:
        await requester.request(20)
        follower = await follower_of(cluster)
        follower.kill()
        await purge(cluster, requester)
        shutil.rmtree(cluster.directory_of(follower.member_id))

        for event in ("snapshot_fetch.started", "recording.stopped", "snapshot_fetch.completed", "snapshot.installed"):
            follower = cluster.start(follower.member_id)
            await follower.wait_for_event(event)
            follower.kill()
            if follower.events("snapshot_fetch.completed"):
                # All may have been in place before the kill: then the next start would fetch nothing.
                shutil.rmtree(cluster.directory_of(follower.member_id))
        follower = cluster.start(follower.member_id)
        await follower.wait_for_event("election.closed")
        await requester.request(50)
        await cluster.wait_for_equal_logs()
