"""Requests through a real cluster on simulated machines, across fail-over, restarts and snapshots."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.unit.client.test_total_restart import SETTINGS, start_all, stop_all
from tests.unit.cluster.testing.simulation.small_cluster import Counter, SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from tests.unit.cluster.testing.simulation.test_snapshots import restart, take
from trimaran.client import ClusterClient, RequestIndeterminateError
from trimaran.service_api import ClientSession, Cluster, SnapshotImage, SnapshotPublication
from trimaran.service_api.errors import LocalProtocolError
from trimaran.service_api.wire.request import REQUEST_HEADER_LENGTH


class Tally(Counter):
    """Counts how often it ran each request; the reply says which run it was, of all there were."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []

    def state_hash(self) -> bytes:
        return json.dumps(self.ran).encode()

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self.ran.append(bytes(payload).decode())
        return f"{bytes(payload).decode()} {len(self.ran)}".encode()

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        if snapshot is not None:
            self.ran = json.loads(b"".join([message async for message in snapshot]))

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await snapshot.offer(self.state_hash())


@dataclass
class Requesting:
    """A client in a simulated cluster, and what it was told."""

    small: SmallCluster
    replies: dict[str, bytes] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)
    client: ClusterClient | None = None
    begun: int = 0

    def begin(self) -> None:
        self.small.start()
        self.small.cluster.add_client("client", self._run)
        self.small.wait(lambda: self.client is not None)

    async def _run(self) -> None:
        config = self.small.client_config(
            keep_alive_interval_s=0.2,
            new_leader_timeout_s=math.inf,
            random=Random(1).random,
        )
        async with ClusterClient.connect(config=config) as self.client:
            await asyncio.get_running_loop().create_future()

    def ask(self, count: int, *, timeout_s: float | None = None) -> None:
        """Begin requests, all at once."""
        for _ in range(count):
            self.begun += 1
            self._do(partial(self._ask, str(self.begun), timeout_s))

    async def _ask(self, name: str, timeout_s: float | None) -> None:
        assert self.client is not None
        try:
            self.replies[name] = await self.client.request(name.encode(), timeout_s=timeout_s)
        except RequestIndeterminateError as error:
            self.errors.append(error)
            self.replies[name] = await error.resolve()

    def _do(self, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        loop = self.small.cluster.clients["client"].loop
        assert loop is not None
        loop.call_soon(lambda: loop.create_task(action()))

    def finish(self) -> None:
        """Wait for every reply, then for the members to have everything."""
        self.small.wait(lambda: len(self.replies) == self.begun)
        self.small.wait(self.small.is_at_rest)

    def expect_each_ran_once(self) -> None:
        assert self.replies == {str(n): f"{n} {n}".encode() for n in range(1, self.begun + 1)}
        assert {tuple(service.ran) for service in self.services()} == {tuple(map(str, range(1, self.begun + 1)))}

    def services(self) -> list[Tally]:
        services = []
        for member in self.small.cluster.running():
            assert member.node is not None
            observed: Any = member.node.service_agent.service
            services.append(observed.service)
        return services


def test_request_that_no_log_takes_is_refused_at_once_and_the_others_go_on() -> None:
    """The client's own limit is 8 MiB; what the cluster takes is less, and it says so."""
    with small_cluster(1, SETTINGS, Tally) as small:
        requesting = Requesting(small)
        requesting.begin()
        assert requesting.client is not None
        assert small.leader.node is not None
        limit = small.leader.node.module.ctx.config.term_length_bytes // 8 - REQUEST_HEADER_LENGTH

        requesting.ask(5)
        with pytest.raises(LocalProtocolError, match=f"length={limit + 1} limit={limit}"):
            requesting.client._protocol.check_request(bytes(limit + 1))
        requesting.ask(5)
        requesting.finish()

        requesting.expect_each_ran_once()


@pytest.mark.parametrize("seed", range(1, 6))
def test_each_runs_once_when_the_leader_dies_in_the_middle(seed: int) -> None:
    with small_cluster(seed, SETTINGS, Tally) as small:
        requesting = Requesting(small)
        requesting.begin()
        small.wait(small.is_at_rest)  # a member that never had a log does not help to elect
        for _ in range(3):
            requesting.ask(200)
            small.cluster.run_for(seed * 500_000)
            killed = small.leader
            small.cluster.kill(killed.member_id)
            requesting.ask(100)
            requesting.finish()
            small.cluster.start(killed.member_id)
            small.wait(small.is_at_rest)

        requesting.expect_each_ran_once()
        assert requesting.client is not None
        assert requesting.client._protocol.requests.resent_count > 0


@pytest.mark.parametrize("is_power_loss", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_runs_once_when_all_members_stop_and_come_back(seed: int, is_power_loss: bool) -> None:
    with small_cluster(seed, SETTINGS, Tally) as small:
        requesting = Requesting(small)
        requesting.begin()
        requesting.ask(300)
        small.cluster.run_for(seed * 1_000_000)
        stop_all(small, is_power_loss=is_power_loss)
        requesting.ask(50, timeout_s=None)
        small.cluster.run_for(60 * SECOND)
        start_all(small)
        requesting.finish()

        requesting.expect_each_ran_once()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_replies_in_a_snapshot_answer_what_comes_again(seed: int) -> None:
    """The reply is lost on its way; every member then starts from a snapshot that was taken after the request ran."""
    with small_cluster(seed, SETTINGS, Tally) as small:
        requesting = Requesting(small)
        requesting.begin()
        requesting.ask(20)
        requesting.finish()
        for member in small.cluster.members.values():
            small.cluster.network.block(member.machine.address, "client")
        requesting.ask(5, timeout_s=1.0)
        small.wait(lambda: all(len(service.ran) == 25 for service in requesting.services()))
        take(small)
        for member in small.cluster.members.values():
            small.cluster.network.unblock(member.machine.address, "client")
        restart(small, *small.cluster.members.values())
        requesting.ask(5)
        requesting.finish()

        requesting.expect_each_ran_once()


def test_a_request_that_times_out_in_a_stop_of_the_cluster_is_resolved_after_it() -> None:
    with small_cluster(1, SETTINGS, Tally) as small:
        requesting = Requesting(small)
        requesting.begin()
        requesting.ask(300, timeout_s=5.0)
        small.cluster.run_for(300_000)
        stop_all(small)
        small.cluster.run_for(10 * SECOND)
        unknown = len(requesting.errors)
        start_all(small)
        requesting.finish()

        assert unknown > 0
        requesting.expect_each_ran_once()


def test_a_member_that_comes_late_has_the_same_replies() -> None:
    with small_cluster(1, SETTINGS, Tally) as small:
        requesting = Requesting(small)
        requesting.begin()
        late = small.follower
        small.cluster.kill(late.member_id)
        requesting.ask(100)
        requesting.finish()
        small.cluster.start(late.member_id)
        small.wait(small.is_at_rest)

        kept = [
            [message.encode() for message in member.node.service_agent.requests.snapshot_messages()]
            for member in small.cluster.running()
            if member.node is not None
        ]
        assert len(kept) == 3
        assert kept[0] == kept[1] == kept[2]
        requesting.expect_each_ran_once()
