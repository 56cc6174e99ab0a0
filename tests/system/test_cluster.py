"""Clusters of one to five real members: they elect, they serve, and what they leave on disk is the same everywhere.

Every test ends with the checks of `SystemCluster`: orderly stop, `trimaran archive verify`, the independent checker,
equal logs, and a service state that is the fold of the log.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.append_list import REQUEST
from tests.system.cluster_process import STEADY, SystemCluster
from tests.system.commands import run_trimaran
from tests.system.directory_checker import check_directory
from trimaran.client import ClusterClient, ConnectTimeoutError
from trimaran.service_api import LocalProtocolError

pytestmark = pytest.mark.slow

LONG_TERMS = {"term_length_bytes": "2097152", "segment_length_bytes": "2097152", "mtu_length_bytes": "65504"}
"""Terms in which a message of 256 KiB is allowed."""


@pytest.mark.parametrize("member_count", [1, 2, 3, 5])
async def test_members_elect_a_leader_serve_and_record_the_same_log(data_dir: Path, member_count: int) -> None:
    """Seed 001: one leader, the others follow; seed 002: one log."""
    async with SystemCluster(data_dir, member_count=member_count) as cluster:
        await cluster.wait_for_leader()

        async with cluster.requester() as requester:
            await requester.request(1_000)
        end_position = await cluster.wait_for_equal_logs()

        assert end_position > 4 * 65536
    cluster.check_answers(requester)


async def test_a_single_member_replays_its_log_when_it_starts_again(data_dir: Path) -> None:
    """DESIGN §2: the state is the log; the session of a client outlives the process too."""
    async with SystemCluster(data_dir, member_count=1) as cluster:
        async with cluster.requester() as requester:
            await requester.request(500)
            await cluster.stop()
            (before,) = cluster.members[0].events("test_service.terminated")
            cluster.start(0)
            await cluster.wait_for_leader(min_term_id=1)
            await requester.request(10)
        (replayed,) = cluster.members[0].events("test_session.opened")

        assert before["place"] == 500
        assert [requester.answers[i].place for i in (500, 501, 510)] == [500, 501, 510]
        assert requester.client.cluster_session_id == replayed["cluster_session_id"]
    cluster.check_answers(requester)


async def test_a_single_member_that_is_killed_loses_no_acknowledged_request(data_dir: Path) -> None:
    """DESIGN §4: nothing is acknowledged before it is durable; the torn tail is repaired at the start."""
    async with SystemCluster(data_dir, member_count=1) as cluster, cluster.requester() as requester:
        requester.start_load()
        await requester.wait_answered(300)
        cluster.members[0].kill()
        cluster.start(0)
        await cluster.wait_for_leader(min_term_id=1)
        await requester.stop_load()
    cluster.check_answers(requester)


async def test_sigterm_writes_the_stop_position_and_the_archive_verifies(data_dir: Path) -> None:
    """Samples README §4: -1 is for recordings that are active or were not stopped in order."""
    async with SystemCluster(data_dir, member_count=1) as cluster:
        async with cluster.requester() as requester:
            await requester.request(10)

        await cluster.stop()

        log = check_directory(cluster.directory_of(0)).log
        assert log.stop_position == log.end_position > 0
        assert cluster.members[0].events("node.stopped")
        verify = await run_trimaran("archive", "verify", str(cluster.directory_of(0) / "archive"), "-o", "json")
        (recording,) = json.loads(verify.output)
        assert verify.exit_status == 0
        assert (recording["verdict"], recording["stop_position"]) == ("ok", log.stop_position)


async def test_one_member_of_three_elects_no_one_and_answers_nobody(data_dir: Path) -> None:
    """Raft §5.2: a leader needs a majority."""
    async with SystemCluster(data_dir, start=[0]) as cluster:
        await cluster.members[0].wait_for_event("election.state_changed", new="CANVASS")

        with pytest.raises(ConnectTimeoutError):
            await ClusterClient.connect(cluster.endpoints, connect_timeout_s=3.0)

        assert not cluster.members[0].events("election.closed")
        assert not cluster.members[0].events("election.state_changed", new="NOMINATE")


async def test_a_leader_that_loses_its_quorum_answers_nothing_until_the_quorum_is_back(data_dir: Path) -> None:
    """Raft §5.3: an entry is committed by a majority, so one member of three commits nothing."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        leader_id = (await cluster.wait_for_leader()).leader_member_id
        await requester.request(100)
        followers = [i for i in cluster.members if i != leader_id]
        for member_id in followers:
            cluster.members[member_id].kill()

        requester.submit_many(100)
        await cluster.members[leader_id].wait_for_event("election.started", count=2)
        answered_alone = len(requester.answers)
        cluster.start(followers[0])
        await requester.wait_answered()

        assert answered_alone == 100


