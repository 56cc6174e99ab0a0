"""Real members that cannot deliver an entry: they hold before it, and an operator has it skipped."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.system.careless import CarelessService
from tests.system.cluster_process import SystemCluster
from tests.system.commands import run_trimaran_blocking
from tests.waiting import ask_until, patient, wait_until
from trimaran.benchmarks.rig.member_status import consensus_endpoint
from trimaran.client import ClusterClient, RequestFailedError
from trimaran.cluster.documents.query import StatusQueryError, query_status
from trimaran.cluster.time_travel import replay_service
from trimaran.service_api.documents.member_status import HeldStatus

pytestmark = pytest.mark.slow

SERVICE = "tests.system.careless:CarelessService"


async def wait_until_held(cluster: SystemCluster, member_id: int) -> HeldStatus:
    async def ask() -> HeldStatus | None:
        with contextlib.suppress(StatusQueryError):
            return (await query_status(consensus_endpoint(cluster.processes, member_id), patient(2.0))).held
        return None

    return await ask_until(ask, timeout_s=60, what=f"member {member_id} to hold")


async def start_until_held(cluster: SystemCluster, *member_ids: int) -> None:
    """Start members again, which stop where they fail, until all of them hold there."""

    def start_and_look() -> bool:
        for member_id in member_ids:
            if not cluster.members[member_id].process.is_running:
                cluster.start(member_id)
        return all(cluster.members[member_id].events("entry.held") for member_id in member_ids)

    await wait_until(start_and_look, timeout_s=90, what=f"members {member_ids} to hold")
    for member_id in member_ids:
        await wait_until_held(cluster, member_id)


def replayed_counts(cluster: SystemCluster) -> list[int]:
    """What replays of the members' logs say: they pass over the entry, too, which would fail there."""
    services = [CarelessService() for _ in cluster.members]
    for member_id, service in enumerate(services):
        replay_service(cluster.directory_of(member_id), service, bound="recorded", member_id=member_id)
    return [service.count for service in services]


def dumped_actions(directory: Path) -> list[dict[str, Any]]:  # Any: JSON
    """The cluster actions of a member's log, as `trimaran archive grep` shows them; every row must be readable."""
    printed = run_trimaran_blocking("archive", "grep", str(directory), "--log", "-o", "jsonl")
    assert printed.exit_status == 0, printed.errors
    rows = [json.loads(line) for line in printed.output.splitlines()]
    assert [row["problem"] for row in rows if row.get("problem")] == []
    return [row["fields"] for row in rows if row["name"] == "ClusterActionRequest"]


async def test_an_entry_that_no_member_can_deliver_is_skipped_and_its_client_is_told(data_dir: Path) -> None:
    """The cluster could not be started any more: each start met the entry again."""
    full = data_dir / "memory-is-full"
    async with SystemCluster(data_dir, service=SERVICE) as cluster:
        await cluster.wait_for_leader()
        full.touch()
        async with ClusterClient.connect(cluster.endpoints, new_leader_timeout_s=patient(120)) as client:
            assert await client.request(b"count") == b"1"
            failing = asyncio.create_task(client.request(f"memory {full} 0,1,2".encode(), timeout_s=patient(120)))
            await start_until_held(cluster, 0, 1, 2)
            leader = await cluster.wait_for_leader()

            status, printed = await cluster.run_command("health", "-o", "json")
            held = [problem for problem in json.loads(printed)["problems"] if problem["kind"] == "service_held"]
            assert status == 10
            assert [problem["member_id"] for problem in held] == [0, 1, 2]
            assert "on_request raised MemoryError()" in held[0]["detail"]
            position = (await wait_until_held(cluster, 0)).log_position
            assert f"log_position={position}" in held[0]["detail"]
            assert "trimaran log skip" in held[0]["advice"]

            refused, printed = await cluster.run_command("snapshot", "take")
            assert (refused, "leader holds" in printed) == (12, True), printed
            refused, printed = await cluster.run_command(
                "log", "skip", "--log-position", str(position + 32), "--confirm"
            )
            assert (refused, f"expected={position}" in printed) == (12, True), printed
            refused, printed = await cluster.run_command("log", "skip", "--log-position", str(position))
            assert (refused, "--confirm" in printed) == (2, True), printed

            status, printed = await cluster.run_command("log", "skip", "--log-position", str(position), "--confirm")
            assert status == 0, printed
            await cluster.wait_for_leader(min_term_id=leader.leadership_term_id + 1)
            with pytest.raises(RequestFailedError, match="skipped"):
                await failing
            assert await client.request(b"count") == b"2"
            status, printed = await cluster.run_command("health")
            assert status == 0, printed
            await cluster.wait_for_equal_states()

            for member_id in (0, 1, 2):
                cluster.members[member_id].kill()
                cluster.start(member_id)
            await cluster.wait_for_leader(min_term_id=leader.leadership_term_id + 2)
            assert await client.request(b"count") == b"3"
            await cluster.wait_for_equal_states()
    counts = [member.events("test_careless.terminated")[-1]["count"] for member in cluster.members.values()]
    assert counts == [3, 3, 3]
    assert [(row["action"], row["flags"]) for row in dumped_actions(cluster.directory_of(0))] == [("NULL_VAL", 256)]
    assert replayed_counts(cluster) == counts


async def test_a_member_that_had_delivered_a_skipped_entry_starts_again_from_before_it(data_dir: Path) -> None:
    full = data_dir / "memory-is-full"
    async with SystemCluster(data_dir, service=SERVICE) as cluster:
        leader = await cluster.wait_for_leader()
        full.touch()
        delivering = (leader.leader_member_id + 1) % 3
        failing = sorted({0, 1, 2} - {delivering})
        async with ClusterClient.connect(cluster.endpoints, new_leader_timeout_s=patient(120)) as client:
            assert await client.request(b"count") == b"1"
            requested = asyncio.create_task(
                client.request(f"memory {full} {failing[0]},{failing[1]}".encode(), timeout_s=patient(120))
            )
            for member_id in failing:
                assert await cluster.members[member_id].wait_exit() != 0
            await start_until_held(cluster, *failing)
            assert await requested == b"2"

            cluster.members[delivering].kill()
            position = str((await wait_until_held(cluster, failing[0])).log_position)
            await cluster.wait_for_leader(min_term_id=leader.leadership_term_id + 1)
            command = asyncio.create_task(cluster.run_command("log", "skip", "--log-position", position, "--confirm"))
            assert await client.request(b"count", timeout_s=patient(120)) == b"2"
            assert await client.request(b"count") == b"3"
            cluster.start(delivering)
            code, printed = await command
            assert code == 0, printed
            await cluster.wait_for_equal_states()
            assert cluster.members[delivering].events("entry.skip_learned")
            assert await client.request(b"count") == b"4"
            await cluster.wait_for_equal_states()
    counts = [member.events("test_careless.terminated")[-1]["count"] for member in cluster.members.values()]
    assert counts == [4, 4, 4]
    assert replayed_counts(cluster) == counts
