"""Standbys of a cluster of processes: one takes the snapshots, one follows another that is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.cluster_process import STEADY, TIMEOUT_S, SystemCluster
from tests.waiting import ask_until, patient
from trimaran.benchmarks.rig.member_status import consensus_endpoint
from trimaran.cluster.documents.query import query_status

pytestmark = pytest.mark.slow

STANDBY = 3


SECOND_STANDBY = 4


async def add_standby(cluster: SystemCluster, member_id: int, *, log_source_id: int | None = None) -> None:
    """Start a standby and add it, which may be to follow another member."""
    assert cluster.make_place() == member_id
    cluster.join(member_id, 0, 1, 2)
    settings = {**cluster.processes.environments[member_id], "TRIMARAN_STANDBY": "true"}
    if log_source_id is not None:
        settings["TRIMARAN_LOG_SOURCE"] = str(log_source_id)
    cluster.processes.environments = {**cluster.processes.environments, member_id: settings}
    cluster.start(member_id)
    await cluster.change_members("add", "--standby", "--endpoint", cluster.endpoints[member_id])
    await cluster.wait_for_leader()


async def wait_for_source(cluster: SystemCluster, member_id: int, source_id: int) -> None:
    """Wait until a member takes the log from a given one; others may be down."""
    endpoint = consensus_endpoint(cluster.processes, member_id)

    async def ask() -> bool | None:
        return (await query_status(endpoint, patient(TIMEOUT_S))).log_source_id == source_id or None

    await ask_until(ask, timeout_s=TIMEOUT_S, what=f"member {member_id} to copy from member {source_id}")


async def take(cluster: SystemCluster, *, asked: tuple[int, ...]) -> int:
    """Have the standby take a snapshot; gives its position once the leader has a copy."""
    status, said = await cluster.run_command("snapshot", "take", "--standby", "-o", "json", asked=asked)
    assert status == 0, said
    report = json.loads(said)
    assert report["outcome"] == "done"
    position: int = report["log_position"]
    return position


async def test_members_start_from_what_the_standby_took_and_none_stood_still(data_dir: Path) -> None:
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        leader = (await cluster.wait_for_leader()).leader_member_id
        await add_standby(cluster, STANDBY)
        requester.start_load()
        await requester.wait_answered(500)
        absent = next(each for each in range(3) if each != leader)
        cluster.members[absent].kill()
        position = await take(cluster, asked=(leader, STANDBY))
        again = cluster.start(absent)
        fetched = await again.wait_for_event("standby_snapshot.fetched")
        assert fetched["log_position"] >= position
        await requester.wait_answered(requester.submitted_count + 200)
        await requester.stop_load()
        await cluster.wait_for_equal_states()

        assert [member.member_id for member in cluster.running if member.events("snapshot.started")] == [STANDBY]
        for member in cluster.running:
            member.kill()
        for member_id in range(STANDBY + 1):
            cluster.start(member_id)
        await cluster.wait_for_leader()
        for member in cluster.running:
            assert (await member.wait_for_event("snapshot.loaded"))["log_position"] >= position
        await requester.request(50)
        await cluster.change_members("promote", "--id", str(STANDBY))
        await cluster.wait_for_equal_states()
    cluster.check_answers(requester)


async def test_a_standby_whose_source_is_killed_has_everything_and_takes_a_snapshot(data_dir: Path) -> None:
    """It goes on from the leader, under load, and back to its source once that one runs again."""
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        leader_id = (await cluster.wait_for_leader()).leader_member_id
        await add_standby(cluster, STANDBY)
        await add_standby(cluster, SECOND_STANDBY, log_source_id=STANDBY)
        second = cluster.members[SECOND_STANDBY]
        requester.start_load()
        await requester.wait_answered(500)
        await wait_for_source(cluster, SECOND_STANDBY, STANDBY)

        cluster.members[STANDBY].kill()
        await wait_for_source(cluster, SECOND_STANDBY, leader_id)
        await requester.wait_answered(requester.submitted_count + 500)
        position = await take(cluster, asked=(leader_id, SECOND_STANDBY))
        assert (await second.wait_for_event("snapshot.taken"))["log_position"] == position
        await requester.stop_load()
        await requester.quiesce()
        await cluster.wait_for_equal_logs()

        cluster.start(STANDBY)
        await wait_for_source(cluster, SECOND_STANDBY, STANDBY)
        requester.start_load()
        await requester.wait_answered(requester.submitted_count + 500)
        await requester.stop_load()
        await cluster.wait_for_equal_states()
        await wait_for_source(cluster, SECOND_STANDBY, STANDBY)
    cluster.check_answers(requester)
