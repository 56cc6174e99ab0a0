"""Members that die, stand still, fall behind and come back, while a client goes on on one session.

At the end of each test the recordings must be identical, and every answer that the client got must be in the log.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.system.cluster_process import STEADY, Leadership, SystemCluster, election_count
from tests.system.directory_checker import check_directory, log_end_position

pytestmark = pytest.mark.slow

SEGMENT = 65536
STATE = "test_service.terminated"


async def test_the_session_goes_on_at_the_new_leader_when_the_leader_is_killed(data_dir: Path) -> None:
    """Issue 2, demo: SIGKILL with requests in flight; the same session, unanswered requests sent again."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        old = await cluster.wait_for_leader()
        session_id = requester.session_id
        requester.start_load()
        await requester.wait_answered(300)
        cluster.members[old.leader_member_id].pause()
        await requester.wait_sent()

        cluster.members[old.leader_member_id].kill()
        new = await cluster.wait_for_leader(min_term_id=old.leadership_term_id + 1)
        await requester.wait_answered(requester.submitted_count + 300)
        await requester.stop_load()

        assert requester.session_id == session_id
        assert requester.resent_count > 0
        assert requester.client.leader_member_id == new.leader_member_id != old.leader_member_id
        assert requester.leaders
        assert len(requester.answers) == requester.submitted_count
    cluster.check_answers(requester)


@pytest.mark.parametrize("directory", ["kept", "lost"])
async def test_a_killed_leader_rejoins_as_a_follower_and_disturbs_nobody(data_dir: Path, directory: str) -> None:
    """Raft §5.3: what only the dead leader had is cut off or overwritten; what it missed it catches up with."""
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        old = await cluster.wait_for_leader()
        requester.start_load()
        await requester.wait_answered(300)
        new = await cluster.kill_and_serve(requester, old.leader_member_id)
        others = cluster.running
        elections = election_count(others)
        if directory == "lost":
            shutil.rmtree(cluster.directory_of(old.leader_member_id))

        await cluster.start(old.leader_member_id).wait_for_event("election.closed")
        await requester.wait_answered(requester.submitted_count + 100)
        await requester.stop_load()
        await cluster.wait_for_equal_logs()

        assert election_count(others) == elections
        assert await cluster.wait_for_leader() == new
    cluster.check_answers(requester)


@pytest.mark.parametrize("directory", ["kept", "lost"])
async def test_a_killed_follower_catches_up_under_load(data_dir: Path, directory: str) -> None:
    """Seed 001, catch-up: the leader's archive replays what is missing, here several segments, then the live log."""
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        leadership = await cluster.wait_for_leader()
        follower_id = next(i for i in cluster.members if i != leadership.leader_member_id)
        requester.start_load()
        await requester.wait_answered(300)
        cluster.members[follower_id].kill()
        behind = log_end_position(cluster.directory_of(follower_id))
        await cluster.wait_for_log_end(leadership.leader_member_id, behind + 3 * SEGMENT)
        if directory == "lost":
            shutil.rmtree(cluster.directory_of(follower_id))

        follower = cluster.start(follower_id)
        await follower.wait_for_event("election.closed")
        await requester.stop_load()
        await cluster.wait_for_equal_logs()

        assert follower.events("election.state_changed", new="FOLLOWER_CATCHUP")
        assert await cluster.wait_for_leader() == leadership
        assert not requester.leaders
    cluster.check_answers(requester)


async def test_a_follower_catches_up_and_joins_while_long_messages_come(data_dir: Path) -> None:
    """Messages of several frames each, so that the catch-up ends and the live log begins within messages.

    ClusterTest.shouldCatchupAndJoinAsFollowerWhileSendingBigMessages.
    """
    settings = STEADY | {"mtu_length_bytes": "1408"}
    async with SystemCluster(data_dir, settings=settings) as cluster, cluster.requester() as requester:
        leadership = await cluster.wait_for_leader()
        follower_id = next(i for i in cluster.members if i != leadership.leader_member_id)
        requester.start_load(length=8_000)
        await requester.wait_answered(20)
        cluster.members[follower_id].kill()
        behind = log_end_position(cluster.directory_of(follower_id))
        await cluster.wait_for_log_end(leadership.leader_member_id, behind + 3 * SEGMENT)

        follower = cluster.start(follower_id)
        await follower.wait_for_event("election.closed")
        await requester.stop_load()
        await cluster.wait_for_equal_logs()

        assert follower.events("election.state_changed", new="FOLLOWER_CATCHUP")
        assert not requester.leaders
    cluster.check_answers(requester)


