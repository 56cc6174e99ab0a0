"""Directed scenarios: one cluster, a few virtual seconds, and one thing that happens to it.

Random runs strike short blows and heal everything before they ask for progress. What has to hold *while* something is
wrong for long (a disk that hangs, a leader that nobody hears, a follower that does not read) is asked here.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Final

import structlog

from trimaran.client import ClientConfig, ClusterClient
from trimaran.cluster.runtime.links import log_links
from trimaran.cluster.testing.simulation.clients.application import Application, Lane, Pace
from trimaran.cluster.testing.simulation.clients.history import History
from trimaran.cluster.testing.simulation.clients.linearizability import check_log_order
from trimaran.cluster.testing.simulation.clients.register_model import RegisterModel, explained
from trimaran.cluster.testing.simulation.clients.register_operations import CLOSE
from trimaran.cluster.testing.simulation.clients.register_work import RegisterWork
from trimaran.cluster.testing.simulation.clients.stale_reads import check_stale_reads
from trimaran.cluster.testing.simulation.cluster import Member, Settings, SimulatedCluster
from trimaran.cluster.testing.simulation.rules.referee import Referee
from trimaran.cluster.testing.simulation.rules.store_rules import STORE_URL
from trimaran.cluster.testing.simulation.services.registers import Registers, Request, RequestKind
from trimaran.cluster.testing.simulation.trace import Trace
from trimaran.cluster.testing.simulation.world.expect import RuleBroken, expect
from trimaran.cluster.testing.simulation.world.network import LinkQuality, SimulatedTransport
from trimaran.service_api import ClusterError
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.types import LOG_STREAM_ID
from trimaran.service_api.wire.frame import TYPE_DATA, HeaderField, iter_headers

from .action_scenarios import (
    a_cluster_that_stops,
    a_leader_that_hands_over,
    a_suspended_cluster,
    an_order_that_comes_to_nothing,
)
from .backup_scenarios import (
    a_backup_that_begins_at_a_snapshot,
    a_backup_that_keeps_some_time,
    a_store_of_backups_and_cold_storage,
)
from .bound_scenarios import (
    a_client_that_takes_all_sessions,
    clients_that_read_nothing,
    connections_that_say_nothing,
)
from .careless_plants import Deaf, a_member_without_memory, an_entry_that_a_majority_cannot_deliver, nested_messages
from .code_plants import a_member_with_other_code
from .damage_scenarios import (
    a_flipped_bit,
    a_member_that_comes_back_empty,
    a_repair_that_a_minority_offers,
    a_reserved_value,
    a_reserved_value_of_a_snapshot,
    an_entry_that_ends_too_early,
    an_entry_without_its_beginning,
    an_entry_without_its_end,
    data_that_turned_into_padding,
)
from .digest_scenarios import (
    a_copy_of_a_log_that_differs,
    a_member_whose_log_differs,
    a_member_whose_service_differs,
)
from .identity_plants import (
    a_member_that_speaks_as_another,
    a_member_that_was_never_added,
    a_removed_member_that_asks_on,
    orders_of_who_may_not_give_them,
)
from .membership_scenarios import (
    a_member_that_was_alone,
    a_standby_whose_source_stands_still,
    members_that_cannot_read_who_they_are,
)
from .relay_scenarios import a_leader_that_dies_with_the_offers

S: Final = 1_000_000_000
MS: Final = 1_000_000
TIMEOUT_MS: Final = 1_000  # the heartbeat timeout of nearly every scenario

_LINK_LIMIT_BYTES: Final = 256 << 10
"""What may wait for a follower here; the product's own limit would take minutes to reach."""

_WINDOW_BYTES: Final = 64 << 10
_ON_THE_WAY_BYTES: Final = 1 << 20  # room for what one pass of the loop may bring: received and sent in one go


