"""What members log: one JSON object a line, each with the member's id, none so long that nobody reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.cluster_process import SystemCluster
from trimaran.client import ClusterClient

pytestmark = pytest.mark.slow

LINE_LIMIT = 4096


async def test_a_service_that_fails_is_one_line_of_each_member_with_its_id(data_dir: Path) -> None:
    """STYLE 18: bind member_id once. A callback that raised is told on every member, and the cluster goes on."""
    async with SystemCluster(data_dir) as cluster:
        await cluster.wait_for_leader()
        async with ClusterClient.connect(cluster.endpoints) as client, cluster.requester() as requester:
            await client.offer(b"short")
            for member in cluster.members.values():
                await member.wait_for_event("service.failed")
            await requester.request(100)

        for member in cluster.members.values():
            (failed,) = member.events("service.failed")
            assert "unpack_from" in failed["error"]
            own = [event for event in member.events() if not event["event"].startswith("test_")]
            assert {event.get("member_id") for event in own} == {member.member_id}
            assert max(map(len, member.text().splitlines())) < LINE_LIMIT
