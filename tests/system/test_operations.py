"""What an operator has a cluster of processes do with the command: suspend, resume, shut down, abort."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.facts import has_facts
from tests.system.cluster_process import STEADY, SystemCluster, election_count
from tests.system.commands import Printed, run_trimaran

pytestmark = pytest.mark.slow

REFUSED, NO_LEADER, UNREACHABLE = 12, 11, 3


async def order(cluster: SystemCluster, *arguments: str, output: str = "json") -> Printed:
    members = ",".join(f"{i}={endpoint}" for i, endpoint in enumerate(cluster.endpoints))
    return await run_trimaran(*arguments, "--members", members, "-o", output)


async def ordered(cluster: SystemCluster, *arguments: str) -> Any:  # Any: JSON
    """Run an operation that has to succeed; gives its report."""
    printed = await order(cluster, *arguments)
    assert printed.exit_status == 0, printed
    return json.loads(printed.output)


async def stopped_at(cluster: SystemCluster, position: int) -> None:
    """Every member ends with status 0, at the position, and none has begun an election for it."""
    for member in cluster.members.values():
        assert await member.wait_exit() == 0, member.process.log_tail()
        assert [line["log_position"] for line in member.events("node.terminating")] == [position]
        assert [line["log_position"] for line in member.events("test_service.terminated")] == [position]


async def test_suspended_cluster_lets_clients_wait_also_across_a_failover(data_dir: Path) -> None:
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        leadership = await cluster.wait_for_leader()
        await requester.request(50)

        report = await ordered(cluster, "suspend")
        answered = len(requester.answers)
        requester.submit_many(20)
        status = json.loads((await order(cluster, "status")).output)
        again = await order(cluster, "suspend")
        snapshot = await order(cluster, "snapshot", "take")
        standby = await order(cluster, "snapshot", "take", "--standby")

        assert [step["step"] for step in report["steps"]] == ["appended", "committed", "done"]
        assert [part["part"] for part in report["members"]] == ["done"] * 3
        assert {member["status"]["module_state"] for member in status["members"]} == {"SUSPENDED"}
        assert "suspended" in status["verdict"]
        assert (again.exit_status, snapshot.exit_status) == (REFUSED, REFUSED)
        assert "resume it" in again.errors
        assert (standby.exit_status, json.loads(standby.output)["outcome"]) == (REFUSED, "refused")
        assert has_facts(standby.errors, "standby-snapshot refused:", "no standby")

        cluster.members[leadership.leader_member_id].kill()
        await cluster.wait_for_leader(min_term_id=leadership.leadership_term_id + 1)
        assert len(requester.answers) == answered
        await ordered(cluster, "resume")
        await requester.wait_answered()
        cluster.start(leadership.leader_member_id)
        await cluster.wait_for_leader()
        await cluster.wait_for_equal_logs()
    cluster.check_answers(requester)


async def test_cluster_is_shut_down_and_starts_again_from_its_snapshot(data_dir: Path) -> None:
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        await requester.request(200)
        elections = election_count(cluster.members.values())

        report = await ordered(cluster, "shutdown")

        position = report["log_position"]
        await stopped_at(cluster, position)
        assert election_count(cluster.members.values()) == elections
        steps = [step["step"] for step in report["steps"]]
        assert sorted(steps) == sorted(
            ["appended", "committed", "snapshot-taken", "acknowledged", "acknowledged", "done"]
        )
        assert [part["part"] for part in report["members"]] == ["done"] * 3

        requester.submit_many(20)  # the client sits it out
        for member_id in [*cluster.members]:
            cluster.start(member_id)
        await cluster.wait_for_leader()
        for member in cluster.members.values():
            loaded = await member.wait_for_event("test_service.loaded")
            assert loaded["log_position"] == position
        await requester.wait_answered()
        await cluster.wait_for_equal_logs()
    cluster.check_answers(requester)


async def test_cluster_is_aborted_with_a_member_down_and_recovers_from_its_log(data_dir: Path) -> None:
    """Which is not waited for: the default timeout would be."""
    settings = {"termination_timeout_ms": "60000"}
    async with SystemCluster(data_dir, settings=settings) as cluster, cluster.requester() as requester:
        leadership = await cluster.wait_for_leader()
        await requester.request(100)
        down = next(i for i in cluster.members if i != leadership.leader_member_id)
        cluster.members[down].kill()

        printed = await order(cluster, "abort", output="table")

        assert printed.exit_status == 1
        assert f"members [{down}] are down" in printed.errors
        for member_id, member in cluster.members.items():
            if member_id != down:
                assert await member.wait_exit() == 0
        for member_id in [*cluster.members]:
            cluster.start(member_id)
        await cluster.wait_for_leader()
        await requester.request(10)
        await cluster.wait_for_equal_logs()
    cluster.check_answers(requester)


async def test_operation_on_no_cluster_says_so_in_one_line(data_dir: Path) -> None:
    nobody = await run_trimaran("suspend", "--members", "0=127.0.0.1:9", "--timeout", "1")

    assert nobody.exit_status == UNREACHABLE
    assert "no member can" in nobody.errors
    async with SystemCluster(data_dir) as cluster:
        leadership = await cluster.wait_for_leader()
        resume = await order(cluster, "resume")
        assert resume.exit_status == REFUSED
        assert "not suspended" in resume.errors
        left = next(i for i in cluster.members if i != leadership.leader_member_id)
        for member_id, member in cluster.members.items():
            if member_id != left:
                member.kill()
        await cluster.members[left].wait_for_event("election.started", count=2)
        leaderless = await order(cluster, "suspend")
        assert leaderless.exit_status == NO_LEADER
