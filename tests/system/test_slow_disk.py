"""A leader whose disk is slow: everybody who looks is told, and the leader hands over to a member with a quick one.

The disk is slow by the preloaded library of `trimaran.benchmarks.chaos`, which delays the syncs of one member.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.system.cluster_process import SystemCluster
from tests.system.commands import run_trimaran
from tests.system.test_operations import order
from trimaran.benchmarks.chaos.shim import FaultShim

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or not any(map(shutil.which, ("cc", "gcc", "clang"))),
        reason="the library needs Linux and a C compiler",
    ),
]

SLOW_SYNC_S = 0.25


async def test_leader_with_a_slow_disk_says_so_everywhere_and_hands_over(data_dir: Path) -> None:
    """Issue 44 §2: health, log, errors and status were silent."""
    data_dir.mkdir(parents=True, exist_ok=True)
    library = FaultShim.compile(data_dir)
    cluster = SystemCluster(data_dir)
    shims = {i: library.for_member(data_dir / f"shim-{i}", cluster.directory_of(i)) for i in range(3)}
    cluster.processes.environments = {i: shim.environment for i, shim in shims.items()}
    async with cluster, cluster.requester() as requester:
        first = await cluster.wait_for_leader()
        leader_id = first.leader_member_id
        leader = cluster.members[leader_id]

        shims[leader_id].set_sync_delay(SLOW_SYNC_S)
        requester.start_load()
        slow = await leader.wait_for_event("sync.slow")
        second = await cluster.wait_for_leader(min_term_id=first.leadership_term_id + 1)
        status = json.loads((await order(cluster, "status")).output)
        health = json.loads((await order(cluster, "health")).output)
        errors = await run_trimaran("errors", str(cluster.directory_of(leader_id)), "-o", "json")
        await requester.wait_answered(requester.submitted_count + 300)
        await requester.stop_load()

        assert slow["file"].startswith(str(cluster.directory_of(leader_id)))
        assert slow["duration_ms"] >= 1_000 * SLOW_SYNC_S
        assert second.leader_member_id != leader_id
        handed_over = leader.events("leadership.transfer_changed", step="asked")[-1]
        assert "ms" in handed_over["reason"]
        syncs = {member["member_id"]: member["status"]["syncs"] for member in status["members"]}
        assert syncs[leader_id]["p99_s"] >= SLOW_SYNC_S
        assert [problem["member_id"] for problem in health["problems"] if problem["kind"] == "sync_slow"] == [leader_id]
        assert "sync.slow" in errors.output
        shims[leader_id].set_sync_delay(0)
    for shim in shims.values():
        shim.close()
    cluster.check_answers(requester)