@dataclass(slots=True)
class Scene:
    """A cluster under the referee, and clients that use it."""

    settings: Settings
    has_relays: bool = False
    """Whether members have a second service, which talks to the log."""
    referee: Referee = field(default_factory=lambda: Referee(Registers))
    history: History = field(default_factory=History)
    applications: list[Application] = field(default_factory=list)
    failures: dict[int, None] = field(default_factory=dict)
    """Members that may stop by themselves."""
    cluster: SimulatedCluster = field(init=False)
    trace: Trace = field(init=False)

    def __post_init__(self) -> None:
        make_others = partial(self.referee.services.make_others, has_relay=self.has_relays)
        self.cluster = SimulatedCluster(1, self.settings, self.referee.services.make_service, make_others=make_others)
        self.trace = Trace(self.cluster, None)
        self.referee.watch(self.cluster, self.trace)
        self.cluster.on_member_exit = self._on_exit

    def _on_exit(self, member: Member, error: BaseException | None) -> None:
        if member.member_id in self.failures and isinstance(error, ClusterError | OSError):
            return
        expect(error is None, "no member stops by itself without a cause", member=member.member_id, error=repr(error))

    def start(self) -> Member:
        """Start every member; give the leader."""
        for member_id in self.cluster.members:
            self.cluster.start(member_id)
        return self.await_leader()

    def await_leader(self) -> Member:
        """Let time pass until somebody leads."""
        self.run_until(lambda: self.cluster.leader() is not None, 30, "a majority has a leader")
        leader = self.cluster.leader()
        assert leader is not None
        return leader

    def followers(self) -> list[Member]:
        """Give every member but the leader."""
        leader = self.cluster.leader()
        return [member for member in self.cluster.members.values() if member is not leader]

    def add_client(self) -> Application:
        """Start a client that is never idle for long."""
        name, work = f"client-{len(self.applications)}", self._make_work(unit_s=TIMEOUT_MS / 1_000)
        rows = [row for row in work.messages() if row.name != CLOSE]
        work.lanes = [Lane(rows, Pace(think_mean_s=0.01, idle_rate=0.0, close_rate=0.0), Random(name))]
        return self._start(name, work)

    def add_reader(self, name: str = "reader") -> str:
        """Start a client that does nothing but query, some hundred times a second."""
        work = self._make_work(unit_s=0.05)
        pace = Pace(in_flight_limit=1, think_mean_s=0.005, burst_rate=0.0, idle_rate=0.0, close_rate=0.0)
        work.lanes = [Lane(work.queries(stale_weight=0.1), pace, Random(name))]
        self._start(name, work)
        return name

    def _make_work(self, *, unit_s: float) -> RegisterWork:
        return RegisterWork(
            len(self.applications),
            histories=[self.history],
            now_ns=lambda: self.cluster.now_ns,
            keys=range(4),
            unit_s=unit_s,
        )

    def _start(self, name: str, work: RegisterWork) -> Application:
        application = Application(self.client_config(), len(self.applications), work, random=Random(f"{name} sessions"))
        self.applications.append(application)
        self.cluster.add_client(name, application.run)
        return application

    def expect_reads_valid(self) -> None:
        """Hold what was read against the log and against what was acknowledged when."""
        operations, model = explained(self.history), RegisterModel()
        problems = check_log_order(operations, model)
        problems += check_stale_reads(operations, self.history.stale_reads, model)
        expect(not problems, "no read is older than it says", problems=problems[:2])

    def add_flood(self, name: str, payload_length: int) -> None:
        """Start a client that sends 4 messages a millisecond, and waits for no answers.

        No message ends in a zero, so that one that ends too early has lost something.
        """

        async def flood() -> None:
            async with ClusterClient.connect([], egress_listener=Deaf(), config=self.client_config()) as client:
                for sequence in itertools.count(1):
                    request = Request(RequestKind.PUT, 0, sequence, 1, sequence)
                    await client.offer(request.encode() + b"\xff" * payload_length)
                    if sequence % 16 == 0:
                        await asyncio.sleep(0.004)

        self.cluster.add_client(name, flood)

    def client_config(self) -> ClientConfig:
        """Give what a client has to know."""
        return ClientConfig(
            endpoints=self.cluster.ingress_endpoints,
            network=self.cluster.network,
            connect_timeout_s=5.0,
            new_leader_timeout_s=10.0,
            keep_alive_interval_s=0.5,
            reconnect_max_s=0.5,
            make_secret=lambda: b"the only client's",
        )

    def isolate(self, member: Member) -> None:
        """Cut a member off from everybody, both ways."""
        for name in self._others(member):
            self.cluster.network.block(name, member.machine.address)
            self.cluster.network.block(member.machine.address, name)

    def cut(self, first: Member, second: Member) -> None:
        """Let nothing through between two members."""
        self.cluster.network.block(first.machine.address, second.machine.address)
        self.cluster.network.block(second.machine.address, first.machine.address)

    def _others(self, member: Member) -> list[str]:
        everybody = [other.machine.address for other in self.cluster.members.values()] + [*self.cluster.clients]
        return [name for name in everybody if name != member.machine.address]

    def run(self, duration_s: float) -> None:
        """Let time pass."""
        self.cluster.run_for(int(duration_s * S))

    def run_until(self, is_done: Callable[[], bool], limit_s: float, rule: str) -> None:
        """Let time pass until something holds; the rule is broken if it does not in time."""
        expect(self.cluster.run_until(is_done, limit_ns=int(limit_s * S)), rule, cluster=self.cluster)

    def expect_service(self, rule: str, *, for_s: float, gap_s: float) -> None:
        """Let time pass, in which clients never wait longer than `gap_s` for the next answer."""
        end_ns = self.cluster.now_ns + int(for_s * S)
        while self.cluster.now_ns < end_ns:
            count = self.history.acknowledged_count
            self.run_until(lambda count=count: self.history.acknowledged_count > count, gap_s, rule)  # type: ignore[misc]


