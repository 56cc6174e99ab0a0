"""A replay against real members: the state that replies told at their positions, through the death of a leader.

Each reply of the service says where it was made and what the state was then. Every member's directory, replayed to
those positions, must come to the same states: also the directory of the member that was killed, and one in use.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.cluster_process import TIMEOUT_S, SystemCluster
from tests.system.test_snapshots import take
from tests.unit.cluster.time_travel.ledger import Ledger
from tests.waiting import patient
from trimaran.client import ClientConfig, ClusterClient
from trimaran.cluster.time_travel import MemberLog, ReplayedService, replay_service, verify_snapshots

SERVICE = "tests.unit.cluster.time_travel.ledger:Ledger"


async def ask(cluster: SystemCluster, count: int) -> dict[int, str]:
    """Send requests and messages; gives the state that each reply told, by position."""
    config = ClientConfig(endpoints=tuple(cluster.endpoints), connect_timeout_s=patient(TIMEOUT_S))
    told = {}
    async with await ClusterClient.connect([], config=config) as client:
        for number in range(count):
            position, _, digest = json.loads(await client.request(b"account%d %d" % (number % 5, number)))
            told[position] = digest
            await client.offer(b"timer %d 5" % number if number % 2 else b"offer text%d" % number)
    return told


def digests_of(directory: Path, positions: list[int]) -> dict[int, str]:
    """Replay a directory to each of the positions, once from the begin and some from the snapshot below."""

    def digest(replayed: ReplayedService) -> str:
        assert isinstance(replayed.service, Ledger)
        return replayed.service.digest

    log = MemberLog.open(directory)
    replayed = replay_service(log, Ledger, snapshot="none", position=0, bound="recorded")
    found = {}
    for position in positions:
        replayed.advance(position)
        found[position] = digest(replayed)
    for position in positions[::10]:
        again = replay_service(log, Ledger, position=position, bound="recorded")
        assert digest(again) == found[position]
    return found


@pytest.mark.slow
async def test_every_members_log_leads_to_the_states_that_clients_were_told(data_dir: Path) -> None:
    async with SystemCluster(data_dir, service=SERVICE) as cluster:
        told = await ask(cluster, 30)
        await take(cluster)
        told |= await ask(cluster, 15)
        leader = await cluster.wait_for_leader()
        cluster.members[leader.leader_member_id].kill()
        told |= await ask(cluster, 30)
        killed = cluster.directory_of(leader.leader_member_id)
        known = MemberLog.open(killed).recorded_position
        of_killed = digests_of(killed, [position for position in sorted(told) if position <= known])
        cluster.start(leader.leader_member_id)
        await cluster.wait_for_leader(min_term_id=leader.leadership_term_id + 1)
        in_use = next(member_id for member_id in cluster.members if member_id != leader.leader_member_id)
        of_running = digests_of(cluster.directory_of(in_use), sorted(told))
        await take(cluster)

    assert of_running == told
    assert of_killed == {position: told[position] for position in of_killed}
    assert len(of_killed) >= 45
    for member_id in cluster.members:
        directory = cluster.directory_of(member_id)
        assert digests_of(directory, sorted(told)) == told
        verdicts = verify_snapshots(directory, Ledger)
        assert [verdict.problem for verdict in verdicts] == [None, None]
