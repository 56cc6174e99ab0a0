"""Two members with the service and a witness, as real processes: each member may fail, and the witness stays small."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.facts import has_facts
from tests.system.cluster_process import SystemCluster
from tests.system.directory_checker import check_directory
from tests.system.test_shipped_snapshots import PURGING, purge

pytestmark = pytest.mark.slow

WITNESS = 2
SETTINGS = {**PURGING, "witnesses": str(WITNESS)}


async def test_two_members_and_a_witness_go_on_without_the_leader(data_dir: Path) -> None:
    """In the end the only copy of what clients were told is the witness's: the member that is left gets it."""
    async with SystemCluster(data_dir, settings=SETTINGS) as cluster, cluster.requester() as requester:
        witness = cluster.members[WITNESS]
        first = await cluster.wait_for_leader()
        position = await purge(cluster, requester)

        other = cluster.members[1 - first.leader_member_id]
        cluster.members[first.leader_member_id].kill()
        await requester.request(50)
        second = await cluster.wait_for_leader(min_term_id=first.leadership_term_id + 1)
        assert second.leader_member_id == other.member_id
        assert [event["leader_member_id"] for event in witness.events("election.closed")].count(WITNESS) == 0

        back = cluster.start(first.leader_member_id)
        await back.wait_for_event("election.closed")
        await requester.request(10)
        await cluster.wait_for_equal_states()
        back.kill()
        await requester.request(50)
        other.kill()
        cluster.start(back.member_id)
        await requester.request(50)
        await cluster.wait_for_leader(min_term_id=second.leadership_term_id + 1)

        await witness.wait_for_event("election.closed", leader_member_id=WITNESS)
        assert not [event for event in witness.events() if event["event"].startswith("test_service")]
    log = check_directory(cluster.directory_of(WITNESS)).log
    assert log.start_position == position // 65536 * 65536


async def test_a_process_that_is_another_kind_of_member_than_its_log_says_stops(data_dir: Path) -> None:
    async with SystemCluster(data_dir, settings=SETTINGS) as cluster, cluster.requester() as requester:
        await requester.request(10)
        witness = cluster.members[WITNESS]
        witness.terminate()
        assert await witness.wait_exit() == 0
        cluster.processes.settings = {**SETTINGS, "witnesses": ""}

        wrong = cluster.start(WITNESS)

        assert await wrong.wait_exit() == 2
        assert has_facts(wrong.process.log_tail(), "member_id=2", "witness")
        assert "`--witnesses 2`" in wrong.process.log_tail()
        cluster.processes.settings = SETTINGS
        await cluster.start(WITNESS).wait_for_event("election.closed")