# --- what happens


def a_damaged_leader(scene: Scene) -> None:
    """The leader's log is damaged far below its end, and a follower has lost its disk: the third has everything."""
    damaged = scene.start()
    scene.add_client()
    scene.run_until(lambda: scene.history.acknowledged_count > 40, 10, "clients are served")
    wiped, whole = scene.followers()
    disk, path = damaged.machine.disk, damaged.config.directory / "archive" / "0-0.rec"
    disk.damage(path, 40, bytes([disk.content(path)[40] ^ 1]))
    for member in (damaged, wiped):
        scene.referee.damaged[member.member_id] = None
    scene.cluster.kill(wiped.member_id)
    scene.cluster.wipe(wiped.member_id)
    scene.cluster.start(wiped.member_id)
    scene.run_until(
        lambda: wiped.node is not None and wiped.node.module.follower is not None,
        20,
        "a member that lost its disk gets the log that any other member has",
    )
    scene.expect_service("clients are served after a leader gave way", for_s=3, gap_s=3)
    expect(damaged.is_running, "a read of damage ends no member", cluster=scene.cluster)
    expect(scene.cluster.leader() is whole, "a leader that cannot give out its log gives way", cluster=scene.cluster)


def a_slow_disk(scene: Scene) -> None:
    """A follower's disk hangs for ten seconds: nobody else waits for it."""
    scene.start()
    scene.add_client()
    scene.run_until(lambda: scene.history.acknowledged_count > 20, 10, "clients are served")
    scene.followers()[0].machine.timing.stall_until_ns = scene.cluster.now_ns + 10 * S
    scene.expect_service("a disk that hangs delays nobody else", for_s=5, gap_s=0.5)


def a_member_that_was_away(scene: Scene) -> None:
    """A follower is cut off for ten heartbeat timeouts and comes back: the leader leads on, in the same term."""
    leader = scene.start()
    scene.add_client()
    scene.run(2)
    away = scene.followers()[0]
    assert leader.node is not None
    ctx = leader.node.module.ctx
    term_id = ctx.leadership_term_id
    scene.isolate(away)
    scene.run(10 * TIMEOUT_MS / 1000)
    scene.cluster.network.unblock_all()
    rule = "a member that comes back disrupts nobody"
    scene.expect_service(rule, for_s=5, gap_s=0.5)
    expect(scene.cluster.leader() is leader and ctx.leadership_term_id == term_id, rule, cluster=scene.cluster)
    away_node = away.node
    expect(away_node is not None and away_node.module.follower is not None, "it follows again", cluster=scene.cluster)


