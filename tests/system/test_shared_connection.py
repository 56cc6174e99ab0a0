"""A thousand sessions of one process over one connection, whose leader is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.system.append_list import ANSWER, Answer
from tests.system.cluster_process import SystemCluster, all_last_ran
from tests.system.waiting import wait_until
from trimaran.client import ClientConfig, ClusterClient, SharedConnection

pytestmark = pytest.mark.slow

SESSIONS = 1_000
REQUESTS = 4


async def test_requests_of_a_thousand_sessions_run_once_when_their_leader_is_killed(data_dir: Path) -> None:
    answers: dict[int, list[Answer]] = {}

    async def ask(client: ClusterClient) -> None:
        mine = answers[client.cluster_session_id] = []
        for number in range(REQUESTS):
            reply = await client.request(b"request %d" % number)
            mine.append(Answer(*ANSWER.unpack(reply)))

    async with SystemCluster(data_dir) as cluster:
        leader = await cluster.wait_for_leader()
        config = ClientConfig(endpoints=tuple(cluster.endpoints), connect_timeout_s=60.0, new_leader_timeout_s=120.0)
        async with SharedConnection(config=config) as shared:
            clients = await asyncio.gather(*(shared.connect() for _ in range(SESSIONS)))
            asking = asyncio.gather(*(ask(client) for client in clients))
            await wait_until(
                lambda: sum(map(len, answers.values())) >= SESSIONS, timeout_s=60, what=lambda: f"answers: {shared!r}"
            )
            cluster.members[leader.leader_member_id].kill()
            async with asyncio.timeout(120):
                await asking
            assert {client.is_closed for client in clients} == {False}
        await cluster.start(leader.leader_member_id).wait_for_event("election.closed")
        await cluster.wait_for_equal_logs()
    ran = all_last_ran(cluster)

    assert {session_id: ran[session_id] for session_id in answers} == answers
    assert len(answers) == SESSIONS
