"""Real members that are given newer code one at a time, and switch to its behaviour at one entry of the log."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.facts import has_facts
from tests.system.cluster_process import SystemCluster
from tests.system.test_code_versions import OLD, SumCluster
from trimaran.cluster.time_travel import replay_service

pytestmark = pytest.mark.slow

NEW = (
    OLD.replace(
        '''clients send."""
''',
        '''clients send; ten times that from level 1 on."""

    feature_level = 1
''',
    )
    .replace(
        "self.total += int(bytes(payload))",
        "self.total += int(bytes(payload)) * (10 if self.cluster.feature_level >= 1 else 1)",
    )
    .replace(
        """        if snapshot is not None:
""",
        """        self.cluster = cluster
        if snapshot is not None:
""",
    )
)


async def restart(cluster: SystemCluster, member_id: int) -> None:
    """Stop a member in order, start it again, and wait until it takes part."""
    cluster.members[member_id].terminate()
    assert await cluster.members[member_id].wait_exit() == 0
    cluster.start(member_id)
    await cluster.wait_for_leader()
    await cluster.wait_for_equal_states()


async def raise_level(cluster: SystemCluster, *words: str) -> tuple[int, str]:
    return await cluster.run_command("feature-level", "raise", *words)


async def test_services_switch_at_one_entry_once_every_member_has_the_newer_code(data_dir: Path) -> None:
    async with SumCluster(data_dir, accept_code="any") as cluster:
        await cluster.wait_for_leader()
        assert await cluster.add(3, 4) == [3, 7]
        cluster.write(NEW)
        await restart(cluster, 0)
        status, said = await raise_level(cluster, "--to", "1")
        assert status == 12
        assert has_facts(said, "at most 0 on member 1 (service 0, Sum)", "at most 0 on member 2 (service 0, Sum)")
        await restart(cluster, 1)
        await restart(cluster, 2)
        assert await cluster.add(1) == [8]

        status, said = await raise_level(cluster)

        assert (status, "feature_level=0 becomes 1" in said) == (0, True), said
        assert await cluster.add(1) == [18]
        _, said = await cluster.run_command("feature-level", "show")
        assert "feature level 1" in said
        status, said = await raise_level(cluster)
        assert (status, "expected above 1" in said) == (12, True), said
        for member_id in range(3):
            await restart(cluster, member_id)
        assert await cluster.totals() == [18, 18, 18]
        assert replayed_total(cluster, 0) == 18


async def test_a_snapshot_keeps_the_level_and_older_code_does_not_go_on(data_dir: Path) -> None:
    async with SumCluster(data_dir, accept_code="any") as cluster:
        cluster.write(NEW)
        for member_id in range(3):
            await restart(cluster, member_id)
        assert (await raise_level(cluster))[0] == 0
        cluster.write(OLD)
        for is_from_snapshot in (False, True):
            if is_from_snapshot:
                assert (await cluster.run_command("snapshot", "take"))[0] == 0
            leader_id = (await cluster.wait_for_leader()).leader_member_id
            follower_id = (leader_id + 1) % 3
            cluster.members[follower_id].terminate()
            assert await cluster.members[follower_id].wait_exit() == 0

            refused = cluster.start(follower_id)

            assert await refused.wait_exit() != 0
            said = refused.process.log_tail()
            assert has_facts(said, "feature_level=1", "log_position=")
            assert "feature_level=0" in said
            cluster.write(NEW)
            cluster.start(follower_id)
            await cluster.wait_for_leader()
            cluster.write(OLD)
        cluster.write(NEW)
        assert await cluster.add(1) == [10]
        for member_id in range(3):
            await restart(cluster, member_id)
        assert await cluster.add(1) == [20]


def replayed_total(cluster: SumCluster, member_id: int) -> int:
    """What a replay of a member's log comes to, with the code that has both behaviours."""
    sys.modules.pop("sum_service", None)
    replayed = replay_service(
        cluster.directory_of(member_id), "sum_service:Sum", service_dir=cluster.code_directory, bound="recorded"
    )
    assert replayed.feature_level == 1
    return int(replayed.service.on_query(memoryview(b"")))