def a_leader_alone(scene: Scene) -> None:
    """A leader is cut off: within three heartbeat timeouts it leads no more, and another one serves."""
    leader = scene.start()
    scene.add_client()
    scene.run(2)
    scene.isolate(leader)
    scene.run(3 * TIMEOUT_MS / 1000)
    expect(not leader.is_leader, "a leader that hears no majority stops leading", cluster=scene.cluster)
    scene.expect_service("the others elect another leader", for_s=3, gap_s=5)


def a_half_cut_off_member(scene: Scene) -> None:
    """The leader and one follower lose each other, a third hears both: a leader that serves, and no runaway terms.

    Source: decentralizedthoughts.github.io 2020-12-12, on the Cloudflare outage of 2020.
    """
    leader = scene.start()
    scene.add_client()
    scene.run(2)
    scene.cut(leader, scene.followers()[0])
    before = scene.referee.counts.elections
    scene.run(5)
    scene.expect_service("a leader that a majority hears serves", for_s=10, gap_s=3)
    counts = scene.referee.counts
    highest = max(
        member.node.module.ctx.candidate_term_id for member in scene.cluster.members.values() if member.node is not None
    )
    expect(counts.elections - before <= 3, "terms do not run away", elections=counts.elections, highest=highest)
    expect(highest <= 5, "terms do not run away", highest=highest)


def a_member_left_out(scene: Scene) -> None:
    """One of three members is cut off from the beginning: the two others are a majority."""
    scene.isolate(scene.cluster.members[next(iter(scene.cluster.members))])
    for member_id in scene.cluster.members:
        scene.cluster.start(member_id)
    scene.run_until(lambda: scene.cluster.leader() is not None, 15, "a majority has a leader while a member is cut off")


def memory_is_bounded(scene: Scene) -> None:
    """A follower stands still while clients send what they can; then the others do, too."""
    scene.start()
    scene.add_flood("flood", 1_000)
    scene.run(0.5)
    first, second = scene.followers()
    scene.cluster.pause(first.member_id)
    committed = len(scene.referee.committed)
    _run_watching(scene, lambda: len(scene.referee.committed) > committed + 2 * (1 << 20), limit_s=30)
    scene.cluster.pause(second.member_id)
    _run_watching(scene, lambda: False, limit_s=0.8 * TIMEOUT_MS / 1000)


def _run_watching(scene: Scene, is_done: Callable[[], bool], *, limit_s: float) -> None:
    end_ns = scene.cluster.now_ns + int(limit_s * S)
    while scene.cluster.now_ns < end_ns and not is_done():
        scene.run(0.005)
        _expect_bounded(scene)


def _expect_bounded(scene: Scene) -> None:
    for member in scene.cluster.members.values():
        if member.node is None:
            continue
        window = member.node.module.ctx.log_buffer
        held_bytes = window.append_position - window.base_position
        uncommitted_bytes = window.append_position - member.node.delivered_position
        bound = _WINDOW_BYTES + _ON_THE_WAY_BYTES // 2
        if member.is_leader:
            expect(uncommitted_bytes <= bound, "what waits to be committed is bounded", waiting_bytes=uncommitted_bytes)
        expect(held_bytes <= 2 * _WINDOW_BYTES + bound, "the window is bounded", held_bytes=held_bytes, window=window)
    for transport in scene.cluster.network.transports:
        expect(
            transport.get_write_buffer_size() <= _LINK_LIMIT_BYTES + _ON_THE_WAY_BYTES,
            "what waits for a follower is bounded",
            transport=transport,
            waiting_bytes=transport.get_write_buffer_size(),
        )


