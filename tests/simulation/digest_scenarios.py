"""Directed scenarios of a member whose service or log differs, with nobody but the product to see it."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING

from tests import forged_frames
from trimaran.client import ClientConfig, ClusterClient
from trimaran.cluster.core.log.log_comparison import LogDifference
from trimaran.cluster.testing.simulation.cluster import Member, SimulatedCluster
from trimaran.cluster.testing.simulation.world.expect import expect
from trimaran.service_api import ClientSession, ClusteredService, ServiceDivergedError

if TYPE_CHECKING:
    from .scenarios import Scene

_S = 1_000_000_000
_ODD = 1
_FORGED = b"message 040"


class _Counting(ClusteredService):
    """Counts messages; twice on one member. What clients are told is the same everywhere."""

    def __init__(self, member_id: int) -> None:
        self.step = 2 if member_id == _ODD else 1
        self.count = 0

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        self.count += self.step

    def state_hash(self) -> object:
        return self.count


def a_member_whose_service_differs(scene: Scene) -> None:
    """Its state differs and its answers do not: it stops, and the others go on and name it."""
    exits: dict[int, BaseException | None] = {}

    def on_exit(member: Member, error: BaseException | None) -> None:
        exits[member.member_id] = error

    cluster = SimulatedCluster(1, scene.settings, lambda member: _Counting(member.member_id))
    cluster.on_member_exit = on_exit
    try:
        for member_id in cluster.members:
            cluster.start(member_id)
        cluster.run_until(lambda: cluster.leader() is not None, limit_ns=30 * _S)
        cluster.add_client("client", lambda: _send(cluster))
        others = [member for member in cluster.members.values() if member.member_id != _ODD]
        cluster.run_until(lambda: _ODD in exits and all(map(_names_the_odd_one, others)), limit_ns=30 * _S)
        expect(
            all(map(_names_the_odd_one, others)),
            "members find that a service differs",
            members=[repr(member.node and member.node.module.digests) for member in others],
        )
        expect(
            isinstance(exits.get(_ODD), ServiceDivergedError) and len(exits) == 1,
            "a member that differs from a majority stops",
            exits=repr(exits),
        )
    finally:
        cluster.close()


class _Hashing(ClusteredService):
    """Its state is a hash of all messages."""

    def __init__(self) -> None:
        self.state = b""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        self.state = sha256(self.state + payload).digest()

    def state_hash(self) -> object:
        return self.state


class _Hashed:
    """A cluster that has a log of some messages, and whose members may end."""

    def __init__(self, scene: Scene) -> None:
        self.exits: dict[int, BaseException | None] = {}
        self.services: dict[int, _Hashing] = {}
        self.cluster = SimulatedCluster(1, scene.settings, self._make_service)
        self.cluster.on_member_exit = self._on_exit
        for member_id in self.cluster.members:
            self.cluster.start(member_id)
        self.cluster.run_until(lambda: self.cluster.leader() is not None, limit_ns=30 * _S)
        self.cluster.add_client("client", lambda: _send(self.cluster))
        self.run(lambda: not self.cluster.clients["client"].is_running and self.is_at_rest())

    def _make_service(self, member: Member) -> _Hashing:
        self.services[member.member_id] = _Hashing()
        return self.services[member.member_id]

    def _on_exit(self, member: Member, error: BaseException | None) -> None:
        self.exits[member.member_id] = error

    def run(self, is_done: Callable[[], bool], limit_s: int = 60) -> bool:
        """Let time pass until something holds; whether it does."""
        return self.cluster.run_until(is_done, limit_ns=limit_s * _S)

    def is_at_rest(self) -> bool:
        """Return whether every member follows, and has delivered all that the leader has."""
        leader = self.cluster.leader()
        if leader is None or leader.node is None:
            return False
        end = leader.node.module.ctx.log_buffer.append_position
        nodes = [member.node for member in self.cluster.members.values()]
        return all(node is not None and node.delivered_position == end for node in nodes)

    def restart(self, *members: Member) -> None:
        """Kill members, and start them again."""
        for member in members:
            self.cluster.kill(member.member_id)
        for member in members:
            self.cluster.start(member.member_id)

    def expect_nobody_ended(self) -> None:
        """Check that every member's process is the one that was started."""
        expect(not self.exits, "nobody is stopped for what a log of others may have", exits=repr(self.exits))


