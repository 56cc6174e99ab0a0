"""A whole cluster in one thread: real consensus modules, real log windows and gates, virtual time, seeded chance.

Nothing is mocked. What the agent does with files and sockets in a node is done here with bytes: a disk that loses what
was not synced, links that delay, drop and break, streams that carry the log in pieces of any length. One seed gives
one run, and every step of it is checked by a `Referee`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from random import Random

from tests.unit.cluster.core.checks import Referee, expect
from tests.unit.cluster.core.node import MS, Disk, Node
from tests.unit.cluster.core.service import CLOSE, OFFER, TIMER
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.sessions.session_state import SessionState
from trimaran.service_api import ClusterError, Role
from trimaran.service_api.types import ClusterSessionId, CorrelationId, MemberId
from trimaran.service_api.wire.message import Message
from trimaran.service_api.wire.session import EventCode, NewLeaderEvent, SessionConnectRequest, SessionEvent
from trimaran.service_api.wire.session_token import token_channel

_CONNECTIONS = 16
"""Ingress connection ids: client * 16 + member."""


class Client:
    """A client that keeps a connection to every member, follows the leader and sends what chance makes of it."""

    def __init__(self, cluster: Cluster, client_id: int) -> None:
        self._cluster, self.client_id = cluster, client_id
        self.session_id: int | None = None
        self.term_id = -1
        self._secret = f"secret of {client_id}".encode()
        self._sent_count = 0

    def connection_id(self, node: Node) -> int:
        """The client's ingress connection to a member."""
        return self.client_id * _CONNECTIONS + node.member_id

    def act(self) -> None:
        """Connect, or send some messages, or say goodbye."""
        cluster, random = self._cluster, self._cluster.random
        if self.client_id not in cluster.clients:
            return
        cluster.after(random.randint(4, 30) * MS, self.act)
        leader = cluster.leader()
        if leader is None:
            return
        connection_id = self.connection_id(leader)
        if self.session_id is None:
            request = SessionConnectRequest(
                correlation_id=CorrelationId(self.client_id),
                response_stream_id=102,
                version=256,
                response_channel=token_channel(self._secret),
            )
            leader.post(ev.ClientConnect(connection_id, request))
        elif random.random() < 0.02:
            leader.post(ev.ClientClose(connection_id, self.term_id, ClusterSessionId(self.session_id)))
        elif leader.bound.get(connection_id) == (self.session_id, self.term_id):
            payloads = [self._payload() for _ in range(random.randint(1, 4))]
            if random.random() < 0.05:
                payloads.append(random.randbytes(random.randint(280, 440)))
            leader.append_ingress(connection_id, payloads)

    def _payload(self) -> bytes:
        random = self._cluster.random
        self._sent_count += 1
        choice = random.random()
        if choice < 0.05:
            return TIMER + bytes([random.randrange(8), random.randrange(100)])
        if choice < 0.08:
            return CLOSE
        if choice > 1 - self._cluster.offer_rate:
            return OFFER + bytes([random.randrange(1, 6)])
        return f"m{self.client_id}.{self._sent_count}.".encode() + bytes(random.randrange(40))

    def keep_alive(self) -> None:
        """Tell every member which session is ours."""
        if self.client_id not in self._cluster.clients:
            return
        self._cluster.after(30 * MS, self.keep_alive)
        if self.session_id is not None:
            for node in self._cluster.nodes.values():
                connection_id, session_id = self.connection_id(node), ClusterSessionId(self.session_id)
                node.post(ev.ClientChallengeResponse(connection_id, CorrelationId(-1), session_id, self._secret))
                node.post(ev.ClientKeepAlive(connection_id, self.term_id, session_id))

    def on_message(self, message: Message) -> None:
        """A member answers."""
        match message:
            case SessionEvent(code=EventCode.OK):
                if self.session_id is None:
                    self.session_id, self.term_id = message.cluster_session_id, message.leadership_term_id
            case SessionEvent(code=EventCode.CLOSED):
                if message.cluster_session_id == self.session_id:
                    self.session_id = None
            case NewLeaderEvent():
                if message.cluster_session_id == self.session_id and message.leadership_term_id > self.term_id:
                    self.term_id = message.leadership_term_id


