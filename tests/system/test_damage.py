"""A leader whose log is damaged below its end, one disk replaced, the third member whole: real processes.

Issue 20 §4. And what is written is for its owner alone.
"""

from __future__ import annotations

import json
import re
import shutil
import stat
from pathlib import Path

import pytest

from tests.system.cluster_process import Member, SystemCluster
from tests.waiting import within
from trimaran.archive import ArchiveError
from trimaran.archive.net.client import ArchiveClient

pytestmark = [pytest.mark.slow, pytest.mark.damages_directories]

ARCHIVE_PORT = 4
"""The archive's port, from the first one of a member."""


def flip(cluster: SystemCluster, member_id: int) -> None:
    """Flip a bit in the payload of the first frame of the log."""
    with (cluster.directory_of(member_id) / "archive" / "0-0.rec").open("r+b") as file:
        file.seek(40)
        (byte,) = file.read(1)
        file.seek(40)
        file.write(bytes([byte ^ 1]))


async def replay_all(client: ArchiveClient) -> None:
    async with client.replay(0) as messages:
        async for _ in messages:
            pass


async def replay_refused(endpoint: str) -> str | None:
    """Replay all as a stranger does; give the refusal, None if all came."""
    async with ArchiveClient.connect(endpoint) as client:
        try:
            await replay_all(client)
        except ArchiveError as error:
            return str(error)
    return None


async def replace_disk(cluster: SystemCluster, member_id: int) -> Member:
    cluster.members[member_id].kill()
    shutil.rmtree(cluster.directory_of(member_id))
    return cluster.start(member_id)


async def test_a_damaged_leader_and_a_replaced_disk_heal_through_the_third_member(data_dir: Path) -> None:
    cluster = SystemCluster(data_dir)
    with cluster.processes.group:
        async with within(120):
            cluster.processes.data_dir.mkdir(parents=True, exist_ok=True)
            await cluster._start_first()
            leader = (await cluster.wait_for_leader()).leader_member_id
            wiped, _ = (member_id for member_id in cluster.members if member_id != leader)
            async with cluster.requester() as requester:
                await requester.request(600)
                flip(cluster, leader)

                back = await replace_disk(cluster, wiped)
                await back.wait_for_event("election.closed")
                await requester.request(100)

            damaged = cluster.members[leader]
            told = await damaged.wait_for_event("recording.damaged")
            assert (told["recording_id"], told["position"], told["file"]) == (0, 0, "0-0.rec")
            await damaged.wait_for_event("recording.repaired", recording_id=0, position=0)
            await cluster.wait_for_leader()
            status, said = await cluster.run_command("scrub", "--start", "--wait", "60", "-o", "json")
            assert status == 0, said
            assert [
                (each["scrub"]["pass_count"], each["damaged_place_count"]) for each in json.loads(said)["members"]
            ] == [(1, 0)] * 3


async def test_a_stranger_who_replays_damage_stops_no_node(data_dir: Path) -> None:
    cluster = SystemCluster(data_dir)
    with cluster.processes.group:
        async with within(120):
            cluster.processes.data_dir.mkdir(parents=True, exist_ok=True)
            await cluster._start_first()
            leader = (await cluster.wait_for_leader()).leader_member_id
            async with cluster.requester() as requester:
                await requester.request(300)
                flip(cluster, leader)
                endpoint = f"127.0.0.1:{cluster.processes.base_ports[leader] + ARCHIVE_PORT}"
                refused = [await replay_refused(endpoint) for _ in range(3)]
                await requester.request(100)

            # Another member's bytes may come between two of the replays; never is there a refusal after them.
            assert refused[0] is not None
            assert refused == sorted(refused, key=lambda reason: reason is None)
            assert all(re.search(r"file=0-0\.rec.*position=0", reason) for reason in refused if reason is not None)
            await cluster.members[leader].wait_for_event("recording.repaired", recording_id=0, position=0)
            assert await replay_refused(endpoint) is None
            assert len(cluster.members[leader].events("recording.damaged")) == 1
            assert (await cluster.wait_for_leader()).leader_member_id == leader


async def test_what_a_member_writes_is_for_its_owner_alone_and_an_older_directory_becomes_so(data_dir: Path) -> None:
    """Directories 0700, files 0600: while it runs, and after a start on a directory that others could read."""
    cluster = SystemCluster(data_dir, member_count=1)
    with cluster.processes.group:
        async with within(120):
            cluster.processes.data_dir.mkdir(parents=True, exist_ok=True)
            await cluster._start_first()
            await cluster.wait_for_leader()
            async with cluster.requester() as requester:
                await requester.request(300)
            directory = cluster.directory_of(0)
            assert modes_in(directory) == {(True, 0o700), (False, 0o600)}
            cluster.members[0].terminate()
            await cluster.members[0].wait_exit()
            for path in directory.rglob("*"):
                path.chmod(0o755 if path.is_dir() else 0o644)

            member = cluster.start(0)
            await member.wait_for_event("election.closed")

            assert modes_in(directory) == {(True, 0o700), (False, 0o600)}
            assert len(member.events("directory.access_restricted")) == 2


def modes_in(directory: Path) -> set[tuple[bool, int]]:
    """Whether it is a directory, and its permissions, of all that is in a directory, and of itself."""
    return {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in (directory, *directory.rglob("*"))}


async def test_a_node_that_cannot_start_logs_why_with_advice(data_dir: Path) -> None:
    """Every exit is an event with what, where and what to do, as everything else that a node says."""
    cluster = SystemCluster(data_dir, member_count=1, start=[])
    with cluster.processes.group:
        cluster.processes.data_dir.mkdir(parents=True, exist_ok=True)
        archive = cluster.directory_of(0) / "archive"
        archive.mkdir(parents=True)
        (archive / "0-0.rec").write_bytes(bytes(65536))

        member = cluster.start(0)
        status = await member.wait_exit()

        (failed,) = member.events("node.failed")
        assert status == 2
        assert failed["error"] == "CorruptionError"
        assert "archive.catalog" in failed["reason"]
        assert "restore" in failed["reason"]
