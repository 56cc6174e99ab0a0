"""`trimaran recover` on directories of real clusters that were killed under load, and damaged.

Each cluster is brought back and goes on: what the directories that were left held is there, and clients are served.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system.cluster_process import SystemCluster
from tests.system.directory_checker import log_end_position
from tests.system.requester import Requester
from tests.system.test_snapshots import take

pytestmark = pytest.mark.slow


async def recover(*arguments: str, status: int = 0) -> dict[str, Any]:  # Any: JSON
    """Run the command; gives its document."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trimaran", "recover", *arguments, "-o", "json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == status, (out.decode(), err.decode())
    found = json.loads(out)[0] if out.strip() else {}
    return found | {"stderr": err.decode()}


def members_of(cluster: SystemCluster, *member_ids: int) -> str:
    """The setting `members` of these members."""
    return ",".join(f"{i}={cluster.endpoints[i]}" for i in member_ids)


def directories_of(cluster: SystemCluster, *member_ids: int) -> list[str]:
    return [str(cluster.directory_of(i)) for i in member_ids]


def kill_all(cluster: SystemCluster) -> None:
    for member in cluster.running:
        member.kill()


def install(cluster: SystemCluster, out: Path, *member_ids: int) -> None:
    """Put recovered directories where the members have theirs, and leave nothing of the old ones."""
    for member_id in cluster.members:
        shutil.rmtree(cluster.directory_of(member_id), ignore_errors=True)
    for member_id in member_ids:
        (out / f"node-{member_id}").rename(cluster.directory_of(member_id))


async def go_on(cluster: SystemCluster, requester: Requester, *member_ids: int) -> None:
    """Start members on recovered directories, have clients served, and check what the log holds."""
    for member_id in member_ids:
        member = cluster.start(member_id)
        await member.wait_for_event("node.started")
    await cluster.wait_for_leader()
    await requester.request(50)
    await cluster.wait_for_equal_logs()


def tear_tail(directory: Path) -> None:
    """Leave half a frame at the end of a log, as a power loss in the middle of a write does."""
    end = log_end_position(directory)
    segment = max((directory / "archive").glob("0-*.rec"), key=lambda path: int(path.stem.partition("-")[2]))
    base = int(segment.stem.partition("-")[2])
    with segment.open("r+b") as file:
        file.seek(end - base)
        file.write(b"\x80\0\0\0\0\xc0\1\0torn")


async def test_one_survivor_becomes_three_members(data_dir: Path) -> None:
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        await requester.request(300)
        await cluster.wait_for_equal_states()
        kill_all(cluster)
        for wiped in (1, 2):
            shutil.rmtree(cluster.directory_of(wiped))

        plan = await recover("plan", *directories_of(cluster, 0))
        out = data_dir / "out"
        done = await recover(
            "apply", *directories_of(cluster, 0), "--members", members_of(cluster, 0, 1, 2), "--to", str(out)
        )
        install(cluster, out, 0, 1, 2)
        await go_on(cluster, requester, 0, 1, 2)

        assert "are a majority" in " ".join(plan["losses"])
        assert done["cluster_id"] not in (None, done["old_cluster_id"])
    cluster.check_answers(requester)


async def test_a_survivor_in_place_is_a_cluster_of_one(data_dir: Path) -> None:
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        await requester.request(200)
        await take(cluster)
        await requester.request(100)
        await cluster.wait_for_equal_states()
        kill_all(cluster)
        for wiped in (0, 1):
            shutil.rmtree(cluster.directory_of(wiped))

        done = await recover("apply", *directories_of(cluster, 2), "--members", members_of(cluster, 2), "--in-place")
        for gone in (0, 1):
            del cluster.members[gone]
        await go_on(cluster, requester, 2)

        assert done["kept"] == [f"{cluster.directory_of(2)}.before-recovery"]
    cluster.check_answers(requester)


async def test_all_with_torn_tails(data_dir: Path) -> None:
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        requester.start_load()
        await requester.wait_answered(300)
        kill_all(cluster)
        for member_id in range(3):
            tear_tail(cluster.directory_of(member_id))

        out = data_dir / "out"
        done = await recover(
            "apply", *directories_of(cluster, 0, 1, 2), "--members", members_of(cluster, 0, 1, 2), "--to", str(out)
        )
        install(cluster, out, 0, 1, 2)
        for member_id in range(3):
            await cluster.start(member_id).wait_for_event("node.started")
        await cluster.wait_for_leader()
        await requester.wait_answered(requester.submitted_count + 100)
        await requester.quiesce()

        assert len(done["directories"]) == 3
    cluster.check_answers(requester)


async def test_snapshots_alone(data_dir: Path) -> None:
    """The log's segments are lost on every disk, the catalog and the snapshots are not."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        await requester.request(300)
        position = await take(cluster)
        await cluster.wait_for_equal_states()
        kill_all(cluster)
        for member_id in range(3):
            for segment in (cluster.directory_of(member_id) / "archive").glob("0-*.rec"):
                segment.unlink()

        out = data_dir / "out"
        done = await recover(
            "apply", *directories_of(cluster, 0, 1, 2), "--members", members_of(cluster, 0, 1, 2), "--to", str(out)
        )
        install(cluster, out, 0, 1, 2)
        await go_on(cluster, requester, 0, 1, 2)

        assert done["term_base_log_position"] == position


async def test_refused_while_a_majority_lives(data_dir: Path) -> None:
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        await requester.request(100)
        await cluster.wait_for_equal_states()
        cluster.members[0].kill()
        out = data_dir / "out"
        arguments = ("--members", members_of(cluster, 0), "--to", str(out))

        living = await recover("apply", *directories_of(cluster, 0), *arguments, status=12)
        running = await recover("apply", *directories_of(cluster, 0, 1), *arguments, status=12)

        assert "2 of 3 voters of the old cluster may be alive" in living["stderr"]
        assert "a process uses" in running["stderr"]
        assert not out.exists()
        cluster.start(0)
        await cluster.wait_for_leader()