class Cluster:
    """Members, links, clients and the time they live in. Everything that chance decides comes from one seed."""

    def __init__(
        self, seed: int, *, member_count: int = 3, witness_ids: Collection[int] = (), **settings: object
    ) -> None:
        self.seed, self.member_count, self.witness_ids = seed, member_count, frozenset(witness_ids)
        self.settings = {"session_timeout_ns": 5_000 * MS, "session_limit": 40, **settings}
        self.random = Random(seed)
        self.referee = Referee()
        self.now_ns = 1_000 * MS
        self.drop_rate = self.crash_rate = 0.0
        self.offer_rate = 0.0
        """How many of the clients' messages have the service offer messages of its own."""
        self.is_restarting = True
        self.on_effect: Callable[[Node, fx.Effect], object] = lambda node, effect: None
        self.delay: Callable[[], int] = lambda: self.random.randint(50_000, 3 * MS)
        self.failures: list[str] = []
        self._heap: list[tuple[int, int, Callable[[], object]]] = []
        self._sequence = 0
        self._broken: set[frozenset[int]] = set()
        self._muted: dict[tuple[int, int], None] = {}
        """From whom to whom nothing gets through, though links stay up."""
        self._last_arrival_ns: dict[tuple[int, int], int] = {}
        self.nodes = {MemberId(member_id): Node(self, member_id) for member_id in range(member_count)}
        self.clients: dict[int, Client] = {}

    def __repr__(self) -> str:
        return f"<Cluster seed={self.seed} now={self.now_ns / 1e9:.3f}s {[*self.nodes.values()]}>"

    # --- time

    def at(self, time_ns: int, action: Callable[[], object]) -> None:
        """Do something at a time; equal times in the order they were asked for."""
        self._sequence += 1
        heapq.heappush(self._heap, (time_ns, self._sequence, action))

    def after(self, delay_ns: int, action: Callable[[], object]) -> None:
        """Do something later."""
        self.at(self.now_ns + delay_ns, action)

    def run(self, duration_ns: int) -> None:
        """Let time pass."""
        self.run_until(lambda: False, limit_ns=duration_ns)

    def run_until(self, is_done: Callable[[], bool], *, limit_ns: int) -> bool:
        """Let time pass until something holds; False if it did not within the limit."""
        end_ns = self.now_ns + limit_ns
        while self._heap and self._heap[0][0] <= end_ns:
            if is_done():
                return True
            self.now_ns, _, action = heapq.heappop(self._heap)
            action()
        self.now_ns = end_ns
        return is_done()

    def random_of(self, member_id: int) -> Callable[[], float]:
        """The chance that a member is given, apart from the harness' own."""
        return Random(f"{self.seed} {member_id} {self.now_ns}").random

    # --- members

    def start(self, *member_ids: int) -> None:
        """Start members, or all of them."""
        for member_id in member_ids or self.nodes:
            node = self.nodes[MemberId(member_id)]
            if not node.is_alive:
                node.start()
                self._tell_links(node, is_up=True)

    def crash(self, member_id: int) -> None:
        """Kill a member's process; the others' links to it close."""
        node = self.nodes[MemberId(member_id)]
        if node.is_alive:
            node.crash()
            self._tell_links(node, is_up=False)

    def wipe(self, member_id: int) -> None:
        """Remove a member's directory, its process with it."""
        self.crash(member_id)
        self.nodes[MemberId(member_id)].disk = Disk()

    def on_failure(self, node: Node, error: ClusterError) -> None:
        """A member stopped itself."""
        self.failures.append(f"member {node.member_id} at {self.now_ns / 1e9:.3f}s: {error}")

    def should_crash(self) -> bool:
        """Whether the process dies right here, between two effects."""
        return self.crash_rate > 0 and self.random.random() < self.crash_rate

    def leader(self) -> Node | None:
        """The member that leads the highest term, if one leads."""
        leading = [node for node in self.nodes.values() if node.is_alive and node.module.leader is not None]
        return max(leading, key=lambda node: node.ctx.leadership_term_id, default=None)

    # --- links

    def is_connected(self, a: int, b: int) -> bool:
        """Whether two members' processes are there and the network lets them talk."""
        both = self.nodes[MemberId(a)].is_alive and self.nodes[MemberId(b)].is_alive
        return both and frozenset((a, b)) not in self._broken and not {(a, b), (b, a)} & self._muted.keys()

    def mute(self, source: int, target: int) -> None:
        """Let nothing through one way; nobody is told. A stream of either direction needs both: it stops, silently."""
        if source != target:
            self._muted[source, target] = None
            for node, other in ((self.nodes[MemberId(source)], target), (self.nodes[MemberId(target)], source)):
                if node.is_alive:
                    node.stall_streams(MemberId(other))

    def term_id(self) -> int:
        """The highest term that any member's disk knows of."""
        return max(node.disk.candidate_term_id for node in self.nodes.values())

    def send(self, source: Node, target_id: MemberId, message: Message) -> None:
        """Carry a consensus message: in order, late, or not at all."""
        key = (source.member_id, target_id)
        is_there = self.nodes[target_id].is_alive and frozenset(key) not in self._broken and key not in self._muted
        if not is_there or self.random.random() < self.drop_rate:
            return
        arrival_ns = max(self.now_ns + self.delay(), self._last_arrival_ns.get(key, 0))
        self._last_arrival_ns[key] = arrival_ns
        incarnation = self.nodes[target_id].incarnation
        self.at(arrival_ns, lambda: self._arrive(key, incarnation, message))

    def _arrive(self, key: tuple[int, int], incarnation: int, message: Message) -> None:
        target = self.nodes[MemberId(key[1])]
        if frozenset(key) not in self._broken and key not in self._muted and target.incarnation == incarnation:
            target.post(message)

    def partition(self, a: int, b: int, *, is_news: bool = True) -> None:
        """Cut two members off from one another; without news their links stay silent."""
        pair = frozenset((a, b))
        if a == b or pair in self._broken:
            return
        self._broken.add(pair)
        for node, other in ((self.nodes[MemberId(a)], b), (self.nodes[MemberId(b)], a)):
            if node.is_alive:
                node.break_streams(MemberId(other))
        if is_news:
            self._tell_link(a, b, is_up=False)
            self._tell_link(b, a, is_up=False)

    def isolate(self, member_id: int, *, is_news: bool = True) -> None:
        """Cut a member off from all others."""
        for other in self.nodes:
            self.partition(member_id, other, is_news=is_news)

    def heal(self) -> None:
        """Mend the network; connections that stood still are found to be dead."""
        for source, target in self._muted:
            for end in (source, target):
                self.nodes[MemberId(end)].break_streams(MemberId(source + target - end))
        self._muted.clear()
        for a, b in sorted(map(sorted, self._broken)):
            self.mend(a, b)

    def mend(self, a: int, b: int) -> None:
        """Let two members find one another again."""
        self._broken.discard(frozenset((a, b)))
        if self.is_connected(a, b):
            self._tell_link(a, b, is_up=True)
            self._tell_link(b, a, is_up=True)

    def _tell_links(self, node: Node, *, is_up: bool) -> None:
        for other in self.nodes:
            if other != node.member_id and frozenset((other, node.member_id)) not in self._broken:
                self._tell_link(other, node.member_id, is_up=is_up)
                if is_up and self.nodes[other].is_alive:
                    self._tell_link(node.member_id, other, is_up=True)

    def _tell_link(self, member_id: int, other: int, *, is_up: bool) -> None:
        node = self.nodes[MemberId(member_id)]
        self.after(self.delay(), lambda: self._link_changed(node, other, is_up=is_up))

    def _link_changed(self, node: Node, other: int, *, is_up: bool) -> None:
        if self.is_connected(node.member_id, other) == is_up:
            node.post(ev.LinkChanged(MemberId(other), is_up))

    def publisher_of(self, log_session_id: int, follower: Node) -> Node | None:
        """Find the leader whose log link of this session reaches a follower."""
        for node in self.nodes.values():
            if node.publishes(log_session_id) and self.is_connected(node.member_id, follower.member_id):
                return node
        return None

    # --- clients

    def add_clients(self, count: int) -> None:
        """Let clients begin to work."""
        for client_id in range(1, count + 1):
            client = self.clients[client_id] = Client(self, client_id)
            client.act()
            client.keep_alive()

    def on_client_message(self, connection_id: int, message: Message) -> None:
        """A member says something to a client."""
        client = self.clients.get(connection_id // _CONNECTIONS)
        if client is not None:
            self.after(self.delay(), lambda: client.on_message(message))

    def on_bind(self, node: Node, connection_id: int, session_id: ClusterSessionId) -> None:
        """A member lets a client use a session: it has to be that client's own."""
        session = node.module.sessions.sessions[session_id]
        client_id = connection_id // _CONNECTIONS
        expect(
            session.correlation_id == client_id, "a session is its client's alone", session=session, client=client_id
        )

    # --- whole runs

    def run_chaos(self, duration_ns: int) -> None:
        """Let everything go wrong for a while."""
        end_ns = self.now_ns + duration_ns
        self.drop_rate = self.random.choice((0.0, 0.02, 0.1))
        self.crash_rate = self.random.choice((0.0, 0.0005, 0.003))
        while self.now_ns < end_ns:
            self.run(self.random.randint(1, 120) * MS)
            self._strike()
        self.drop_rate = self.crash_rate = 0.0

    def _strike(self) -> None:
        random = self.random
        member_id = random.randrange(self.member_count)
        leader = self.leader()
        if leader is not None and random.random() < 0.4:
            member_id = leader.member_id
        node = self.nodes[MemberId(member_id)]
        match random.randrange(10):
            case 0:
                self.crash(member_id)
            case 1 | 2:
                self.start(member_id)
            case 3:
                self.partition(member_id, random.randrange(self.member_count), is_news=random.random() < 0.7)
            case 4:
                self.isolate(member_id, is_news=random.random() < 0.7)
            case 5 | 6:
                self.heal()
            case 7:
                node.is_paused = node.is_alive
                self.after(random.randint(1, 400) * MS, node.resume)
            case _:
                self.start(*(other for other in self.nodes if random.random() < 0.5))

    def settle(self, *, limit_ns: int = 20_000 * MS) -> None:
        """Mend everything and expect one leader and equal members before long."""
        self.heal()
        for node in self.nodes.values():
            if node.is_paused:
                node.resume()
        self.start()
        self.clients.clear()
        is_settled = self.run_until(self._is_settled, limit_ns=limit_ns)
        expect(is_settled, "a whole cluster comes to rest", cluster=self, failures=self.failures)
        self.run(600 * MS)
        self.run_until(self._is_settled, limit_ns=limit_ns)  # a session may just have timed out
        self.expect_equal()
        self.expect_nothing_left_to_do()

    def _is_settled(self) -> bool:
        leader = self.leader()
        return (
            leader is not None
            and not leader.is_witness
            and all(
                node.is_alive
                and node.module.election is None
                and node.adapter.position == leader.ctx.log_buffer.append_position
                for node in self.nodes.values()
            )
        )

    def expect_nothing_left_to_do(self) -> None:
        """Every timer that was due has fired, and every session that its service closed is closed."""
        for node in self.nodes.values():
            expect(node.is_witness or len(node.module.timers) == 0, "timers fire under any leader", node=node)
            for session in node.module.sessions.sessions.values():
                expect(session.state is SessionState.OPEN, "closes come to an end", node=node, session=session)

    def expect_equal(self) -> None:
        """Members that delivered the same log hold the same bytes and the same state."""
        first, *others = sorted(self.nodes.values(), key=lambda node: node.is_witness)
        for other in others:
            end = min(first.adapter.position, other.adapter.position)
            expect(first.disk.log[:end] == other.disk.log[:end], "logs are equal", first=first, other=other)
            expect(
                other.service.messages == ([] if other.is_witness else first.service.messages),
                "services are equal, and a witness runs none",
                first=first,
                other=other,
            )
            expect(terms_of(first) == terms_of(other), "recording logs are equal", first=first, other=other)
            expect(
                session_state(first) == session_state(other) or other.is_witness,
                "sessions are equal",
                first=first,
                other=other,
            )
        roles = [node.ctx.role for node in self.nodes.values()]
        expect(roles.count(Role.LEADER) == 1, "one member leads", roles=roles)


def terms_of(node: Node) -> list[tuple[int, int, int]]:
    """Which term wrote which part of a member's log, as its disk has it."""
    return [
        (entry.leadership_term_id, entry.term_base_log_position, entry.log_position)
        for entry in node.disk.terms.entries
    ]


def session_state(node: Node) -> object:
    """What a member's snapshot would say of sessions and timers."""
    sessions, timers = node.module.sessions, node.module.timers
    return (
        {
            session.cluster_session_id: (session.correlation_id, session.opened_log_position)
            for session in sessions.sessions.values()
        },
        sessions._next_committed_session_id,
        timers._deadlines,
        [*node.agent.sessions],
    )