def two_ends_of_one_log(scene: Scene) -> None:
    """A leader that is cut off has the longer log, the others go on in a new term: only theirs may win."""
    old = scene.start()
    scene.add_flood("flood", 1_000)
    scene.run(0.5)
    for member in scene.followers():
        scene.cut(old, member)
    scene.run(0.3)
    scene.cluster.clients["flood"].kill()
    scene.run_until(lambda: scene.cluster.leader() not in (None, old), 10, "the others elect another leader")
    scene.run(2)
    new = scene.await_leader()
    third = next(member for member in scene.followers() if member is not old)
    assert old.node is not None
    assert third.node is not None
    ends = old.node.module.ctx.append_position, third.node.module.ctx.append_position
    expect(ends[0] > ends[1], "the scenario makes an old log that is longer", ends=ends)
    scene.cluster.kill(new.member_id)
    scene.cluster.network.unblock_all()
    scene.run_until(lambda: scene.cluster.leader() is not None, 20, "a healed majority has a leader")
    scene.run(3)


def a_copy_that_breaks_off(scene: Scene) -> None:
    """A member that missed the end of a term copies it from the leader's archive, over links that are reset."""
    leader = scene.start()
    scene.add_flood("flood", 1_000)
    away = scene.followers()[0]
    scene.isolate(away)
    scene.run(0.4)
    scene.cluster.clients["flood"].kill()
    scene.cluster.kill(leader.member_id)
    scene.run(0.1)
    scene.cluster.start(leader.member_id)
    scene.run_until(lambda: scene.cluster.leader() is not None, 20, "a majority has a leader")
    scene.run(0.5)
    scene.cluster.network.quality = LinkQuality(5 * MS, 10 * MS)
    scene.cluster.network.unblock_all()
    port = Endpoint.parse(away.config.me.archive).port
    for _ in range(20):
        scene.run(0.05)
        transports = scene.cluster.network.transports
        copies = [end for end in transports if end.address[0] == away.machine.address and end.peer_address[1] == port]
        for end in copies:
            if end.peer.get_write_buffer_size() or end.peer._in_flight_bytes:
                scene.cluster.network.reset(end)
    scene.run_until(
        lambda: away.node is not None and away.node.module.follower is not None, 20, "a member that was away follows"
    )


def an_election_by_steps(scene: Scene) -> None:
    """The power fails before each disk operation of an election in turn, and the member has to start again."""
    scene.start()
    for step in range(1, 14):
        leader = scene.await_leader()
        victim = scene.followers()[step % 2]
        countdown = itertools.count(step, -1)

        def stop(
            name: str, path: object, length: int, victim: Member = victim, countdown: Iterator[int] = countdown
        ) -> None:
            if "/cluster/" not in str(path) or "mark" in str(path) or not victim.is_running:
                return
            if next(countdown) == 1:
                scene.cluster.lose_power(victim.member_id, lambda: False)
                raise OSError(errno.EIO, "the machine is off", str(path))

        victim.machine.on_disk_operation = stop
        scene.cluster.kill(leader.member_id)
        scene.run(3)
        victim.machine.on_disk_operation = lambda name, path, length: None
        for member in (leader, victim):
            scene.cluster.start(member.member_id)
        scene.run(1)


def a_member_that_lost_its_disk(scene: Scene) -> None:
    """One member has the whole log, one lost its disk, one was away: those two may not go on without the first."""
    scene.start()
    scene.add_client()
    lost, away = scene.followers()
    scene.isolate(away)
    scene.run(2)
    whole = scene.await_leader()
    scene.cluster.kill(lost.member_id)
    scene.cluster.wipe(lost.member_id)
    scene.cluster.kill(whole.member_id)
    scene.cluster.network.unblock_all()
    scene.cluster.start(lost.member_id)
    scene.run(10)
    scene.cluster.start(whole.member_id)
    scene.await_leader()
    scene.expect_service("a healed majority serves its clients", for_s=2, gap_s=10)


def no_quorum(scene: Scene) -> None:
    """Two of five members find no majority for ever: they keep asking, quietly."""
    for member_id in (0, 1):
        scene.cluster.start(member_id)
    for _ in range(200):
        before = scene.cluster.scheduler.event_count
        scene.run(0.05)
        events = scene.cluster.scheduler.event_count - before
        expect(events < 200, "members without a majority are quiet", events_in_50_ms=events)


