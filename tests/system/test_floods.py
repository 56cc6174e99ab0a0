"""Hostile clients in numbers against real members: memory stays bounded and goes back, honest clients are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.system.append_list import FLOOD, REQUEST
from tests.system.cluster_process import STEADY, TIMEOUT_S, SystemCluster
from tests.system.waiting import wait_until
from trimaran.benchmarks.load.hostile_clients import Flood, NeverReadingFlood
from trimaran.benchmarks.scenarios.flood import resident_bytes
from trimaran.benchmarks.services import FAN_OUT_SERVICE
from trimaran.client import ClientConfig, ClusterClient
from trimaran.client.connection_events import Disconnected

pytestmark = pytest.mark.slow

MIB = 1 << 20
FLOODABLE = {"term_length_bytes": "1048576", "segment_length_bytes": "1048576", "mtu_length_bytes": "65504"}
"""Terms in which the answers of a flood, 64 KiB each, are allowed."""


@asynccontextmanager
async def _running(flood: Flood) -> AsyncIterator[None]:
    """Flood until the block is left."""
    task = asyncio.create_task(flood.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _read_all(client: ClusterClient) -> None:
    async for _ in client.egress():
        pass


async def _first_disconnection(client: ClusterClient) -> str:
    """Why the member ended a connection of this client."""
    async for event in client.connection_events():
        if isinstance(event, Disconnected):
            return event.reason
    raise AssertionError("no connection was lost")


async def test_sessions_that_read_nothing_are_cut_off_at_one_limit_and_the_memory_goes_back(data_dir: Path) -> None:
    """Issue 20 §3: 40 sessions that write 100 KB each and read nothing took the leader to 2,358 MB, for good."""
    settings = {**STEADY, **FLOODABLE, "egress_limit_bytes": str(32 * MIB)}
    async with SystemCluster(data_dir, settings=settings, service=FAN_OUT_SERVICE) as cluster:
        leader = cluster.members[(await cluster.wait_for_leader()).leader_member_id]
        flood = NeverReadingFlood(cluster.endpoints[leader.member_id], count=20, fan_out=100)
        async with ClusterClient.connect(cluster.endpoints, connect_timeout_s=TIMEOUT_S) as honest:
            await honest.request(b"before")
            pid, peaks = leader.process.pid, [resident_bytes(leader.process.pid)]
            async with _running(flood):
                await leader.wait_for_event("egress.dropped")
                for _ in range(100):
                    assert await honest.request(b"during", timeout_s=TIMEOUT_S) == b"during"
                    peaks.append(resident_bytes(pid))
            await wait_until(
                lambda: resident_bytes(pid) < peaks[0] + 24 * MIB,
                timeout_s=TIMEOUT_S,
                what=lambda: f"memory to go back: before={peaks[0]} peak={max(peaks)} now={resident_bytes(pid)}",
            )

            assert max(peaks) < peaks[0] + 32 * MIB + 96 * MIB  # and what one batch of deliveries makes of it
            assert all("egress" in event["reason"] for event in leader.events("egress.dropped"))
            assert honest.leader_member_id == leader.member_id


async def test_client_that_is_cut_off_knows_why_and_loses_no_reply(data_dir: Path) -> None:
    """The reply waited behind what was dropped: it was kept, and comes on the next connection."""
    settings = {**STEADY, **FLOODABLE, "egress_limit_bytes": str(128 * MIB)}
    async with SystemCluster(data_dir, settings=settings) as cluster:
        leader = cluster.members[(await cluster.wait_for_leader()).leader_member_id]
        config = ClientConfig(endpoints=tuple(cluster.endpoints), connect_timeout_s=TIMEOUT_S, egress_queue_limit=1)
        async with ClusterClient.connect([], config=config) as slow:
            for sequence in (1, 2):
                slow.try_offer(REQUEST.pack(sequence) + FLOOD)
            asking = asyncio.create_task(slow.request(REQUEST.pack(1) + b"kept", timeout_s=TIMEOUT_S))
            await asyncio.sleep(0)
            slow.try_offer(REQUEST.pack(3) + FLOOD)
            await leader.wait_for_event("egress.dropped", session_id=slow.cluster_session_id)

            draining = asyncio.create_task(_read_all(slow))
            reply = await asking
            draining.cancel()
            reason = await _first_disconnection(slow)

            assert reply
            assert "too much egress waits for this connection" in reason
            assert not slow.is_closed
