"""Members that were away and come back while the others serve: stopped, cut off, dropped for not reading, two of five.

The rules of `SystemCluster` say the most: at the end every service state is the fold of its member's log, so an old
leader that delivered what never committed is found; and every answer is in the log with the hash of all before it, so
one that it gave on its own is found too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.cluster_process import STEADY, Member, SystemCluster, election_count
from tests.system.directory_checker import log_end_position

pytestmark = pytest.mark.slow

FAULTS = ["stopped", "cut_off"]
ROOMY = {"term_length_bytes": "1048576", "segment_length_bytes": "1048576", "mtu_length_bytes": "65504"}
"""Terms in which a log of tens of mebibytes is not thousands of files."""

LINK_LIMIT_BYTES = 32 << 20
"""What a leader keeps for a follower that does not read."""


def take_away(cluster: SystemCluster, member_id: int, fault: str) -> Member:
    member = cluster.members[member_id]
    if fault == "stopped":
        member.pause()
    else:
        cluster.cut_off(member_id)
    return member


def bring_back(cluster: SystemCluster, member: Member) -> None:
    if member.is_paused:
        member.resume()
    else:
        cluster.heal()


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_leader_that_was_away_follows_when_it_comes_back(data_dir: Path, fault: str) -> None:
    """Issue 3: it returns in an old term and may deliver or answer nothing of that term."""
    async with SystemCluster(data_dir, is_proxied=fault == "cut_off") as cluster, cluster.requester() as requester:
        old = await cluster.wait_for_leader()
        requester.start_load()
        await requester.wait_answered(300)

        away = take_away(cluster, old.leader_member_id, fault)
        new = await cluster.wait_for_leader(min_term_id=old.leadership_term_id + 1)
        await requester.wait_answered(requester.submitted_count + 300)
        bring_back(cluster, away)
        await away.wait_for_event("election.closed", leader_member_id=new.leader_member_id)
        await requester.wait_answered(requester.submitted_count + 100)
        await requester.stop_load()
        await cluster.wait_for_equal_logs()

        assert new.leader_member_id != old.leader_member_id
        assert await cluster.wait_for_leader() == new
    cluster.check_answers(requester)


async def test_a_leader_without_members_answers_nothing_and_loses_only_what_it_did_not_answer(data_dir: Path) -> None:
    """Issue 3: clients reach it still, so it takes their requests; none of them commits there, and all are cut off."""
    async with SystemCluster(data_dir, is_proxied=True) as cluster, cluster.requester() as requester:
        old = await cluster.wait_for_leader()
        alone = cluster.members[old.leader_member_id]
        await requester.request(100)
        committed = await cluster.wait_for_equal_logs()

        cluster.cut_off(old.leader_member_id, also_from_clients=False)
        requester.submit_many(100)
        await cluster.wait_for_log_end(old.leader_member_id, committed + 100 * 256)
        answered_alone = len(requester.answers)
        new = await cluster.wait_for_leader(min_term_id=old.leadership_term_id + 1)
        await requester.wait_answered()
        cluster.heal()
        await alone.wait_for_event("election.closed", leader_member_id=new.leader_member_id)
        await requester.request(100)
        await cluster.wait_for_equal_logs()

        (truncated,) = alone.events("log.truncated")
        assert truncated["position"] == committed
        assert answered_alone == 100
        assert requester.client.dropped_egress_count == 0
        assert await cluster.wait_for_leader() == new
    cluster.check_answers(requester)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_follower_whose_link_was_dropped_rejoins_without_disturbing_the_others(
    data_dir: Path, fault: str
) -> None:
    """ARCHITECTURE, journey of a message: memory is bounded, and a follower that does not read is dropped."""
    is_proxied = fault == "cut_off"
    async with (
        SystemCluster(data_dir, settings=ROOMY, is_proxied=is_proxied) as cluster,
        cluster.requester() as requester,
    ):
        leadership = await cluster.wait_for_leader()
        await requester.request(100)
        begin = await cluster.wait_for_equal_logs()
        follower_id = next(i for i in cluster.members if i != leadership.leader_member_id)
        others = [member for i, member in cluster.members.items() if i != follower_id]
        elections = election_count(others)

        follower = take_away(cluster, follower_id, fault)
        # What the sockets between them hold comes on top.
        while log_end_position(cluster.directory_of(leadership.leader_member_id)) < begin + LINK_LIMIT_BYTES * 3 // 2:
            await requester.request(500, length=9_000)
        bring_back(cluster, follower)
        await follower.wait_for_event("election.state_changed", new="FOLLOWER_CATCHUP")
        await requester.request(500)
        await follower.wait_for_event("election.closed", count=2)
        await cluster.wait_for_equal_logs()

        assert await cluster.wait_for_leader() == leadership
        assert election_count(others) == elections
        assert not requester.leaders
    cluster.check_answers(requester)


async def test_five_members_serve_when_the_leader_and_another_are_killed_and_take_them_back(data_dir: Path) -> None:
    """Raft §5.2: three of five are a majority."""
    async with SystemCluster(data_dir, member_count=5, settings=STEADY) as cluster, cluster.requester() as requester:
        old = await cluster.wait_for_leader()
        requester.start_load()
        await requester.wait_answered(300)
        victims = [old.leader_member_id, next(i for i in cluster.members if i != old.leader_member_id)]

        new = await cluster.kill_and_serve(requester, *victims)
        others = cluster.running
        elections = election_count(others)
        for member_id in victims:
            await cluster.start(member_id).wait_for_event("election.closed")
        await requester.wait_answered(requester.submitted_count + 100)
        await requester.stop_load()
        await cluster.wait_for_equal_logs()

        assert election_count(others) == elections
        assert await cluster.wait_for_leader() == new
    cluster.check_answers(requester)