def a_full_disk(scene: Scene) -> None:
    """A follower has no room for its next segment: it stops and says so, and comes back when there is room."""
    scene.start()
    scene.run(1)
    full = scene.followers()[0]
    scene.failures[full.member_id] = None
    disk = full.machine.disk
    disk.capacity_bytes = disk.used_bytes + 4_096
    scene.add_flood("flood", 1_000)
    scene.run(0.5)
    scene.cluster.clients["flood"].kill()
    expect(not full.is_running, "a member without room for its log stops", member=full)
    disk.capacity_bytes = None
    del scene.failures[full.member_id]
    scene.cluster.start(full.member_id)
    scene.run_until(lambda: full.node is not None and full.node.module.follower is not None, 20, "it comes back")


def replies_of_an_old_leader(scene: Scene) -> None:
    """A leader's answers are held back until its client has heard of the next leader: they come too late."""
    leader = scene.start()
    listener = _TermListener()

    async def ask() -> None:
        config = scene.client_config()
        async with ClusterClient.connect([], egress_listener=listener, config=config) as client:
            for sequence in itertools.count(1):
                await client.offer(Request(RequestKind.GET, 0, sequence, 1, sequence).encode())
                await asyncio.sleep(0.01)

    scene.cluster.add_client("client-0", ask)
    scene.run_until(lambda: listener.count > 5, 10, "clients are served")
    scene.cluster.network.block(leader.machine.address, "client-0")
    scene.run(0.2)
    for member in scene.followers():
        scene.cut(leader, member)
    scene.run_until(lambda: listener.leadership_term_id > 0, 20, "a client hears of the next leader")
    scene.cluster.network.unblock(leader.machine.address, "client-0")
    scene.run(5)
    expect(not listener.late, "a client is shown nothing of an old leader", late=listener.late[:3])


def a_changed_frame(scene: Scene) -> None:
    """The version of a log frame changes between leader and follower: the follower refuses it, and asks once more."""
    leader = scene.start()
    scene.add_client()
    scene.run(0.5)
    victim = scene.followers()[0]
    changed: list[int] = []
    for end in scene.cluster.network.transports:
        if (end.address[0], end.peer_address[0]) == (leader.machine.address, victim.machine.address):
            _change_a_frame(end, changed)
    scene.run_until(lambda: bool(changed), 5, "the leader sends its log")
    scene.run(5)
    scene.cluster.kill(victim.member_id)
    scene.cluster.start(victim.member_id)
    scene.run_until(
        lambda: victim.node is not None and victim.node.module.follower is not None, 20, "a started member follows"
    )


def _change_a_frame(end: SimulatedTransport, changed: list[int]) -> None:
    """Let the first data frame of the log that `end` sends arrive with version 1; note where it was in its write."""
    write = end.write

    def change(data: bytes | bytearray | memoryview) -> None:
        sent = bytearray(data)
        for offset, header in iter_headers(data):
            if not changed and header.type == TYPE_DATA and header.stream_id == LOG_STREAM_ID:
                sent[offset + HeaderField.KIND.offset] = 1
                changed.append(offset)
        write(sent)

    end.write = change  # type: ignore[method-assign]


class _TermListener(Deaf):
    """Notes what comes of an older term than it has been told of."""

    def __init__(self) -> None:
        self.leadership_term_id = -1
        self.count = 0
        self.late: list[tuple[int, int]] = []

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Look at the term of an answer."""
        self.count += 1
        if leadership_term_id < self.leadership_term_id:
            self.late.append((leadership_term_id, self.leadership_term_id))

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Note the new term."""
        self.leadership_term_id = leadership_term_id


# --- the table


