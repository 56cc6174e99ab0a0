"""Snapshots of a cluster of processes: taken with the command, loaded by members that were killed, looked after."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.cluster_process import SystemCluster
from tests.system.commands import Printed, run_trimaran

pytestmark = pytest.mark.slow


async def snapshot(*arguments: str) -> Printed:
    """Run `trimaran snapshot` as a user would."""
    return await run_trimaran("snapshot", *arguments)


async def take(cluster: SystemCluster) -> int:
    """Have the cluster take a snapshot; gives its position once every member has it."""
    members = ",".join(f"{i}={endpoint}" for i, endpoint in enumerate(cluster.endpoints))
    printed = await snapshot("take", "--members", members, "-o", "json")
    assert printed.exit_status == 0, printed
    position: int = json.loads(printed.output)["log_position"]
    for member in cluster.running:
        await member.wait_for_event("snapshot.taken", log_position=position)
    return position


async def test_a_cluster_is_killed_and_goes_on_from_its_snapshots(data_dir: Path) -> None:
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        requester.start_load()
        await requester.wait_answered(500)
        position = await take(cluster)
        await requester.wait_answered(requester.submitted_count + 500)
        await requester.stop_load()
        for member_id, member in [*cluster.members.items()]:
            member.kill()
            cluster.start(member_id)
        await cluster.wait_for_leader()
        await requester.request(100)

        for member in cluster.members.values():
            loaded = await member.wait_for_event("test_service.loaded")
            assert loaded["log_position"] == position
        await cluster.wait_for_equal_logs()
    cluster.check_answers(requester)


async def test_snapshots_are_listed_verified_and_invalidated(data_dir: Path) -> None:
    async with SystemCluster(data_dir, member_count=1) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        await requester.request(50)
        positions = [await take(cluster)]
        await requester.request(50)
        positions.append(await take(cluster))
        directory = str(cluster.directory_of(0))

        rows = json.loads((await snapshot("list", directory, "-o", "json")).output)
        assert [(row["log_position"], row["state"]) for row in rows] == [(position, "valid") for position in positions]
        verified = await snapshot("verify", directory)
        assert (verified.exit_status, verified.output.count(" valid: ")) == (0, 2)
        described = await snapshot("describe", directory, "-o", "jsonl")
        messages = [json.loads(line) for line in described.output.splitlines()]
        assert messages[0]["fields"]["logPosition"] == messages[-1]["fields"]["logPosition"] == positions[1]
        assert "ClusterSession" in {message["name"] for message in messages}
        refused = await snapshot("invalidate", directory)
        assert refused.exit_status != 0
        assert "in use" in refused.errors

        cluster.members[0].terminate()
        await cluster.members[0].wait_exit()
        invalidated = await snapshot("invalidate", directory)
        assert invalidated.output == f"snapshot invalidated: log_position={positions[1]}\n"
        rows = json.loads((await snapshot("list", directory, "-o", "json")).output)
        assert [row["state"] for row in rows] == ["valid", "invalid"]
        member = cluster.start(0)
        loaded = await member.wait_for_event("test_service.loaded")
        assert loaded["log_position"] == positions[0]
        await cluster.wait_for_leader()
        await requester.request(10)


async def test_a_snapshot_of_no_cluster_is_refused_in_one_line() -> None:
    printed = await snapshot("take", "--members", "0=127.0.0.1:9", "--timeout", "1")

    assert printed.exit_status != 0
    assert "no member can" in printed.errors
    assert len(printed.errors.splitlines()) == 1
