"""A member that lies, against real nodes: they refuse and log it or handle it, none ends, and none goes back."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.system.cluster_process import SystemCluster
from tests.system.forger import Facts, Forger, draw_lie, lies_of_a_follower, lies_of_a_leader, lies_that_unsettle
from tests.system.hostile import STREAM_IDS
from trimaran.cluster.documents.query import query_status
from trimaran.service_api.documents.member_status import MemberStatus

pytestmark = pytest.mark.slow

FORGER = 2
HONEST = (0, 1)
ROUNDS = 6
LEADERS_LIES = {
    "TerminationPosition",
    "StopCatchup",
    "CommitPosition",
    "LeadershipProbe",
    "ReadPosition",
    "NewLeadershipTerm",
}


class Witness:
    """What the honest members have said of themselves, which must never go back."""

    def __init__(self, cluster: SystemCluster) -> None:
        self._cluster = cluster
        self._before: dict[int, MemberStatus] = {}

    async def look(self, member_id: int) -> Facts:
        host, port = consensus_of(self._cluster, member_id)
        status, before = await query_status(f"{host}:{port}", 30.0), self._before.get(member_id)
        if before is not None:
            assert status.pid == before.pid, "the process has not ended"
            assert status.commit_position >= before.commit_position
            assert (status.leadership_term_id or 0) >= (before.leadership_term_id or 0)
            assert status.delivered_position >= before.delivered_position
        self._before[member_id] = status
        return Facts.of(status)


def consensus_of(cluster: SystemCluster, member_id: int) -> tuple[str, int]:
    return "127.0.0.1", cluster.processes.base_ports[member_id] + list(STREAM_IDS).index("consensus")


async def test_members_outlive_a_member_that_lies(data_dir: Path) -> None:
    """Forged, repeated and reordered messages of every kind, while clients are served."""
    chance, dialled = random.Random(20261125), []

    async def on_dialled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialled.append(await reader.read(64))
        writer.close()

    nowhere = await asyncio.start_server(on_dialled, "127.0.0.1", 0)
    elsewhere = f"127.0.0.1:{nowhere.sockets[0].getsockname()[1]}"
    async with (
        nowhere,
        SystemCluster(data_dir, start=HONEST) as cluster,
        cluster.requester(*HONEST) as requester,
        Forger(FORGER, lambda member_id: consensus_of(cluster, member_id)) as forger,
    ):
        await cluster.wait_for_leader()
        await requester.request(50)
        witness = Witness(cluster)
        await forger.wait_heard(*HONEST)
        for number in range(ROUNDS):
            for target in HONEST:
                facts = await witness.look(target)
                lies = [
                    *lies_of_a_leader(forger.member_id, target, facts),
                    *lies_of_a_follower(forger.member_id, target, facts, elsewhere),
                    *(draw_lie(chance, forger.member_id) for _ in range(200)),
                ]
                if number >= ROUNDS // 2:
                    lies += lies_that_unsettle(forger.member_id, facts)
                chance.shuffle(lies)
                await forger.say(target, *lies, *chance.choices(lies, k=50))
                await forger.wait_handled(target)
                # What the other has said comes back on a link that is not the other's: that link is cut.
                await forger.say(target, *chance.choices(forger.heard[HONEST[1 - target]], k=5))
                await witness.look(target)
            await cluster.wait_for_leader()
            await requester.request(20)

        for member in cluster.running:
            events = member.events("member_message.refused")
            refused = {event["message"] for event in events if event["peer_member_id"] in (FORGER, None)}
            assert refused >= LEADERS_LIES | {"RequestVote", "CanvassPosition"}, f"{member!r} {refused}"
            # An honest member is believed once it has vouched for a term that the forger has raised.
            others = [event["fault"] for event in events if event["peer_member_id"] in HONEST]
            assert all("leaps" in fault for fault in others), others
            assert member.events("consensus_link.refused")
        assert len(cluster.running) == len(HONEST)
        assert dialled == []
    cluster.check_answers(requester)
