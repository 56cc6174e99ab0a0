"""A directed scenario of a member whose service differs, with nobody but the product to see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimaran.client import ClientConfig, ClusterClient
from trimaran.cluster.simulation.cluster import Member, SimulatedCluster
from trimaran.cluster.simulation.rules import expect
from trimaran.service_api import ClientSession, ClusteredService, ServiceDivergedError

if TYPE_CHECKING:
    from .scenarios import Scene

_S = 1_000_000_000
_ODD = 1


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


def _names_the_odd_one(member: Member) -> bool:
    if member.node is None:
        return False
    return any(each.differing == {_ODD} for each in member.node.module.digests.divergences.values())


async def _send(cluster: SimulatedCluster) -> None:
    config = ClientConfig(endpoints=cluster.ingress_endpoints, network=cluster.network)
    async with ClusterClient.connect(config=config) as client:
        for _ in range(200):
            await client.offer(bytes(64))
