"""Subscriptions of real processes: by the command, and from a script, while members are killed."""

from __future__ import annotations

import asyncio
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.redis_server import RedisServer, needs_redis
from tests.system.cluster_process import TIMEOUT_S, SystemCluster
from tests.system.forked_command import commands_on_path
from tests.unit.cluster.subscriptions.receiver import received
from tests.waiting import ask_until
from trimaran.cluster.subscriptions import LogEntry, ServedBy, subscribe_blocking
from trimaran.cluster.subscriptions.resp import RedisAddress, RedisConnection
from trimaran.service_api.endpoint import Endpoint

pytestmark = pytest.mark.slow

Row = dict[str, object]


def consensus_endpoints(cluster: SystemCluster) -> list[str]:
    found = [Endpoint.parse(endpoint) for endpoint in cluster.endpoints]
    return [f"{endpoint.host}:{endpoint.port + 1}" for endpoint in found]


async def run_command(cluster: SystemCluster, position_file: Path, count: int) -> list[Row]:
    """Run the command until it has printed so many requests; kill it then, in the middle of what it does."""
    members = ",".join(f"{i}={endpoint}" for i, endpoint in enumerate(cluster.endpoints))
    arguments = ("--members", members, "--kind", "message", "--position-file", str(position_file), "-n", str(count))
    process = await asyncio.create_subprocess_exec(
        *(commands_on_path() / "trimaran", "subscribe", *arguments), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in said.splitlines()]


async def test_entries_come_once_while_the_leader_is_killed_and_the_command_restarts(
    data_dir: Path, tmp_path: Path
) -> None:
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        old = await cluster.wait_for_leader()
        reading = asyncio.create_task(asyncio.to_thread(read_from_the_leader, consensus_endpoints(cluster), 400))
        await requester.request(200)
        rows = await run_command(cluster, tmp_path / "position", 150)
        cluster.members[old.leader_member_id].kill()
        new = await cluster.wait_for_leader(min_term_id=old.leadership_term_id + 1)  # one more where a ballot was split
        await requester.request(200)
        rows += await run_command(cluster, tmp_path / "position", 250)
        entries = await reading
        cluster.start(old.leader_member_id)
        await cluster.wait_for_leader()

        # The script read from a leader that was killed, the command from followers, and was started twice.
        assert [row["position"] for row in rows] == [entry.position for entry in entries]
        assert [row["position"] for row in rows] == sorted({entry.position for entry in entries})
        assert {entry.leadership_term_id for entry in entries} == {old.leadership_term_id, new.leadership_term_id}


async def test_the_command_posts_entries_until_the_receiver_has_them(data_dir: Path, tmp_path: Path) -> None:
    with received([503, 500]) as receiver:
        async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
            await cluster.wait_for_leader()
            await requester.request(50)
            for count in (20, 30):
                arguments = ("--kind", "message", "--to", receiver.url, "-n", str(count))
                where = ("--position-file", str(tmp_path / "position"))
                status, said = await cluster.run_command("subscribe", *arguments, *where)
                assert status == 0, said

    rows = [row for _, batch in receiver.taken for row in batch]
    assert len({row["position"] for row in rows}) == len(rows) == 50


@needs_redis
async def test_a_redis_stream_has_each_entry_once_when_command_and_server_are_killed(
    data_dir: Path, tmp_path: Path
) -> None:
    with RedisServer(tmp_path / "redis") as server:
        url = server.url("entries")
        async with SystemCluster(data_dir, member_count=1) as cluster, cluster.requester() as requester:
            await cluster.wait_for_leader()
            for round_number in (1, 2, 3):
                command = await start_command(cluster, url)
                await requester.request(100)
                await wait_for_count(url, 100 * round_number - 60)
                command.kill()
                await command.wait()
                server.kill()
                await asyncio.to_thread(server.start)
            command = await start_command(cluster, url)
            await wait_for_count(url, 300)
            command.terminate()
            await command.wait()
            entries = await asyncio.to_thread(read_from_the_leader, consensus_endpoints(cluster), 300)

    with server:
        found = await call_redis(url, b"XRANGE", b"entries", b"-", b"+")
    assert [int(entry_id.partition(b"-")[0]) for entry_id, _ in found] == [entry.end_position for entry in entries]


async def start_command(cluster: SystemCluster, url: str) -> asyncio.subprocess.Process:
    arguments = ("--members", f"0={cluster.endpoints[0]}", "--kind", "message", "--served-by", "any", "--to", url)
    return await asyncio.create_subprocess_exec(commands_on_path() / "trimaran", "subscribe", *arguments)


async def call_redis(url: str, *words: bytes) -> Any:
    async with await RedisConnection.open(RedisAddress.parse(url)) as connection:
        return await connection.call(*words)


async def wait_for_count(url: str, count: int) -> None:
    """Wait until the stream has so many entries."""

    async def ask() -> bool | None:
        return await call_redis(url, b"XLEN", b"entries") >= count or None

    await ask_until(ask, timeout_s=TIMEOUT_S, what=f"{count} entries")


def read_from_the_leader(endpoints: list[str], count: int) -> list[LogEntry]:
    with subscribe_blocking(endpoints, kinds=["message"], served_by=ServedBy.LEADER) as entries:
        return list(islice(entries, count))
