"""Real members whose logs are gone, or differ in bytes that no check sees: they help themselves from the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.forged_frames import forge
from tests.system.cluster_process import STEADY, Member, SystemCluster

pytestmark = [pytest.mark.slow, pytest.mark.damages_directories]

BODY = b"the one that changes"


@asynccontextmanager
async def with_a_member_down(data_dir: Path) -> AsyncIterator[tuple[SystemCluster, int]]:
    """A cluster that has answered requests, and a follower whose process is killed; in the end all have one state."""
    cluster = SystemCluster(data_dir, settings=STEADY)
    with cluster.processes.group:
        cluster.processes.data_dir.mkdir(parents=True, exist_ok=True)
        await cluster._start_first()
        leader = await cluster.wait_for_leader()
        member_id = (leader.leader_member_id + 1) % 3
        async with cluster.requester() as requester:
            await requester.request(40)
            await requester.client.request(BODY)
            await requester.request(40)
        await cluster.wait_for_equal_states()
        cluster.members[member_id].kill()

        yield cluster, member_id

        await cluster.wait_for_leader()
        await cluster.wait_for_equal_states()
        await cluster.stop()
        states = {newest_state(member) for member in cluster.members.values()}
        assert len(states) == 1, states


def newest_state(member: Member) -> tuple[object, object]:
    state = member.events("test_service.terminated")[-1]
    return state["log_position"], state["digest"]


async def test_a_member_whose_log_alone_differs_takes_what_the_others_have_and_serves_on(data_dir: Path) -> None:
    """It stopped, and said that its directory was to be removed."""
    async with with_a_member_down(data_dir) as (cluster, member_id):
        path = cluster.directory_of(member_id) / "archive" / "0-0.rec"
        offset, frame = forge(path.read_bytes(), BODY)
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(frame)

        member = cluster.start(member_id)

        told = await member.wait_for_event("recording.repaired", recording_id=0, position=offset)
        assert told["end_position"] == offset + len(frame)


async def test_a_member_whose_segments_are_all_gone_fills_itself(data_dir: Path) -> None:
    """It ended with status 2, and where there was no snapshot, it took part with an empty log and its vote."""
    async with with_a_member_down(data_dir) as (cluster, member_id):
        for path in (cluster.directory_of(member_id) / "archive").glob("*.rec"):
            path.unlink()

        member = cluster.start(member_id)

        await member.wait_for_event("member.came_back_without_vote")
        await member.wait_for_event("election.closed")
