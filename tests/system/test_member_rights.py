"""Rights follow the roster: what a member's certificate may do is decided with the members that the log names now."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.facts import has_facts
from tests.system.cluster_process import STEADY, TIMEOUT_S, SystemCluster
from tests.system.ports import PORTS
from tests.system.test_membership import leave, serve
from tests.system.test_tls import Certified, endpoint_of
from tests.waiting import patient
from trimaran.archive.net.client import ArchiveClient
from trimaran.cluster.documents.query import Outcome, StatusQueryError, query_status
from trimaran.service_api import ClusterError
from trimaran.service_api.net.transport import NetworkStack
from trimaran.service_api.tls import TlsStack

pytestmark = pytest.mark.slow

GIVEN = ("ingress: a session", "consensus: status", "consensus: open sessions", "archive: list recordings")
"""The rights of a member's certificate at every member. It operates the cluster besides, at the leader."""


def from_elsewhere(certified: Certified, member_id: int) -> TlsStack:
    """A process on another machine that has a member's certificate."""
    return TlsStack(certified.issuer.member(member_id), uses_control_sockets=False)


async def given(cluster: SystemCluster, member_id: int, network: NetworkStack) -> list[str]:
    """Ask a member for everything that a member's certificate is for; returns what was given."""
    ports = [port for port in PORTS if port.name in (*GIVEN, "consensus: operate")]
    return [port.name for port in ports if await port.ask(network, endpoint_of(cluster, member_id, port.field))]


async def refusal_of_status(cluster: SystemCluster, member_id: int, network: NetworkStack) -> str:
    with pytest.raises(StatusQueryError) as caught:
        await query_status(str(endpoint_of(cluster, member_id, "consensus")), patient(TIMEOUT_S), network=network)
    assert caught.value.outcome is Outcome.NOT_ALLOWED
    return caught.value.detail


async def test_a_certificate_of_a_member_that_was_never_added_gets_nothing(data_dir: Path) -> None:
    certified = Certified(data_dir)
    async with certified.cluster(settings=STEADY) as cluster:
        leader = (await cluster.wait_for_leader()).leader_member_id
        stranger = from_elsewhere(certified, 7)

        assert [await given(cluster, member_id, stranger) for member_id in range(3)] == [[], [], []]
        assert has_facts(
            await refusal_of_status(cluster, leader, stranger), "status", "outsider 7", "0, 1, 2", "member add --id 7"
        )
        (refused, *_) = cluster.members[leader].events("audit.action_refused")
        assert (refused["caller"], refused["role"]) == ("7", "outsider")
        assert set(GIVEN) < {*await given(cluster, leader, from_elsewhere(certified, (leader + 1) % 3))}


async def test_a_removed_members_certificate_gets_nothing_also_on_connections_that_are_open(data_dir: Path) -> None:
    certified = Certified(data_dir)
    async with certified.cluster(settings=STEADY) as cluster:
        leader = (await cluster.wait_for_leader()).leader_member_id
        removed = (leader + 1) % 3
        left = [member_id for member_id in range(3) if member_id != removed]
        network = from_elsewhere(certified, removed)
        assert set(GIVEN) < {*await given(cluster, leader, network)}

        archives = [
            ArchiveClient.connect(str(endpoint_of(cluster, i, "archive")), timeout_s=patient(5), network=network)
            for i in left
        ]
        async with archives[0] as first, archives[1] as second:
            assert await first.list_recordings()
            assert await second.list_recordings()
            await leave(cluster, removed, asked=tuple(left))

            for archive in (first, second):
                with pytest.raises(ClusterError):
                    await archive.list_recordings()
        assert [await given(cluster, member_id, network) for member_id in left] == [[], []]
        assert has_facts(await refusal_of_status(cluster, leader, network), f"outsider {removed}", "ids only rise")
        for member_id in left:
            ended = cluster.members[member_id].events("audit.right_ended")
            assert {(line["caller"], line["role"]) for line in ended} == {(str(removed), "member")}
            assert "archive reading" in {action for line in ended for action in line["actions"]}


async def test_with_tls_members_and_standbys_join_and_a_removed_one_stays_out(data_dir: Path) -> None:
    """A process that waits to be added is told what for, as a member's certificate alone gives it nothing."""
    certified = Certified(data_dir)
    for member_id in (3, 4):
        certified.issuer.member(member_id)
    async with certified.cluster(settings=STEADY) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        requester.start_load()
        await serve(requester)
        waiting = cluster.make_place()
        cluster.join(waiting, 0, 1, 2)
        told = await cluster.start(waiting).wait_for_event("member.waits_to_join")
        assert has_facts(told["reason"], "member add --id 3")

        await cluster.change_members("add", "--id", "3", "--endpoint", cluster.endpoints[waiting])
        await cluster.members[waiting].wait_for_event("member.joins")
        await cluster.change_members("promote", "--id", "3")
        standby = cluster.make_place()
        cluster.join(standby, 0, 1, 2, 3)
        environments = cluster.processes.environments
        as_standby = {**environments[standby], "TRIMARAN_STANDBY": "true"}
        cluster.processes.environments = {**environments, standby: as_standby}
        cluster.start(standby)
        await cluster.change_members("add", "--id", "4", "--standby", "--endpoint", cluster.endpoints[standby])
        await cluster.members[standby].wait_for_event("election.closed")
        assert set(GIVEN) < {*await given(cluster, 0, from_elsewhere(certified, 4)), "consensus: operate"}

        leader = (await cluster.wait_for_leader()).leader_member_id
        removed = next(each for each in range(3) if each != leader)
        asked = tuple(each for each in range(5) if each != removed)
        cluster.members[removed].kill()
        await cluster.change_members("remove", "--id", str(removed), asked=asked)
        again = cluster.start(removed)
        await again.wait_exit()
        assert again.events("member.removed")
        shutil.move(cluster.directory_of(removed), data_dir / "kept")
        cluster.join(removed, *asked)
        empty = cluster.start(removed)
        assert await empty.wait_exit() == 2
        assert has_facts(empty.process.log_tail(), f"member_id={removed}", "ids only rise")
        del cluster.members[removed], cluster.processes.members[removed]
        await serve(requester)
        await requester.stop_load()
        await cluster.wait_for_equal_states()
    cluster.check_answers(requester)
