"""What is not ours, thrown at every endpoint of running members: they refuse it with one line each and go on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.system.cluster_process import STEADY, TIMEOUT_S, Member, SystemCluster
from tests.system.hostile import REFUSALS, STREAM_IDS, Attack, mutated, noise, surely_refused, throw
from tests.waiting import patient
from trimaran.service_api.wire.link_frames import SetupFrame

pytestmark = pytest.mark.slow

SEED = 20261121

LINGER_S = 0.05
"""How long an attack may hold its connection when the member may rightly keep it: a log link waits to be wanted."""


def _endpoint(cluster: SystemCluster, member_id: int, name: str) -> str:
    return f"127.0.0.1:{cluster.processes.base_ports[member_id] + list(STREAM_IDS).index(name)}"


def _refusal_count(member: Member, name: str) -> int:
    return len(member.events(REFUSALS[name]))


async def test_every_endpoint_refuses_what_is_no_frame_of_ours_with_one_line(data_dir: Path) -> None:
    """DESIGN §4: five endpoints; each connection that breaks the protocol is closed, and one line says why."""
    async with SystemCluster(data_dir, settings=STEADY) as cluster:
        leader_id = (await cluster.wait_for_leader()).leader_member_id
        for member in cluster.members.values():
            await member.wait_for_event("members.changed")
            await member.wait_for_event("cluster.identified")  # from here on nothing is logged but what is thrown
            for name in STREAM_IDS:
                before = _refusal_count(member, name)
                line_count = len(member.events())
                for attack in surely_refused():
                    endpoint = _endpoint(cluster, member.member_id, name)
                    assert await throw(endpoint, attack, close_timeout_s=patient(TIMEOUT_S)), (name, attack)

                await member.wait_for_event(REFUSALS[name], count=before + len(surely_refused()))
                assert len(member.events()) - line_count == len(surely_refused())
                assert all(event["reason"] for event in member.events(REFUSALS[name]))

        async with cluster.requester() as requester:
            await requester.request(200)
        assert (await cluster.wait_for_leader()).leader_member_id == leader_id


async def test_members_outlive_noise_and_damaged_conversations(data_dir: Path) -> None:
    """Random bytes, and real conversations with bytes changed: nobody ends, nobody elects, clients are served."""
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        requester.start_load()
        for member in cluster.members.values():
            peer_id = 2 if member.member_id == 1 else 1
            for name in STREAM_IDS:
                for attack in (*noise(SEED, count=8), *mutated(name, peer_id, SEED, count=24)):
                    await throw(_endpoint(cluster, member.member_id, name), attack, close_timeout_s=LINGER_S)
        await requester.stop_load()

        for member in cluster.members.values():
            names = Counter(event["event"] for event in member.events())
            assert names["election.started"] == 1, f"{member!r}: {member.events('election.started')}"
            assert all(event["reason"] for name in set(REFUSALS.values()) for event in member.events(name))
    cluster.check_answers(requester)


@pytest.mark.parametrize("name", ["log", "catchup"])
async def test_log_links_that_nobody_wants_do_not_displace_the_one_that_flows(data_dir: Path, name: str) -> None:
    """Links wait to be wanted, a few of them; the one that is open is not among those that make room."""
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        leader_id = (await cluster.wait_for_leader()).leader_member_id
        follower = next(member for member in cluster.members.values() if member.member_id != leader_id)

        for session_id in range(1, 20):
            stranger = SetupFrame(session_id=session_id, stream_id=STREAM_IDS[name], member_id=session_id).encode()
            endpoint = _endpoint(cluster, follower.member_id, name)
            await throw(endpoint, Attack("stranger", stranger), close_timeout_s=LINGER_S)
        await requester.request(200)
        await cluster.wait_for_equal_logs()

        assert len(follower.events("election.started")) == 1, follower.events("election.started")
    cluster.check_answers(requester)