def a_deposed_leader(scene: Scene) -> None:
    """A leader that is cut off does not know that another one leads, and is asked all the time what it knows.

    What acknowledges a round gets through when another leader has acknowledged writes, and readers have asked since.
    """
    old, (first, second), net = scene.start(), scene.followers(), scene.cluster.network
    readers = [scene.add_reader(f"reader-{number}") for number in range(4)]
    scene.add_client()
    scene.run(2)
    for one, other in itertools.product(readers, (first.machine.address, second.machine.address)):
        net.block(one, other)
        net.block(other, one)
    net.block(first.machine.address, old.machine.address)
    net.block(old.machine.address, second.machine.address)
    scene.run(0.3)
    net.block(old.machine.address, first.machine.address)
    _depose(scene, old, [second])
    net.unblock(first.machine.address, old.machine.address)
    scene.run(2)
    scene.expect_reads_valid()


def a_deposed_leader_that_asks(scene: Scene) -> None:
    """The same; and then it reaches the follower that has voted for the other one, and asks whether it leads."""
    old, followers, reader, net = scene.start(), scene.followers(), scene.add_reader(), scene.cluster.network
    scene.add_client()
    scene.run(2)
    for follower in followers:
        net.block(reader, follower.machine.address)
        net.block(follower.machine.address, reader)
        net.block(old.machine.address, follower.machine.address)
    new = _depose(scene, old, followers)
    voter = next(follower for follower in followers if follower is not new)
    net.unblock(old.machine.address, voter.machine.address)
    net.unblock(voter.machine.address, old.machine.address)
    scene.run(2)
    scene.expect_reads_valid()


def _depose(scene: Scene, old: Member, heard: list[Member]) -> Member:
    """Let those whom the leader hears fall silent just before they elect another one, which serves; give that one."""
    scene.run(0.9 * scene.settings.leader_heartbeat_timeout_ms / 1000)
    for follower in heard:
        scene.cluster.network.block(follower.machine.address, old.machine.address)
    scene.run_until(lambda: scene.cluster.leader() is not old, 10, "the others elect another leader")
    count = scene.history.acknowledged_count - scene.history.query_count
    scene.run_until(
        lambda: scene.history.acknowledged_count - scene.history.query_count > count + 20, 5, "the new leader serves"
    )
    expect(old.is_leader, "the old leader does not know yet", cluster=scene.cluster)
    new = scene.cluster.leader()
    assert new is not None
    scene.run(0.5)
    return new


@dataclass(slots=True, frozen=True)
class Scenario:
    """What happens, and to what cluster."""

    play: Callable[[Scene], None]
    member_count: int = 3
    window_bytes: int = 256 << 10
    timeout_ms: int = TIMEOUT_MS
    """The heartbeat timeout."""
    has_relays: bool = False
    has_cold_storage: bool = False
    """Whether members keep no more log than they need, and put the rest into the store."""

    def settings(self) -> Settings:
        """Give the settings of its cluster."""
        settings = Settings(
            member_count=self.member_count,
            leader_heartbeat_timeout_ms=self.timeout_ms,
            leader_heartbeat_interval_ms=self.timeout_ms // 10,
            election_timeout_ms=self.timeout_ms // 4,
            election_status_interval_ms=self.timeout_ms // 20,
            startup_canvass_timeout_ms=3 * self.timeout_ms,
            session_timeout_ms=20 * self.timeout_ms,
            ingress_window_bytes=self.window_bytes,
        )
        if not self.has_cold_storage:
            return settings
        return replace(
            settings, keep_all=False, keep_snapshots=1, cold_storage_url=STORE_URL, segment_length_bytes=64 << 10
        )


