"""A client while all members of its cluster are away: the real node and client, simulated machines and time."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from tests.facts import has_facts
from tests.unit.cluster.testing.simulation.small_cluster import QUICK, SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from trimaran.client import (
    ClusterClient,
    ConnectionEvent,
    IndeterminateError,
    LeaderLost,
    NewLeader,
    SessionClosed,
)
from trimaran.service_api.errors import SessionClosedError

SETTINGS = replace(QUICK, session_timeout_ms=3_000)


@dataclass
class Application:
    """A client that sends one message after another, each when the one before was answered, and keeps what it saw."""

    small: SmallCluster
    new_leader_timeout_s: float = math.inf
    answers: list[bytes] = field(default_factory=list)
    events: list[ConnectionEvent] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    client: ClusterClient | None = None
    number: int = 0

    async def run(self) -> None:
        config = self.small.client_config(
            keep_alive_interval_s=0.5,
            new_leader_timeout_s=self.new_leader_timeout_s,
            random=Random(1).random,
        )
        async with ClusterClient.connect(config=config) as self.client:
            async for event in self.client.connection_events():
                self.events.append(event)

    async def ask(self, count: int) -> None:
        """Send messages that are answered."""
        client = self.client
        assert client is not None
        try:
            replies = client.egress()
            for _ in range(count):
                self.number += 1
                await client.offer(b"%d" % self.number)
                self.answers.append((await anext(replies)).payload)
        except SessionClosedError as error:
            self.errors.append(error)

    async def drain(self) -> None:
        assert self.client is not None
        try:
            await self.client.drain()
        except (IndeterminateError, SessionClosedError) as error:
            self.errors.append(error)

    def do(self, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin something in the process of the client."""
        loop = self.small.cluster.clients["client"].loop
        assert loop is not None
        loop.call_soon(lambda: loop.create_task(action()))

    def count(self, kind: type) -> int:
        return sum(isinstance(event, kind) for event in self.events)

    def begin(self) -> None:
        """Open the session and have three answers."""
        self.small.start()
        self.small.cluster.add_client("client", self.run)
        self.small.wait(lambda: self.client is not None)
        self.do(lambda: self.ask(3))
        self.small.wait(lambda: len(self.answers) == 3)


def stop_all(small: SmallCluster, *, is_power_loss: bool = False) -> None:
    for member_id in small.cluster.members:
        if is_power_loss:
            small.cluster.lose_power(member_id, lambda: False)
        else:
            small.cluster.kill(member_id)


def start_all(small: SmallCluster) -> None:
    for member_id in small.cluster.members:
        small.cluster.start(member_id)
    small.wait(lambda: small.cluster.leader() is not None)


def cut_off(small: SmallCluster, *, is_cut: bool) -> None:
    change = small.cluster.network.block if is_cut else small.cluster.network.unblock
    for member in small.cluster.members.values():
        change(member.machine.address, "client")
        change("client", member.machine.address)


@pytest.mark.parametrize("is_power_loss", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_session_goes_on_after_all_members_were_away_for_long(seed: int, is_power_loss: bool) -> None:
    with small_cluster(seed, SETTINGS) as small:
        application = Application(small)
        application.begin()
        assert application.client is not None
        session_id, term_id = application.client.cluster_session_id, application.client.leadership_term_id
        stop_all(small, is_power_loss=is_power_loss)
        small.wait(lambda: application.count(LeaderLost) == 1)
        application.do(lambda: application.ask(2))
        small.cluster.run_for(300 * SECOND)
        while_away = list(application.answers)
        start_all(small)
        small.wait(lambda: len(application.answers) == 5)

        assert while_away == [b"1", b"2", b"3"]
        assert application.answers == [b"1", b"2", b"3", b"4", b"5"]
        assert application.errors == []
        assert application.client.cluster_session_id == session_id
        assert application.client.leadership_term_id > term_id
        assert application.count(NewLeader) >= 1
        assert application.count(SessionClosed) == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_session_that_was_closed_meanwhile_ends_with_what_the_cluster_says(seed: int) -> None:
    with small_cluster(seed, SETTINGS) as small:
        application = Application(small)
        application.begin()
        stop_all(small)
        small.wait(lambda: application.count(LeaderLost) == 1)
        application.do(lambda: application.ask(1))
        cut_off(small, is_cut=True)
        start_all(small)
        small.cluster.run_for(10 * SECOND)
        before = list(application.errors)
        cut_off(small, is_cut=False)
        small.wait(lambda: len(application.errors) == 1)
        small.wait(lambda: application.count(SessionClosed) == 1)

        (error,) = application.errors
        assert before == []
        assert isinstance(error, SessionClosedError)
        assert error.reason == "unknown session: cluster_session_id=1"
        assert application.events[-1] == SessionClosed(error.reason, is_confirmed=True)
        assert application.answers == [b"1", b"2", b"3"]


def test_a_client_that_is_told_to_wait_less_gives_up_and_says_that_nobody_confirmed_it() -> None:
    with small_cluster(1, SETTINGS) as small:
        application = Application(small, new_leader_timeout_s=5.0)
        application.begin()
        stop_all(small)
        small.wait(lambda: application.count(LeaderLost) == 1)
        application.do(lambda: application.ask(1))
        small.cluster.run_for(4 * SECOND)
        before = list(application.errors)
        small.cluster.run_for(2 * SECOND)

        (error,) = application.errors
        last = application.events[-1]
        assert before == []
        assert isinstance(error, SessionClosedError)
        assert "state=AWAIT_NEW_LEADER" in error.reason
        assert last == SessionClosed(error.reason, is_confirmed=False)
        start_all(small)
        small.send(3)


def test_a_drain_after_the_restart_tells_that_an_offer_may_be_lost() -> None:
    with small_cluster(1, SETTINGS) as small:
        application = Application(small)
        application.begin()
        assert application.client is not None
        stop_all(small)
        small.wait(lambda: application.count(LeaderLost) == 1)
        start_all(small)
        small.wait(lambda: application.count(NewLeader) == 1)
        application.do(application.drain)
        small.wait(lambda: len(application.errors) == 1)
        application.do(application.drain)
        small.cluster.run_for(SECOND)

        (error,) = application.errors
        assert isinstance(error, IndeterminateError)
        assert has_facts(error.reason, "lost", "leader")


def test_dials_back_off_with_jitter_while_nobody_listens() -> None:
    """At most one dial a second and endpoint after the first seconds, and not all at one instant."""
    with small_cluster(1, SETTINGS) as small:
        application = Application(small)
        application.begin()
        stop_all(small)
        small.wait(lambda: application.count(LeaderLost) == 1)
        small.cluster.run_for(20 * SECOND)
        assert application.client is not None
        links = list(application.client._protocol._links)
        before = [link.failure_count for link in links]
        small.cluster.run_for(60 * SECOND)
        dials = [link.failure_count - count for link, count in zip(links, before, strict=True)]

        assert all(55 <= count <= 125 for count in dials)
        assert len({link.dial_at_ns for link in links}) == len(links)
