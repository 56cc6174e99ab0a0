"""Requests to a cluster of processes that are killed: every one runs once, and gets the reply of that run.

What ran is told by the recordings: `fold_log` runs the requests of a log a second time, by the numbers in their frames.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.system.append_list import ANSWER, Answer
from tests.system.cluster_process import SystemCluster, last_ran
from tests.system.test_snapshots import take
from tests.waiting import patient, wait_until
from trimaran.client import ClientConfig, ClusterClient, RejectedError, RequestIndeterminateError

pytestmark = pytest.mark.slow

CALLERS = 64


class Callers:
    """Callers of one session, each with one request after another."""

    def __init__(self, client: ClusterClient) -> None:
        self.client = client
        self.begun_count = 0
        self.answers: dict[int, Answer] = {}
        self.unknown_count = 0
        self.rejected_count = 0
        self._is_stopping = False

    def __repr__(self) -> str:
        return (
            f"<Callers begun={self.begun_count} answered={len(self.answers)} rejected={self.rejected_count}"
            f" unknown={self.unknown_count} resent={self.client.resent_request_count}>"
        )

    async def run(self) -> None:
        """Ask until `stop`."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CALLERS):
                tasks.create_task(self._ask())

    def stop(self) -> None:
        self._is_stopping = True

    async def wait_answered(self, more_count: int) -> None:
        wanted = len(self.answers) + more_count
        await wait_until(lambda: len(self.answers) >= wanted, timeout_s=60, what=lambda: f"{wanted} {self!r}")

    async def wait_unanswered(self) -> None:
        """Wait until every caller has sent a request, and none comes back."""
        await wait_until(lambda: self._waiting_count == CALLERS, timeout_s=60, what=lambda: f"no answers: {self!r}")

    @property
    def _waiting_count(self) -> int:
        return self.begun_count - len(self.answers) - self.rejected_count

    async def _ask(self) -> None:
        while not self._is_stopping:
            self.begun_count += 1
            number = self.begun_count
            try:
                reply = await self.client.request(f"request {number}".encode(), timeout_s=2.0)
            except RejectedError:
                self.rejected_count += 1
                continue
            except RequestIndeterminateError as error:
                self.unknown_count += 1
                reply = await error.resolve()
            self.answers[number] = Answer(*ANSWER.unpack(reply))
            await asyncio.sleep(0.002)


@asynccontextmanager
async def calling(cluster: SystemCluster) -> AsyncIterator[Callers]:
    """Callers under way, until the end of the block; then every one has its reply."""
    config = ClientConfig(
        endpoints=tuple(cluster.endpoints), connect_timeout_s=patient(60.0), new_leader_timeout_s=patient(120.0)
    )
    async with ClusterClient.connect(config=config) as client, asyncio.TaskGroup() as tasks:
        callers = Callers(client)
        tasks.create_task(callers.run())
        yield callers
        callers.stop()


def check(cluster: SystemCluster, callers: Callers) -> None:
    """Hold the replies against the longest log: as many runs as requests that were not rejected, each reply its own."""
    ran = last_ran(cluster, callers.client.cluster_session_id)
    assert len(ran) == len(callers.answers) == callers.begun_count - callers.rejected_count
    assert sorted(callers.answers.values()) == ran


async def test_every_request_runs_once_when_leaders_are_killed_under_load(data_dir: Path) -> None:
    async with SystemCluster(data_dir) as cluster:
        leader = await cluster.wait_for_leader()
        async with calling(cluster) as callers:
            for _ in range(2):
                await callers.wait_answered(500)
                cluster.members[leader.leader_member_id].pause()
                await callers.wait_unanswered()
                cluster.members[leader.leader_member_id].kill()
                killed, leader = leader, await cluster.wait_for_leader(min_term_id=leader.leadership_term_id + 1)
                await callers.wait_answered(500)
                await cluster.start(killed.leader_member_id).wait_for_event("election.closed")
        await cluster.wait_for_equal_logs()
        resent_count = callers.client.resent_request_count
    check(cluster, callers)
    assert resent_count > 0, callers


async def test_every_request_runs_once_when_all_members_are_killed_and_start_from_a_snapshot(data_dir: Path) -> None:
    async with SystemCluster(data_dir) as cluster:
        leader = await cluster.wait_for_leader()
        async with calling(cluster) as callers:
            await callers.wait_answered(500)
            await take(cluster)
            await callers.wait_answered(100)
            for member in cluster.members.values():
                member.pause()
            await wait_until(lambda: callers.unknown_count > 0, timeout_s=60, what="requests whose outcome is unknown")
            for member in cluster.members.values():
                member.kill()
            for member_id in [*cluster.members]:
                cluster.start(member_id)
            await cluster.wait_for_leader(min_term_id=leader.leadership_term_id + 1)
            await callers.wait_answered(500)
        await cluster.wait_for_equal_logs()
    check(cluster, callers)