SCENARIOS: Final = {
    "cluster-stops": Scenario(a_cluster_that_stops),
    "suspended-failover": Scenario(a_suspended_cluster),
    "order-undone": Scenario(an_order_that_comes_to_nothing),
    "hand-over": Scenario(a_leader_that_hands_over),
    "lost-offers": Scenario(a_leader_that_dies_with_the_offers, has_relays=True),
    "one-differs": Scenario(a_member_whose_service_differs),
    "log-differs": Scenario(a_member_whose_log_differs),
    "copied-difference": Scenario(a_copy_of_a_log_that_differs),
    "no-memory": Scenario(a_member_without_memory),
    "entry-skip": Scenario(an_entry_that_a_majority_cannot_deliver),
    "nested-messages": Scenario(nested_messages),
    "other-code": Scenario(a_member_with_other_code),
    "backup-from-snapshot": Scenario(a_backup_that_begins_at_a_snapshot),
    "backup-keeps-time": Scenario(a_backup_that_keeps_some_time, has_cold_storage=True),
    "shared-store": Scenario(a_store_of_backups_and_cold_storage, has_cold_storage=True),
    "slow-disk": Scenario(a_slow_disk),
    "member-returns": Scenario(a_member_that_was_away),
    "leader-alone": Scenario(a_leader_alone),
    "half-cut-off": Scenario(a_half_cut_off_member),
    "member-left-out": Scenario(a_member_left_out),
    "two-ends": Scenario(two_ends_of_one_log),
    "broken-copy": Scenario(a_copy_that_breaks_off),
    "election-by-steps": Scenario(an_election_by_steps),
    "wiped-member": Scenario(a_member_that_lost_its_disk),
    "was-alone": Scenario(a_member_that_was_alone, member_count=1),
    "members-unread": Scenario(members_that_cannot_read_who_they_are),
    "source-stands-still": Scenario(a_standby_whose_source_stands_still),
    "no-quorum": Scenario(no_quorum, member_count=5),
    "full-disk": Scenario(a_full_disk),
    "flipped-bit": Scenario(a_flipped_bit),
    "data-turned-padding": Scenario(data_that_turned_into_padding),
    "entry-without-end": Scenario(an_entry_without_its_end),
    "entry-without-beginning": Scenario(an_entry_without_its_beginning),
    "reserved-value": Scenario(a_reserved_value),
    "reserved-value-of-snapshot": Scenario(a_reserved_value_of_a_snapshot),
    "entry-too-short": Scenario(an_entry_that_ends_too_early),
    "repair-of-a-minority": Scenario(a_repair_that_a_minority_offers),
    "comes-back-empty": Scenario(a_member_that_comes_back_empty, timeout_ms=4_000),
    "changed-frame": Scenario(a_changed_frame),
    "damaged-leader": Scenario(a_damaged_leader),
    "old-replies": Scenario(replies_of_an_old_leader),
    "deposed-leader": Scenario(a_deposed_leader, timeout_ms=2_000),
    "deposed-leader-asks": Scenario(a_deposed_leader_that_asks, timeout_ms=4_000),
    "bounded-memory": Scenario(memory_is_bounded, window_bytes=_WINDOW_BYTES),
    "clients-that-read-nothing": Scenario(clients_that_read_nothing),
    "connections-that-say-nothing": Scenario(connections_that_say_nothing),
    "takes-all-sessions": Scenario(a_client_that_takes_all_sessions),
    "member-as-another": Scenario(a_member_that_speaks_as_another),
    "orders-of-others": Scenario(orders_of_who_may_not_give_them),
    "removed-member-asks-on": Scenario(a_removed_member_that_asks_on),
    "member-never-added": Scenario(a_member_that_was_never_added),
}


def run_scenario(scenario: Scenario) -> tuple[RuleBroken | None, float]:
    """Play a scenario; give the rule that was broken, if one was, and the virtual seconds it took."""
    with _surroundings():
        scene = Scene(scenario.settings(), has_relays=scenario.has_relays)
        try:
            scenario.play(scene)
            expect(not scene.history.faults, "clients see nothing impossible", faults=scene.history.faults[:3])
            expect(not scene.cluster.unhandled, "no error is left unhandled", errors=scene.cluster.unhandled[:3])
        except RuleBroken as broken:
            return broken, scene.cluster.now_ns / S
        finally:
            scene.cluster.close()
        return None, scene.cluster.now_ns / S


@contextmanager
def _surroundings() -> Iterator[None]:
    """Keep elections out of the log, and links short."""
    kept_log, kept_limit = structlog.get_config(), log_links._SEND_LIMIT_BYTES
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    log_links._SEND_LIMIT_BYTES = _LINK_LIMIT_BYTES  # type: ignore[misc]
    try:
        yield
    finally:
        log_links._SEND_LIMIT_BYTES = kept_limit  # type: ignore[misc]
        structlog.configure(**kept_log)
