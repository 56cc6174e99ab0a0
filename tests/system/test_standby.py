"""A standby takes the snapshots of a cluster of processes, which is then killed and goes on from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.cluster_process import STEADY, SystemCluster

pytestmark = pytest.mark.slow

STANDBY = 3


async def take(cluster: SystemCluster, *, asked: tuple[int, ...]) -> int:
    """Have the standby take a snapshot; gives its position once the leader has a copy."""
    status, said = await cluster.run_command("snapshot", "take", "--standby", "-o", "json", asked=asked)
    assert status == 0, said
    report = json.loads(said)
    assert report["outcome"] == "done"
    position: int = report["log_position"]
    return position


async def test_members_start_from_what_the_standby_took_and_none_stood_still(data_dir: Path) -> None:
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        leader = (await cluster.wait_for_leader()).leader_member_id
        assert cluster.make_place() == STANDBY
        cluster.join(STANDBY, 0, 1, 2)
        environments = cluster.processes.environments
        cluster.processes.environments = {STANDBY: {**environments[STANDBY], "TRIMARAN_STANDBY": "true"}}
        cluster.start(STANDBY)
        endpoint = cluster.endpoints[STANDBY]
        await cluster.change_members("add", "--standby", "--endpoint", endpoint)
        await cluster.wait_for_leader()
        requester.start_load()
        await requester.wait_answered(500)
        absent = next(each for each in range(3) if each != leader)
        cluster.members[absent].kill()
        position = await take(cluster, asked=(leader, STANDBY))
        again = cluster.start(absent)
        fetched = await again.wait_for_event("standby_snapshot.fetched")
        assert fetched["log_position"] >= position
        await requester.wait_answered(requester.submitted_count + 200)
        await requester.stop_load()
        await cluster.wait_for_equal_states()

        assert [member.member_id for member in cluster.running if member.events("snapshot.started")] == [STANDBY]
        for member in cluster.running:
            member.kill()
        for member_id in range(STANDBY + 1):
            cluster.start(member_id)
        await cluster.wait_for_leader()
        for member in cluster.running:
            assert (await member.wait_for_event("snapshot.loaded"))["log_position"] >= position
        await requester.request(50)
        await cluster.change_members("promote", "--id", str(STANDBY))
        await cluster.wait_for_equal_states()
    cluster.check_answers(requester)
