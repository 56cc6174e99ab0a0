"""A small simulated cluster with a referee, quick timeouts, and a client that counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Final

import structlog

from tests.unit.cluster.testing.simulation.small_world import SECOND
from trimaran.client import ClientConfig, ClusterClient
from trimaran.cluster.core.events import ActionRequested
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.core.vocabulary.member_change import MemberChange, MemberChangeKind
from trimaran.cluster.testing.simulation.cluster import Member, Settings, SimulatedCluster
from trimaran.cluster.testing.simulation.rules.referee import Referee
from trimaran.cluster.testing.simulation.trace import Trace
from trimaran.service_api import ClientSession, ClusteredService
from trimaran.service_api.types import MemberId

QUICK: Final = Settings(
    leader_heartbeat_timeout_ms=200,
    leader_heartbeat_interval_ms=20,
    election_timeout_ms=50,
    election_status_interval_ms=10,
    startup_canvass_timeout_ms=600,
    session_timeout_ms=1_000,
)


class Counter(ClusteredService):
    """Counts what it is given; its state is the hash of all of it."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=8)

    def state_hash(self) -> bytes:
        """Sum up everything so far."""
        return self._hash.digest()

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Answer with what was sent."""
        data = bytes(payload)
        self._hash.update(data)
        session.offer(data)


class SmallCluster:
    """A cluster, who watches it, and the lines that are written about it."""

    def __init__(
        self, seed: int = 1, settings: Settings = QUICK, make_service: Callable[[], ClusteredService] = Counter
    ) -> None:
        self.lines: list[str] = []
        self.answers: list[bytes] = []
        self.referee = Referee(make_service)
        self.cluster = SimulatedCluster(seed, settings, self.referee.services.make_service)
        self.trace = Trace(self.cluster, self.lines.append)
        self.referee.watch(self.cluster, self.trace)

    def start(self) -> None:
        """Start every member, and wait for a leader."""
        for member_id in self.cluster.members:
            self.cluster.start(member_id)
        self.wait(lambda: self.cluster.leader() is not None)

    def wait(self, is_done: Callable[[], bool], *, limit_ns: int = 20 * SECOND) -> None:
        """Let time pass until something holds."""
        assert self.cluster.run_until(is_done, limit_ns=limit_ns), self.cluster

    def send(self, count: int, *, length: int = 8, members: Iterable[Member] | None = None) -> None:
        """Let a new client send messages, and wait for the answers and for these members, or every running one."""
        wanted = len(self.answers) + count
        name = f"client-{len(self.cluster.clients)}"
        self.cluster.add_client(name, lambda: self._client(name, count, length))
        self.wait(lambda: len(self.answers) == wanted and not self.cluster.clients[name].is_running)
        waited_for = None if members is None else [*members]
        self.wait(lambda: self.is_at_rest(waited_for))

    def order(self, action: ActionRequested) -> None:
        """Have the leader begin an operator's action; how it ends shows in the members."""
        leader = self.leader
        assert leader.node is not None
        agent = leader.node.agent

        async def run() -> None:
            async for _ in agent.run_action(action):
                pass

        leader.machine.run_beside(run)

    def add_member(self, member_id: MemberId, kind: MemberChangeKind, **settings: Any) -> Member:  # fields of a config
        """Add a member that is no voter, with other settings, and start it; gives it when it has everything."""
        self.wait(self.is_at_rest)  # a change waits for the one before to be committed
        is_standby = kind is MemberChangeKind.ADD_STANDBY
        member = self.cluster.add_member(member_id, self.cluster.founding.members, is_standby=is_standby)
        member.config = member.config.model_copy(update=settings)
        change = MemberChange(kind, member_id, self.cluster.endpoints_at(member_id, 0))
        self.order(ActionRequested(0, ControlToggle.CHANGE_MEMBERS, change=change))
        self.cluster.start(member_id)
        self.wait(lambda: member.node is not None and self.is_at_rest())
        return member

    def client_config(self, **settings: Any) -> ClientConfig:  # fields of it
        """Say where the members are, and on which network."""
        return ClientConfig(endpoints=self.cluster.ingress_endpoints, network=self.cluster.network, **settings)

    async def _client(self, name: str, count: int, length: int) -> None:
        async with asyncio.timeout(20), ClusterClient.connect(config=self.client_config()) as client:
            for number in range(count):
                await client.offer(f"{name} {number}".encode().ljust(length))
            replies = client.egress()
            for _ in range(count):
                self.answers.append(bytes((await anext(replies)).payload))

    def is_at_rest(self, members: Iterable[Member] | None = None) -> bool:
        """Whether these members, or every running one, have everything and have processed it."""
        leader = self.cluster.leader()
        if leader is None or leader.node is None:
            return False
        end = leader.node.module.ctx.log_buffer.append_position
        return all(
            member.node is not None
            and member.node.module.ctx.commit_position == end
            and member.node.delivered_position == end
            for member in (self.cluster.running() if members is None else members)
        )

    @property
    def leader(self) -> Member:
        """The member that leads."""
        leader = self.cluster.leader()
        assert leader is not None
        return leader

    @property
    def follower(self) -> Member:
        """A member that follows."""
        return self.followers[0]

    @property
    def followers(self) -> list[Member]:
        """Every running member but the leader."""
        leader = self.leader
        return [member for member in self.cluster.running() if member is not leader]

    def member(self, member_id: int) -> Member:
        """Give a member."""
        return self.cluster.members[MemberId(member_id)]


@contextmanager
def small_cluster(
    seed: int = 1, settings: Settings = QUICK, make_service: Callable[[], ClusteredService] = Counter
) -> Iterator[SmallCluster]:
    """Make a cluster that is not started, and close it in the end."""
    kept = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    made = SmallCluster(seed, settings, make_service)
    try:
        yield made
    finally:
        made.cluster.close()
        structlog.configure(**kept)


@contextmanager
def running_cluster(seed: int = 1, *, message_count: int = 20) -> Iterator[SmallCluster]:
    """Make a cluster of three that has answered some messages and is at rest."""
    with small_cluster(seed) as small:
        small.start()
        small.send(message_count)
        yield small
