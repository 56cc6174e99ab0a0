"""Terms that leap, against real nodes: a stranger's is not believed, and one that is on disk is mended offline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.cluster_process import SystemCluster
from tests.system.commands import run_trimaran
from tests.system.hostile import STREAM_IDS, Attack, _greeting, throw
from trimaran.cluster.messages.consensus import CanvassPosition, CommitPosition, NewLeadershipTerm, RequestVote, Vote
from trimaran.cluster.runtime.files.node_state_file import NodeStateFile
from trimaran.service_api.types import MemberId, RecordingId, TermId
from trimaran.service_api.wire.frame import encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.message import Message

pytestmark = pytest.mark.slow

ALMOST_LAST = (1 << 63) - 2


def messages_of(member_id: int, term_id: int) -> list[Message]:
    """What a stranger says in a member's name."""
    peer, term = MemberId(member_id), TermId(term_id)
    return [
        RequestVote(
            log_leadership_term_id=TermId(0), log_position=1 << 40, candidate_term_id=term, candidate_member_id=peer
        ),
        CanvassPosition(
            log_leadership_term_id=term, log_position=1 << 40, leadership_term_id=term, follower_member_id=peer
        ),
        Vote(
            candidate_term_id=term,
            log_leadership_term_id=term,
            log_position=0,
            candidate_member_id=peer,
            follower_member_id=peer,
            vote=True,
        ),
        CommitPosition(leadership_term_id=term, log_position=1 << 40, leader_member_id=peer),
        NewLeadershipTerm(
            log_leadership_term_id=TermId(0),
            next_leadership_term_id=term,
            next_term_base_log_position=0,
            next_log_position=-1,
            leadership_term_id=term,
            term_base_log_position=0,
            log_position=1 << 40,
            leader_recording_id=RecordingId(0),
            timestamp=0,
            leader_member_id=peer,
            log_session_id=1,
            app_version=256,
            is_startup=False,
        ),
    ]


async def run_command(*arguments: object) -> tuple[int, str]:
    """Run `trimaran`; give its exit status and what it said."""
    printed = await run_trimaran(*map(str, arguments))
    return printed.exit_status, printed.output + printed.errors


async def test_terms_of_a_stranger_end_no_node_and_reach_no_disk(data_dir: Path) -> None:
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        leadership = await cluster.wait_for_leader()
        await requester.request(50)
        for member in cluster.members.values():
            peer_id = 2 if member.member_id == 1 else 1
            setup = SetupFrame(session_id=peer_id, stream_id=STREAM_IDS["consensus"], member_id=peer_id)
            head = setup.encode() + _greeting(peer_id)
            for message in messages_of(peer_id, ALMOST_LAST):
                frame = encode_frame(message.encode(), stream_id=STREAM_IDS["consensus"])
                port = cluster.processes.base_ports[member.member_id] + list(STREAM_IDS).index("consensus")
                endpoint = f"127.0.0.1:{port}"
                await throw(endpoint, Attack(type(message).__name__, head + frame), close_timeout_s=0.3)
            refused = await member.wait_for_event("member_message.refused")
            assert (refused["peer_member_id"], "leaps" in refused["fault"]) == (peer_id, True)
        await requester.request(50)

        assert len(cluster.running) == 3
        assert (await cluster.wait_for_leader()).leader_member_id == leadership.leader_member_id
    cluster.check_answers(requester)


async def test_cluster_whose_vote_state_is_absurd_is_mended_offline(data_dir: Path) -> None:
    """1. Every member has the term of the issue on disk. 2. No leader comes of it. 3. The command mends it."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        await requester.request(50)
        await _stop_all(cluster)
        directories = [cluster.directory_of(member_id) for member_id in range(3)]
        for directory in directories:
            file = NodeStateFile.open(directory / "cluster")
            file.propose_max_candidate_term_id(ALMOST_LAST, 0, 0)
            file.close()
        for member_id in range(3):
            cluster.start(member_id)
        for member in cluster.running:
            refused = await member.wait_for_event("nomination.refused")
            assert "trimaran reset-candidate-term" in refused["detail"]
        await _stop_all(cluster)

        for directory in directories:
            status, said = await run_command("recovery-plan", directory)
            assert (status, "trimaran reset-candidate-term" in said) == (10, True), said
            status, said = await run_command("reset-candidate-term", directory, "--yes")
            assert status == 0, said
            status, said = await run_command("recovery-plan", directory)
            assert status == 0, said

        for member_id in range(3):
            cluster.start(member_id)
        await cluster.wait_for_leader(min_term_id=1)
        await requester.request(10)
    cluster.check_answers(requester)


async def _stop_all(cluster: SystemCluster) -> None:
    for member in cluster.running:
        member.terminate()
        await member.wait_exit()