async def test_a_client_that_knows_a_follower_only_is_sent_to_the_leader(data_dir: Path) -> None:
    """Seed 004: a follower answers a connect request with REDIRECT."""
    async with SystemCluster(data_dir) as cluster:
        leadership = await cluster.wait_for_leader()
        follower_id = next(i for i in cluster.members if i != leadership.leader_member_id)

        async with cluster.requester(follower_id) as requester:
            await requester.request(10)

            assert requester.client.leader_member_id == leadership.leader_member_id


async def test_messages_longer_than_a_frame_are_fragmented_and_joined(data_dir: Path) -> None:
    """Samples README §2: fragments are adjacent in one term; the service is given the whole message."""
    async with SystemCluster(data_dir, settings=LONG_TERMS) as cluster:
        bodies = [bytes([65 + index]) * (200 << 10) for index in range(24)]
        async with cluster.requester() as requester:
            requester.submit(*bodies, b"short")
            await requester.wait_answered()
        await cluster.wait_for_equal_logs()

        assert requester.echoes == {index + 1: body for index, body in enumerate(bodies)}
    assert any(not frame.flags & 0x80 for frame in check_directory(cluster.directory_of(0)).log.frames)
    cluster.check_answers(requester)


async def test_the_longest_message_is_taken_and_a_longer_one_refused_by_the_client(data_dir: Path) -> None:
    """Samples README §2: at most an eighth of a term, 8 MiB by default."""
    settings = {"term_length_bytes": "64MiB", "segment_length_bytes": "64MiB", "mtu_length_bytes": "65504"}
    async with SystemCluster(data_dir, member_count=1, settings=settings) as cluster, cluster.requester() as requester:
        longest = requester.client._protocol.config.max_payload_length_bytes
        requester.submit(bytes(longest - REQUEST.size), b"short")
        await requester.wait_answered()

        with pytest.raises(LocalProtocolError):
            requester.client.try_offer(bytes(longest + 1))

        await requester.request(10)
        assert not requester.leaders
    cluster.check_answers(requester)


async def test_a_request_longer_than_the_log_allows_is_refused_at_once_and_troubles_no_one(data_dir: Path) -> None:
    """A client with other limits than the cluster's is told of those, and says so; it would send again for ever."""
    async with SystemCluster(data_dir, settings=STEADY) as cluster:
        await cluster.wait_for_leader()
        async with cluster.requester() as other, cluster.requester() as requester:
            with pytest.raises(LocalProtocolError, match=r"length=8145 limit=8144"):
                await requester.client.request(bytes(8145))
            with pytest.raises(LocalProtocolError, match=r"length=8161 limit=8160"):
                requester.client.try_offer(bytes(8161))
            await requester.request(1, length=8160 - REQUEST.size)
            await other.request(200)

            assert not requester.leaders
            assert not other.leaders


@pytest.mark.parametrize("file_sync_level", ["0", "1", "2"])
async def test_every_file_sync_level_serves_and_survives_an_orderly_restart(
    data_dir: Path, file_sync_level: str
) -> None:
    """DESIGN §4: 0 page cache, 1 fdatasync, 2 fsync."""
    settings = {"file_sync_level": file_sync_level}
    async with (
        SystemCluster(data_dir, member_count=1, settings=settings) as cluster,
        cluster.requester() as requester,
    ):
        await requester.request(500)
        await cluster.stop()
        cluster.start(0)
        await requester.request(500)
    cluster.check_answers(requester)


async def test_a_cluster_without_checksums_serves_and_survives_a_kill(data_dir: Path) -> None:
    """Samples README §5: without checksums the session id stays in the frames and the catalog entry has none."""
    async with SystemCluster(data_dir, settings={"checksums": "false"}) as cluster:
        async with cluster.requester() as requester:
            await requester.request(300)
            for member in cluster.members.values():
                member.kill()
            for member_id in [*cluster.members]:
                cluster.start(member_id)
            await requester.request(300)
        await cluster.wait_for_leader()  # a member that has never caught up has never voted
        assert not check_directory(cluster.directory_of(0), stopped=False).log.is_checksummed
    cluster.check_answers(requester)