async def test_a_cluster_that_is_killed_as_a_whole_loses_nothing_acknowledged(data_dir: Path) -> None:
    """DESIGN §4: what was answered is durable on a majority; after the restart the same session goes on."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        old = await cluster.wait_for_leader()
        requester.start_load()
        await requester.wait_answered(500)

        for member in cluster.members.values():
            member.kill()
        answered = dict(requester.answers)
        for member_id in [*cluster.members]:
            cluster.start(member_id)
        await cluster.wait_for_leader(min_term_id=old.leadership_term_id + 1)
        await requester.stop_load()
        await cluster.wait_for_equal_states()

        assert len(answered) >= 500
        assert {i: requester.answers[i] for i in answered} == answered
    cluster.check_answers(requester)
    states = {(state["place"], state["digest"]) for m in cluster.members.values() for state in m.events(STATE)}
    assert len(states) == 1


async def _kill_and_restart_leader(cluster: SystemCluster) -> Leadership:
    """Make a new leadership term: the leader dies and comes back."""
    old = await cluster.wait_for_leader()
    cluster.members[old.leader_member_id].kill()
    cluster.start(old.leader_member_id)
    return await cluster.wait_for_leader(min_term_id=old.leadership_term_id + 1)


@pytest.mark.parametrize("directory", ["kept", "lost"])
async def test_a_follower_that_missed_two_leadership_terms_rejoins(data_dir: Path, directory: str) -> None:
    """Seed 001, log replication: missed terms are copied one by one, and the recording log tells all of them."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        first = await cluster.wait_for_leader()
        await requester.request(300)
        follower_id = next(i for i in cluster.members if i != first.leader_member_id)
        cluster.members[follower_id].kill()
        for _ in range(2):
            await _kill_and_restart_leader(cluster)
            await requester.request(300)
        if directory == "lost":
            shutil.rmtree(cluster.directory_of(follower_id))

        follower = cluster.start(follower_id)
        await follower.wait_for_event("election.closed")
        await requester.request(100)
        await cluster.wait_for_equal_logs()

        assert follower.events("election.state_changed", new="FOLLOWER_LOG_REPLICATION")
    cluster.check_answers(requester)
    terms = [check_directory(cluster.directory_of(i)).terms for i in cluster.members]
    bases = {tuple((term.leadership_term_id, term.term_base_log_position) for term in known) for known in terms}
    assert len(bases) == 1


async def test_a_leader_that_died_with_uncommitted_requests_cuts_them_off_when_it_comes_back(data_dir: Path) -> None:
    """Raft §5.3, DESIGN §5: the tail that no quorum had is truncated, above the commit position, and nothing else."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        old = await cluster.wait_for_leader()
        await requester.request(100)
        committed = await cluster.wait_for_equal_logs()
        followers = [member for i, member in cluster.members.items() if i != old.leader_member_id]
        for follower in followers:
            follower.pause()
        requester.submit_many(100)
        await cluster.wait_for_log_end(old.leader_member_id, committed + 100 * 256)
        answered_alone = len(requester.answers)
        cluster.members[old.leader_member_id].kill()
        for follower in followers:
            # What the dead leader sent may wait in the sockets of a member that stood still: a restart loses it.
            follower.kill()
            cluster.start(follower.member_id)
        await cluster.wait_for_leader(min_term_id=old.leadership_term_id + 1)
        await requester.wait_answered()

        returned = cluster.start(old.leader_member_id)
        await returned.wait_for_event("election.closed")
        await cluster.wait_for_equal_logs()

        (truncated,) = returned.events("log.truncated")
        assert truncated["position"] == committed
        assert answered_alone == 100
    cluster.check_answers(requester)


@pytest.mark.parametrize("seed", [1, 2])
async def test_members_die_and_stand_still_in_random_order_and_nothing_acknowledged_is_lost(
    data_dir: Path, seed: int
) -> None:
    """DESIGN §6: whatever dies, as long as a majority comes back; the seed decides whom it hits and how."""
    source = random.Random(seed)
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        requester.start_load()
        for _ in range(5):
            await requester.wait_answered(requester.submitted_count + 100)
            victims = source.sample([0, 1, 2], k=source.choice((1, 1, 2, 3)))
            stands_still = source.random() < 0.3
            for member_id in victims:
                if stands_still:
                    cluster.members[member_id].pause()
                else:
                    cluster.members[member_id].kill()
            if len(victims) == 1:
                await cluster.wait_for_leader()
                await requester.wait_answered(requester.submitted_count + 100)
            for member_id in victims:
                if stands_still:
                    cluster.members[member_id].resume()
                else:
                    cluster.start(member_id)
        await requester.stop_load()
        await cluster.wait_for_leader()
        await cluster.wait_for_equal_logs()
    cluster.check_answers(requester)


async def test_a_follower_that_stood_still_goes_on_following(data_dir: Path) -> None:
    """A pause longer than the heartbeat timeout: the others go on, and it catches up without a new term."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        leadership = await cluster.wait_for_leader()
        paused = cluster.members[next(i for i in cluster.members if i != leadership.leader_member_id)]
        requester.start_load()
        await requester.wait_answered(100)
        end = log_end_position(cluster.directory_of(leadership.leader_member_id))

        paused.pause()
        await cluster.wait_for_log_end(leadership.leader_member_id, end + 2 * SEGMENT)
        await requester.wait_answered(requester.submitted_count + 2_000)
        paused.resume()
        await requester.stop_load()
        await cluster.wait_for_equal_logs()

        assert await cluster.wait_for_leader() == leadership
        assert not requester.leaders
    cluster.check_answers(requester)
