"""A log with everything in it, recorded by a real member that runs in this process, and what was seen meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.waiting import patient, within
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.client import ClientConfig, ClusterClient
from trimaran.cluster.node.node import Node
from trimaran.cluster.settings.config import NodeConfig, parse_members
from trimaran.service_api import ClusteredService, SessionClosedError

from .ledger import Ledger

DEADLINE_S = 30.0


@dataclass
class Recorded:
    """A member's directory, and what its service and its clients have seen."""

    directory: Path
    observed: dict[int, str] = field(default_factory=dict)
    """The digest of the service after the entry that ends at each position."""
    replies: list[list[object]] = field(default_factory=list)
    """What requests were answered with: position, balance, digest."""
    snapshots: list[int] = field(default_factory=list)
    """Where snapshots were taken."""


@asynccontextmanager
async def member(directory: Path, *services: ClusteredService, **settings: object) -> AsyncIterator[tuple[Node, str]]:
    """Run the only member of a cluster in this process."""
    config = NodeConfig(
        member_id=0,
        members=parse_members(f"0=127.0.0.1:{find_base_ports(1)[0]}"),
        directory=directory,
        service="tests.unit.cluster.time_travel.ledger:Ledger",
        file_sync_level=0,
        term_length_bytes=1 << 16,
        segment_length_bytes=1 << 16,
        mtu_length_bytes=1408,
        startup_canvass_timeout_ms=20_000,
        election_timeout_ms=100,
        election_status_interval_ms=20,
        leader_heartbeat_timeout_ms=10_000,
        leader_heartbeat_interval_ms=40,
        **{"keep_all": True, **settings},  # type: ignore[arg-type]  # whatever a test wants
    )
    async with Node.open(config, *services) as node, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(node.run())
        try:
            yield node, config.me.ingress
        finally:
            node.stop()
            with suppress(asyncio.CancelledError):
                await running


async def _talk(client: ClusterClient, recorded: Recorded, number: int, count: int) -> None:
    """Send requests and messages of all kinds, and keep what comes back."""
    for index in range(count):
        reply = await client.request(b"account%d %d" % (index % 7, 13 * index % 101))
        recorded.replies.append(json.loads(reply))
        timer_id = number * 1000 + index
        await client.offer(
            (
                b"timer %d %d" % (timer_id, 1 + index % 3),
                b"cancel %d" % (timer_id - 1) if index % 2 else b"echo: that timer is to fire",
                b"offer text%d" % index,
                b"boom",
                b"echo %d" % index,
            )[index % 5]
        )
    await client.offer(b"echo " + b"x" * 5000)  # longer than a frame


async def record(directory: Path, *, rounds: int = 2, count: int = 60) -> Recorded:
    """Run a member several times: sessions, messages, requests, timers, offers, errors, and a snapshot each time."""
    recorded = Recorded(directory)
    Ledger.observed = recorded.observed
    try:
        async with within(DEADLINE_S):
            for number in range(rounds):
                async with member(directory, Ledger()) as (node, endpoint):
                    config = ClientConfig(endpoints=(endpoint,), connect_timeout_s=patient(DEADLINE_S))
                    async with await ClusterClient.connect([], config=config) as client:
                        await _talk(client, recorded, number, count)
                        recorded.snapshots.append(await node.take_snapshot())
                        await _talk(client, recorded, number, count // 2)
                        await client.offer(b"timer 77 3600000")
                        await client.request(b"last %d" % number)
                    other = await ClusterClient.connect([], config=config)
                    await other.offer(b"bye")
                    with suppress(SessionClosedError):
                        async for _ in other.egress():
                            pass
                    await other.aclose()
                    if number == rounds - 1:
                        recorded.snapshots.append(await node.take_snapshot())
    finally:
        Ledger.observed = None
    return recorded
