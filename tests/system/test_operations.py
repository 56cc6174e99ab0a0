"""A real cluster as an operator watches it: scraped through a fail-over, asked for its health, its errors read."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.processes import find_base_ports
from tests.system.cluster_process import SERVICE, TIMEOUT_S, Member, SystemCluster
from tests.system.waiting import POLL_INTERVAL_S

pytestmark = pytest.mark.slow

SETTINGS = {"metrics_endpoint": "127.0.0.1:0"}
HEALTHY, UNREACHABLE, UNHEALTHY, NO_LEADER = 0, 3, 10, 11


class Watcher:
    """Fetches the pages of members, each from where its log says that it listens."""

    def __init__(self, cluster: SystemCluster) -> None:
        self.cluster = cluster

    async def fetch(self, member: Member, path: str) -> tuple[int, str]:
        """Fetch one page; gives the status and the body."""
        listening = await member.wait_for_event("metrics.listening")
        host, _, port = listening["endpoint"].rpartition(":")
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            answer = (await reader.read()).decode()
            writer.close()
        head, _, body = answer.partition("\r\n\r\n")
        return int(head.split(" ", 2)[1]), body

    async def scrape(self, member_id: int) -> dict[str, float]:
        """Fetch a member's metrics: values by name, with `{label}` where there are labels."""
        status, body = await self.fetch(self.cluster.members[member_id], "/metrics")
        assert status == 200
        return {
            sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
            for family in text_string_to_metric_families(body)
            for sample in family.samples
        }

    async def wait_for_ready(self, member_id: int, *, is_ready: bool) -> str:
        """Wait until `/readyz` says so; gives what it says."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                status, body = await self.fetch(self.cluster.members[member_id], "/readyz")
                if (status == 200) is is_ready:
                    return body
                await asyncio.sleep(POLL_INTERVAL_S)


async def run(*arguments: str) -> tuple[int, str]:
    """Run `quorate` as a user would; gives the exit status and standard output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cluster", *arguments),
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("QUORATE_")},
    )
    async with asyncio.timeout(TIMEOUT_S):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def health(cluster: SystemCluster) -> tuple[int, list[tuple[str, int | None]]]:
    members = ",".join(f"{i}={endpoint}" for i, endpoint in enumerate(cluster.endpoints))
    status, output = await run("health", "--members", members, "-o", "json", "--timeout", "20")
    return status, [(problem["kind"], problem["member_id"]) for problem in json.loads(output)["problems"]]


async def test_a_fail_over_is_seen_in_scrapes_and_in_the_health(data_dir: Path) -> None:
    """Issue 4: metrics, probes and health before, during and after a leader is killed under load."""
    async with SystemCluster(data_dir, settings=SETTINGS) as cluster, cluster.requester() as requester:
        watcher = Watcher(cluster)
        old = await cluster.wait_for_leader()
        old_id = old.leader_member_id
        requester.start_load()
        await requester.wait_answered(300)

        before = {member_id: await watcher.scrape(member_id) for member_id in cluster.members}

        for member_id, found in before.items():
            assert found["quorate_node_role"] == (2 if member_id == old_id else 0)
            assert found["quorate_leader_member_id"] == old_id
            assert found["quorate_leadership_term_id"] == old.leadership_term_id
            assert found["quorate_sync_duration_seconds_count{fdatasync}"] > 0
            assert found["quorate_committed_bytes_total"] > 0
            assert (found["quorate_sessions"], found["quorate_ingress_connections"]) == (1, 1)
            assert (await watcher.fetch(cluster.members[member_id], "/readyz"))[0] == 200
        followers = [member_id for member_id in cluster.members if member_id != old_id]
        assert all(f"quorate_follower_lag_bytes{{{member_id}}}" in before[old_id] for member_id in followers)
        assert await health(cluster) == (HEALTHY, [])

        new = await cluster.kill_and_serve(requester, old_id)

        after = {member_id: await watcher.scrape(member_id) for member_id in followers}
        for member_id, found in after.items():
            assert found["quorate_node_role"] == (2 if member_id == new.leader_member_id else 0)
            assert found["quorate_leadership_term_id"] == new.leadership_term_id
            assert found["quorate_elections_total"] > before[member_id]["quorate_elections_total"]
            assert found["quorate_committed_bytes_total"] > before[member_id]["quorate_committed_bytes_total"]
            assert found[f"quorate_member_link_up{{{old_id}}}"] == 0
        other_id = next(member_id for member_id in followers if member_id != new.leader_member_id)
        assert after[new.leader_member_id][f"quorate_follower_active{{{other_id}}}"] == 1
        assert f"quorate_follower_lag_bytes{{{old_id}}}" not in after[new.leader_member_id]
        assert await health(cluster) == (UNHEALTHY, [("no_answer", old_id)])

        await requester.stop_load()
        cluster.members[new.leader_member_id].kill()
        reason = await watcher.wait_for_ready(other_id, is_ready=False)

        assert reason.startswith("not ready: in an election: state=")
        assert (await watcher.fetch(cluster.members[other_id], "/livez"))[0] == 200
        assert (await health(cluster))[0] == NO_LEADER

        cluster.start(old_id)
        cluster.start(new.leader_member_id)
        await cluster.wait_for_leader(min_term_id=new.leadership_term_id + 1)
        for member_id in cluster.members:
            await watcher.wait_for_ready(member_id, is_ready=True)
        assert await health(cluster) == (HEALTHY, [])


async def test_errors_are_read_from_a_member_that_was_killed(data_dir: Path) -> None:
    """A connection that is refused is a warning; it is found after SIGKILL, and again after the next run."""
    async with SystemCluster(data_dir) as cluster:
        await cluster.wait_for_leader()
        member = cluster.members[0]
        for count in (1, 2, 3):
            host, _, port = cluster.endpoints[0].rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET / HTTP/1.1\r\n\r\n".ljust(64))
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    try:
                        if not await reader.read(1024):
                            break
                    except ConnectionError:
                        break
            writer.close()
            await member.wait_for_event("ingress.refused", count=count)
        alive = await errors_of(cluster.directory_of(0))
        member.kill()
        dead = await errors_of(cluster.directory_of(0))
        cluster.start(0)
        await cluster.wait_for_leader()
        again = await errors_of(cluster.directory_of(0))

    refused = [error for error in dead if error["event"] == "ingress.refused"]
    assert [(error["count"], error["level"]) for error in refused] == [(3, "warning")]
    assert refused[0]["place"].startswith("runtime/ingress.py:")
    assert refused[0] in alive
    assert refused[0] in again


async def errors_of(directory: Path) -> list[dict[str, Any]]:  # Any: JSON
    status, output = await run("errors", str(directory), "-o", "jsonl")
    assert status == 0
    return [json.loads(line) for line in output.splitlines()]


async def test_a_metrics_endpoint_that_is_taken_is_the_users_mistake(data_dir: Path) -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    taken = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    (member,) = find_base_ports(1)
    async with server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cluster", "node", "--member-id", "0", "--members", f"0=127.0.0.1:{member}"),
            *("--directory", str(data_dir), "--service", SERVICE, "--metrics-endpoint", taken),
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(TIMEOUT_S):
            _, errors = await process.communicate()

    (recorded,) = await errors_of(data_dir)
    assert process.returncode == 2
    assert errors.decode().splitlines()[-1].startswith(f"quorate: cannot listen on metrics endpoint={taken}: ")
    assert (recorded["level"], recorded["event"], recorded["kind"]) == ("critical", "node.failed", "ConfigurationError")
