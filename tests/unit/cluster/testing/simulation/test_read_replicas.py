"""A learner is a read replica: its answer to a query has a bounded age, and it gives none from an older state.

Source: Raft dissertation §6.4 for followers; a learner asks the same question and is counted in no majority.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.unit.cluster.testing.simulation.small_cluster import Counter, SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from trimaran.client import ClusterClient, QueryResult
from trimaran.cluster.core.vocabulary.member_change import MemberChangeKind
from trimaran.cluster.testing.simulation.cluster import Member
from trimaran.service_api import ClientSession, ClusterTimeoutError
from trimaran.service_api.types import MemberId

LEARNER = MemberId(3)


class Total(Counter):
    """Tells how many messages it has been given."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Count, and answer."""
        self.count += 1
        super().on_session_message(session, timestamp, payload)

    def on_query(self, payload: memoryview) -> bytes:
        """Tell the count."""
        return str(self.count).encode()


class Asker:
    """A client with one session that asks the learner whenever the test wants to know."""

    def __init__(self, small: SmallCluster) -> None:
        self.small = small
        self.results: list[QueryResult | ClusterTimeoutError] = []
        self._wanted: list[float] = []
        small.cluster.add_client("asker", self._main)

    def ask(self, *, max_staleness_s: float) -> QueryResult | ClusterTimeoutError:
        """Give what the learner answers, or that it does not."""
        wanted = len(self.results) + 1
        self._wanted.append(max_staleness_s)
        self.small.wait(lambda: len(self.results) == wanted)
        return self.results[-1]

    async def _main(self) -> None:
        async with ClusterClient.connect(config=self.small.client_config()) as client:
            while True:
                await asyncio.sleep(0.005)
                while self._wanted:
                    max_staleness_s = self._wanted.pop(0)
                    try:
                        result = await client.query(
                            b"", max_staleness_s=max_staleness_s, read_from=LEARNER, timeout_s=5
                        )
                    except ClusterTimeoutError as error:
                        self.results.append(error)
                    else:
                        self.results.append(result)


def add_learner(small: SmallCluster) -> Member:
    """Add a member that is never promoted, and start it; gives it when it has everything."""
    return small.add_member(LEARNER, MemberChangeKind.ADD)


def isolate(small: SmallCluster, learner: Member) -> None:
    """Cut a learner off from the other members, and from no client."""
    for member in small.cluster.members.values():
        if member is not learner:
            small.cluster.network.block(member.machine.address, learner.machine.address)
            small.cluster.network.block(learner.machine.address, member.machine.address)


@contextmanager
def cluster_with_a_learner() -> Iterator[tuple[SmallCluster, Member]]:
    with small_cluster(make_service=Total) as small:
        small.start()
        learner = add_learner(small)
        small.send(5)
        yield small, learner


@pytest.mark.parametrize("max_staleness_s", [0, 1])
def test_a_learner_answers_no_older_than_it_is_asked_for(max_staleness_s: float) -> None:
    with cluster_with_a_learner() as (small, _):
        result = Asker(small).ask(max_staleness_s=max_staleness_s)

        assert isinstance(result, QueryResult)
        assert (result.member_id, result.payload) == (LEARNER, b"5")
        assert 0 <= result.staleness_s <= max_staleness_s


def test_a_learner_that_is_cut_off_answers_only_who_accepts_an_answer_that_old() -> None:
    """What it last heard was true then, and the answer says how long ago that was."""
    with cluster_with_a_learner() as (small, learner):
        asker = Asker(small)
        fresh = asker.ask(max_staleness_s=0)
        isolate(small, learner)
        small.cluster.run_for(2 * SECOND)
        refused = asker.ask(max_staleness_s=1)
        old = asker.ask(max_staleness_s=60)

        assert isinstance(fresh, QueryResult)
        assert isinstance(refused, ClusterTimeoutError)
        assert "no leader" in str(refused)
        assert isinstance(old, QueryResult)
        assert (old.member_id, old.payload, old.log_position) == (LEARNER, b"5", fresh.log_position)
        assert 2 + 5 <= old.staleness_s <= 8


def test_a_learner_that_is_cut_off_slows_no_commit_and_tells_what_it_missed_once_it_is_back() -> None:
    with cluster_with_a_learner() as (small, learner):
        voters = [member for member in small.cluster.running() if member is not learner]
        isolate(small, learner)
        small.cluster.kill(small.follower.member_id if small.follower is not learner else small.followers[1].member_id)

        small.send(7, members=[member for member in voters if member.is_running])
        small.cluster.network.unblock_all()
        small.wait(small.is_at_rest)
        result = Asker(small).ask(max_staleness_s=0)

        assert isinstance(result, QueryResult)
        assert (result.member_id, result.payload) == (LEARNER, b"12")
