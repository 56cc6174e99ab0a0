"""The example with two services: whole members on virtual time, with a client that pays and one that does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
import structlog

from examples.seats import HOLD_MS, BoxOffice, Ledger
from tests.unit.cluster.simulation.small_cluster import QUICK
from tests.unit.cluster.simulation.small_world import SECOND
from trimaran.client import ClientConfig, ClusterClient
from trimaran.cluster.simulation.cluster import SimulatedCluster


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    made = SimulatedCluster(
        1,
        replace(QUICK, session_timeout_ms=2 * HOLD_MS),
        lambda member: BoxOffice(),
        make_others=lambda member: [Ledger()],
    )
    for member_id in made.members:
        made.start(member_id)
    try:
        assert made.run_until(lambda: made.leader() is not None, limit_ns=20 * SECOND)
        yield made
    finally:
        made.close()


def ask(cluster: SimulatedCluster, *requests: bytes) -> list[bytes]:
    """Let a new client send requests, one after another."""
    replies: list[bytes] = []
    name = f"client-{len(cluster.clients)}"

    async def main() -> None:
        config = ClientConfig(endpoints=cluster.ingress_endpoints, network=cluster.network)
        async with asyncio.timeout(30), ClusterClient.connect(config=config) as client:
            replies.extend([await client.request(request) for request in requests])

    cluster.add_client(name, main)
    assert cluster.run_until(lambda: not cluster.clients[name].is_running, limit_ns=60 * SECOND)
    return replies


def books(cluster: SimulatedCluster) -> set[tuple[int, int]]:
    """What the ledgers of all members say."""
    cluster.run_for(2 * SECOND)
    found = set()
    for member in cluster.members.values():
        assert member.node is not None
        ledger = member.node.service_agent.services[1]
        found.add((ledger.takings, ledger.lapsed_count))  # type: ignore[attr-defined]  # a Ledger behind stop-watches
    return found


def test_what_is_paid_is_in_every_ledger_and_what_is_not_lapses(cluster: SimulatedCluster) -> None:
    assert ask(cluster, b"hold 7", b"hold 7", b"pay 7 30", b"hold 7", b"hold 8", b"pay 9 1", b"sit") == [
        b"held",
        b"taken",
        b"sold",
        b"taken",
        b"held",
        b"not held",
        b"expected: hold SEAT, or pay SEAT PRICE",
    ]
    assert books(cluster) == {(30, 0)}

    cluster.run_for(HOLD_MS * 1_000_000)

    assert books(cluster) == {(30, 1)}
    assert ask(cluster, b"hold 8", b"pay 8 12") == [b"held", b"sold"]
    assert books(cluster) == {(42, 1)}


def test_both_services_go_on_from_a_snapshot_when_every_member_is_killed(cluster: SimulatedCluster) -> None:
    ask(cluster, b"hold 7", b"pay 7 30", b"hold 8")
    leader = cluster.leader()
    assert leader is not None
    assert leader.node is not None
    node, machine = leader.node, leader.machine
    taken: list[int] = []

    async def take() -> None:
        taken.append(await node.take_snapshot())

    assert machine.loop is not None
    task = machine.loop.create_task(take())
    assert cluster.run_until(task.done, limit_ns=20 * SECOND)
    cluster.run_for(2 * SECOND)
    for member_id in cluster.members:
        cluster.kill(member_id)
        cluster.start(member_id)
    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=60 * SECOND)

    assert books(cluster) == {(30, 0)}
    assert ask(cluster, b"hold 7", b"hold 8", b"hold 9", b"pay 9 5") == [b"taken", b"taken", b"held", b"sold"]
    assert books(cluster) == {(35, 0)}
    cluster.run_for(HOLD_MS * 1_000_000)
    assert books(cluster) == {(35, 1)}