def a_member_whose_log_differs(scene: Scene) -> None:
    """Bytes of its log have changed so that every check passes: it takes those of the others, and nobody stops."""
    hashed = _Hashed(scene)
    try:
        leader = hashed.cluster.leader()
        member = next(each for each in hashed.cluster.members.values() if each is not leader)
        whole = log_of(member)
        forge(member, _FORGED)
        hashed.restart(member)
        is_mended = hashed.run(lambda: log_of(member)[: len(whole)] == whole and hashed.is_at_rest(), 20)
        hashed.expect_nobody_ended()
        expect(is_mended, "a member whose log alone differs takes what the others have", member=member)
    finally:
        hashed.cluster.close()


def a_copy_of_a_log_that_differs(scene: Scene) -> None:
    """The leader's disk changes bytes, and a member with a new disk copies them: two disks against one, one source.

    Nobody stops, and nobody acknowledges, until an operator says whose log is valid.
    """
    hashed = _Hashed(scene)
    cluster = hashed.cluster
    try:
        source = cluster.leader()
        assert source is not None
        copy, other = (each for each in cluster.members.values() if each is not source)
        whole = log_of(other)
        forge(source, _FORGED)
        cluster.kill(copy.member_id)
        cluster.wipe(copy.member_id)
        cluster.start(copy.member_id)
        hashed.run(lambda: bool(hashed.exits) or _holds(copy), 20)
        hashed.expect_nobody_ended()
        expect(_holds(copy), "a member that copied what differs holds before it", member=copy)
        hashed.restart(source, other)
        hashed.run(lambda: bool(hashed.exits) or all(map(_holds, cluster.members.values())), 30)
        hashed.expect_nobody_ended()
        expect(
            all(map(_holds, cluster.members.values())),
            "a majority of copies of one source is no majority",
            members=[repr(member.node and member.node.module.ctx.held) for member in cluster.members.values()],
        )
        hashed.run(lambda: False, 5)  # they deliver what is before it
        states = {member_id: service.state for member_id, service in hashed.services.items()}
        cluster.add_client("late", lambda: _send(cluster))
        hashed.run(lambda: False, 5)
        expect(
            states == {member_id: service.state for member_id, service in hashed.services.items()},
            "at one against one nobody acknowledges",
        )
        hashed.expect_nobody_ended()
        for member in cluster.members.values():
            assert member.node is not None
            member.node.parts.repair.comparer.trust(other.member_id)
        hashed.run(lambda: bool(hashed.exits) or not any(map(_holds, cluster.members.values())), 30)
        is_over = hashed.run(lambda: len({service.state for service in hashed.services.values()}) == 1, 60)
        hashed.expect_nobody_ended()
        logs = [log_of(member)[: len(whole)] == whole for member in cluster.members.values()]
        expect(is_over and all(logs), "an operator says whose log is valid", logs=logs)
    finally:
        cluster.close()


def _holds(member: Member) -> bool:
    return member.node is not None and isinstance(member.node.module.ctx.held, LogDifference)


def log_of(member: Member) -> bytes:
    """Return the first segment of a member's log, as far as it was written."""
    path = member.config.directory / "archive" / "0-0.rec"
    return member.machine.disk.content(path).rstrip(b"\0")


def forge(member: Member, text: bytes) -> tuple[int, int]:
    """Change the message of the log that has a text so that no check sees it; returns the range of its frame."""
    offset, frame = forged_frames.forge(log_of(member), text)
    member.machine.disk.damage(member.config.directory / "archive" / "0-0.rec", offset, frame)
    return offset, offset + len(frame)


def _names_the_odd_one(member: Member) -> bool:
    if member.node is None:
        return False
    return any(each.differing == {_ODD} for each in member.node.module.digests.divergences.values())


async def _send(cluster: SimulatedCluster) -> None:
    config = ClientConfig(endpoints=cluster.ingress_endpoints, network=cluster.network)
    async with ClusterClient.connect(config=config) as client:
        for number in range(200):
            await client.offer(b"message %03d" % number + bytes(53))
