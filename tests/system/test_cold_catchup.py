"""A member whose log ends in what left the others' disks: near it catches up from cold storage, far off by a snapshot.

Real processes, and a store in a directory.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.cluster_process import SystemCluster
from tests.system.directory_checker import check_directory
from tests.system.test_shipped_snapshots import PURGING, follower_of, purge

pytestmark = pytest.mark.slow

SEGMENT_BYTES = int(PURGING["segment_length_bytes"])


async def test_a_member_gets_cold_log_up_to_what_the_cache_holds_and_beyond_that_a_snapshot(data_dir: Path) -> None:
    """docs/cold-storage.md, "Readers": `cold_cache_bytes` is the bound."""
    cold = {"cold_storage_url": f"file://{data_dir}/store", "cold_cache_bytes": str(4 * SEGMENT_BYTES)}
    async with SystemCluster(data_dir, settings={**PURGING, **cold}) as cluster, cluster.requester() as requester:
        await requester.request(20)
        absent = await follower_of(cluster)
        absent.kill()
        hot_position = await purge(cluster, requester, count=150) // SEGMENT_BYTES * SEGMENT_BYTES
        assert SEGMENT_BYTES <= hot_position <= 4 * SEGMENT_BYTES

        near = cluster.start(absent.member_id)
        await near.wait_for_event("election.closed")
        await cluster.wait_for_equal_states()
        assert near.events("snapshot.installed") == []
        assert any(member.events("cold_segment.fetched") for member in cluster.running if member is not near)

        near.kill()
        position = await purge(cluster, requester, count=450)
        far = cluster.start(absent.member_id)
        await far.wait_for_event("snapshot.installed", log_position=position)
        await far.wait_for_event("election.closed")
        await cluster.wait_for_equal_states()
    assert check_directory(cluster.directory_of(absent.member_id)).log.start_position == position // 65536 * 65536
