"""Real members whose services differ: they find it while they run, and a minority stops."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.system.cluster_process import STEADY, TIMEOUT_S, Member, SystemCluster
from tests.system.test_operations import order, ordered
from tests.waiting import patient
from trimaran.archive.tool.output import EXIT_UNHEALTHY
from trimaran.benchmarks.rig.member_status import wait_for_status
from trimaran.client import ClusterClient, QueryRefusedError

pytestmark = pytest.mark.slow

PLACE = "tests.system.differing"


async def send(cluster: SystemCluster, *payloads: bytes) -> None:
    async with ClusterClient.connect(cluster.endpoints) as client:
        for payload in payloads:
            await client.request(payload)


async def health(cluster: SystemCluster) -> tuple[int, dict[str, list[dict[str, Any]]]]:  # Any: JSON
    """Ask for the health; gives the exit status and the problems by kind."""
    printed = await order(cluster, "health", "--timeout", "10")
    problems: dict[str, list[dict[str, Any]]] = {}
    for problem in json.loads(printed.output)["problems"]:
        problems.setdefault(problem["kind"], []).append(problem)
    return printed.exit_status, problems


async def differs(member: Member) -> str:
    """Wait for the end of a member that differs from a majority; gives what it said."""
    assert await member.wait_exit() != 0
    said = member.process.log_tail(200)
    assert "majority of members" in said
    assert "trimaran replay" in said
    return said


async def test_a_service_that_uses_random_is_found_by_every_member(data_dir: Path) -> None:
    """308, 210, 313 on three members; health, errors and the snapshots said that all was well."""
    async with SystemCluster(data_dir, service=f"{PLACE}:RandomService", settings=STEADY) as cluster:
        await cluster.wait_for_leader()
        await send(cluster, *[b"roll"] * 60)
        for member in cluster.members.values():
            event = await member.wait_for_event("service.digests_differed")
            assert (event["kind"], event["has_majority"], event["differing_members"]) == ("outputs", False, [0, 1, 2])
            assert len(event["values"]) == 3

        exit_status, problems = await health(cluster)
        assert exit_status == EXIT_UNHEALTHY
        assert {problem["member_id"] for problem in problems["diverged"]} == {0, 1, 2}
        assert "outputs of" in problems["diverged"][0]["detail"]
        await send(cluster, b"roll")


@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "follower"])
async def test_a_member_whose_state_alone_differs_stops(data_dir: Path, is_leader: bool) -> None:
    service, odd = f"{PLACE}:OddService", data_dir / "odd"
    data_dir.mkdir(parents=True, exist_ok=True)
    odd.touch()
    async with SystemCluster(data_dir, service=service, settings=None if is_leader else STEADY) as cluster:
        leader = await cluster.wait_for_leader()
        member_id = leader.leader_member_id if is_leader else (leader.leader_member_id + 1) % 3
        member = cluster.members[member_id]

        await send(cluster, f"odd {member_id} {odd}".encode(), *[b"count"] * 60)

        said = await differs(member)
        assert "service 0 differ" in said
        assert f"{member_id}=10" in said
        other_id = (member_id + 1) % 3
        await cluster.members[other_id].wait_for_event("service.digests_differed", differing_members=[member_id])
        odd.unlink()
        cluster.start(member_id)
        await cluster.wait_for_leader()
        await send(cluster, *[b"count"] * 60)
        await wait_for_status(
            cluster.processes, other_id, lambda status: not status.divergences, time_limit_s=patient(TIMEOUT_S)
        )


async def test_a_member_that_differs_goes_on_where_its_setting_says_report(data_dir: Path) -> None:
    settings, odd = {**STEADY, "when_diverged": "report"}, data_dir / "odd"
    data_dir.mkdir(parents=True, exist_ok=True)
    odd.touch()
    async with SystemCluster(data_dir, service=f"{PLACE}:OddService", settings=settings) as cluster:
        await cluster.wait_for_leader()
        await send(cluster, f"odd 1 {odd}".encode(), *[b"count"] * 60)

        await cluster.members[1].wait_for_event("service.digests_differed", kind="state")
        await wait_for_status(
            cluster.processes, 0, lambda status: bool(status.divergences), time_limit_s=patient(TIMEOUT_S)
        )
        exit_status, problems = await health(cluster)
        assert exit_status == EXIT_UNHEALTHY
        assert "majority: 1" in problems["member_diverged"][0]["detail"]


async def test_a_field_that_the_snapshot_forgets_is_found_when_it_is_loaded(data_dir: Path) -> None:
    """After a restart one member differed, and nothing said so."""
    service = f"{PLACE}:HashedForgetfulService"
    async with SystemCluster(data_dir, service=service, settings=STEADY) as cluster:
        leader = await cluster.wait_for_leader()
        member_id = (leader.leader_member_id + 1) % 3
        await send(cluster, *[b"%d" % number for number in range(20)])
        await ordered(cluster, "snapshot", "take")
        await cluster.members[member_id].wait_for_event("snapshot.taken")
        cluster.members[member_id].kill()

        said = await differs(cluster.start(member_id))

        assert "service 0 differ" in said
        assert "(20, b'')" in said
        assert "(20, b'19')" in said
        cluster.start(member_id)  # from before that snapshot, which does not count any more
        await cluster.wait_for_leader()
        await send(cluster, *[b"%d" % number for number in range(60)])
        await cluster.wait_for_equal_states()


async def test_a_field_that_the_snapshot_forgets_is_found_by_the_replies_after_a_restart(data_dir: Path) -> None:
    async with SystemCluster(data_dir, service=f"{PLACE}:ForgetfulService", settings=STEADY) as cluster:
        leader = await cluster.wait_for_leader()
        member_id = (leader.leader_member_id + 1) % 3
        await send(cluster, *[b"%d" % number for number in range(20)])
        await ordered(cluster, "snapshot", "take")
        await cluster.members[member_id].wait_for_event("snapshot.taken")
        await send(cluster, *[b"%d" % number for number in range(60)])
        await cluster.wait_for_equal_states()
        cluster.members[member_id].kill()

        said = await differs(cluster.start(member_id))

        assert "outputs of" in said
        shutil.rmtree(cluster.directory_of(member_id))
        cluster.start(member_id)
        await cluster.wait_for_leader()
        await send(cluster, *[b"%d" % number for number in range(60)])
        await cluster.wait_for_equal_states()


async def test_snapshots_in_the_order_of_a_set_are_found_when_they_are_taken(data_dir: Path) -> None:
    async with SystemCluster(data_dir, service=f"{PLACE}:SetService", settings=STEADY) as cluster:
        leader = await cluster.wait_for_leader()
        await send(cluster, *[b"word %d" % number for number in range(30)])
        await order(cluster, "snapshot", "take")

        event = await cluster.members[leader.leader_member_id].wait_for_event("service.digests_differed")

        assert event["kind"] == "snapshot"


async def test_a_query_that_changes_the_state_fails_and_is_told(data_dir: Path) -> None:
    """It passed without a word."""
    settings = {**STEADY, "check_queries": "true"}
    async with SystemCluster(data_dir, service=f"{PLACE}:OddService", settings=settings) as cluster:
        await cluster.wait_for_leader()
        async with ClusterClient.connect(cluster.endpoints) as client:
            assert (await client.query(b"read")).payload == b"0"
            with pytest.raises(QueryRefusedError, match=r"on_query changed.*service=.*OddService.*b'change'"):
                await client.query(b"change")

        exit_status, problems = await health(cluster)

        assert exit_status == EXIT_UNHEALTHY
        assert "on_query changed" in problems["query_changes_state"][0]["detail"]
