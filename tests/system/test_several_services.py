"""Nodes with two services, the second of which talks to the log; members are killed and start again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.cluster_process import SERVICE, TIMEOUT_S, Member, SystemCluster
from tests.system.directory_checker import log_end_position
from tests.system.test_snapshots import take
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SERVICES = f"{SERVICE},tests.system.tally:TallyService"


async def wait_until_even(cluster: SystemCluster) -> None:
    """Wait until the last entry of every log is the message that the second service was waiting for."""

    def is_even(member: Member) -> bool:
        even = member.events("test_tally.even")
        return bool(even) and even[-1]["log_position"] == log_end_position(cluster.directory_of(member.member_id))

    await wait_until(
        lambda: all(is_even(member) for member in cluster.running),
        timeout_s=TIMEOUT_S,
        what=lambda: f"every service message: {[member.events('test_tally.even')[-1:] for member in cluster.running]}",
    )


async def test_messages_of_a_service_survive_kills_of_leaders_once_each(data_dir: Path) -> None:
    """Kill -9 of two leaders under load, with a snapshot before: nothing is lost, nothing comes twice."""
    async with SystemCluster(data_dir, service=SERVICES) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        requester.start_load()
        await requester.wait_answered(300)
        position = await take(cluster)
        for _ in range(2):
            leader_id = (await cluster.wait_for_leader()).leader_member_id
            await cluster.kill_and_serve(requester, leader_id)
            member = cluster.start(leader_id)
            loaded = await member.wait_for_event("test_tally.loaded")
            assert loaded["log_position"] == position
            await cluster.wait_for_leader()
        await requester.stop_load()
        await wait_until_even(cluster)
        await cluster.wait_for_equal_logs()
    cluster.check_answers(requester)
    tallies = [member.events("test_tally.terminated")[-1] for member in cluster.members.values()]
    assert len({tuple(tally[name] for name in ("offered", "received", "wrong")) for tally in tallies}) == 1
    assert tallies[0]["offered"] == tallies[0]["received"] >= 900
    assert tallies[0]["wrong"] == 0
    assert [member.events("service.diverged") for member in cluster.members.values()] == [[], [], []]


async def test_node_with_other_services_than_its_snapshot_says_what_to_do(data_dir: Path) -> None:
    async with SystemCluster(data_dir, member_count=1, service=SERVICES) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        await requester.request(10)
        await take(cluster)
        cluster.members[0].terminate()
        assert await cluster.members[0].wait_exit() == 0

        cluster.processes.service = SERVICE
        member = cluster.start(0)

        assert await member.wait_exit() == 2
        assert "services=2 expected=1" in member.process.log_tail()
        assert "trimaran snapshot invalidate" in member.process.log_tail()
        cluster.processes.service = SERVICES
        await cluster.start(0).wait_for_event("test_tally.loaded")
