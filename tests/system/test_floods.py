"""Hostile clients in numbers against real members: memory stays bounded and goes back, honest clients are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.system.append_list import FLOOD, REQUEST
from tests.system.cluster_process import STEADY, TIMEOUT_S, SystemCluster
from tests.waiting import let_pass, patient, slowness, wait_until
from trimaran.benchmarks.load.hostile_clients import FLOODS, Flood, NeverReadingFlood, SilentFlood
from trimaran.benchmarks.rig.member_status import consensus_endpoint, wait_for_status
from trimaran.benchmarks.rig.processes import ManagedProcess, ProcessGroup
from trimaran.benchmarks.rig.resident import resident_bytes
from trimaran.benchmarks.services import FAN_OUT_SERVICE
from trimaran.client import ClientConfig, ClusterClient
from trimaran.client.connection_events import Disconnected
from trimaran.cluster.documents.query import query_status

pytestmark = pytest.mark.slow

MIB = 1 << 20
DESCRIPTORS = 192
"""Open files that a member is allowed where they are to run out."""
FLOODABLE = {"term_length_bytes": "1048576", "segment_length_bytes": "1048576", "mtu_length_bytes": "65504"}
"""Terms in which the answers of a flood, 64 KiB each, are allowed."""


class _FewDescriptors(ProcessGroup):
    """Starts members as an operator does who has not raised the limit of open files."""

    def spawn(self, name: str, arguments: Sequence[str], **options: Any) -> ManagedProcess:
        limited = ("/bin/sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *arguments)
        return super().spawn(name, limited, **options)


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
        async with ClusterClient.connect(cluster.endpoints, connect_timeout_s=patient(TIMEOUT_S)) as honest:
            await honest.request(b"before")
            pid, peaks = leader.process.pid, [resident_bytes(leader.process.pid)]
            async with _running(flood):
                await leader.wait_for_event("egress.dropped")
                for _ in range(100):
                    assert await honest.request(b"during", timeout_s=patient(TIMEOUT_S)) == b"during"
                    peaks.append(resident_bytes(pid))
            await wait_until(
                lambda: resident_bytes(pid) < peaks[0] + 24 * MIB,
                timeout_s=TIMEOUT_S,
                what=lambda: f"memory to go back: before={peaks[0]} peak={max(peaks)} now={resident_bytes(pid)}",
            )

            assert max(peaks) < peaks[0] + 32 * MIB + 96 * MIB  # and what one batch of deliveries makes of it
            assert all("egress" in event["reason"] for event in leader.events("egress.dropped"))
            assert honest.leader_member_id == leader.member_id


async def _ask_amid_a_flood(client: ClusterClient) -> bytes:
    """Send a request between messages that bring a flood back, all in one write.

    The leader reads no more of a client whose egress waits: what came after the first flood would stay in the socket.
    """
    asyncio.get_running_loop().call_soon(client.try_offer, REQUEST.pack(3) + FLOOD)  # before the write of this turn
    for sequence in (1, 2):
        client.try_offer(REQUEST.pack(sequence) + FLOOD)
    return await client.request(REQUEST.pack(1) + b"kept", timeout_s=patient(TIMEOUT_S))


async def test_client_that_is_cut_off_knows_why_and_loses_no_reply(data_dir: Path) -> None:
    """The reply waited behind what was dropped: it was kept, and comes on the next connection."""
    settings = {**STEADY, **FLOODABLE, "egress_limit_bytes": str(128 * MIB)}
    async with SystemCluster(data_dir, settings=settings) as cluster:
        leader = cluster.members[(await cluster.wait_for_leader()).leader_member_id]
        config = ClientConfig(
            endpoints=tuple(cluster.endpoints), connect_timeout_s=patient(TIMEOUT_S), egress_queue_limit=1
        )
        async with ClusterClient.connect([], config=config) as slow:
            asking = asyncio.create_task(_ask_amid_a_flood(slow))
            await leader.wait_for_event("egress.dropped", session_id=slow.cluster_session_id)

            draining = asyncio.create_task(_read_all(slow))
            reply = await asking
            draining.cancel()
            reason = await _first_disconnection(slow)

            assert reply
            assert "egress waits" in reason
            assert not slow.is_closed


@pytest.mark.parametrize("kind", ["silent", "dribble", "never-finish", "never-finish-in-session"])
async def test_connections_that_never_become_anybody_s_cost_little_and_are_dropped(data_dir: Path, kind: str) -> None:
    """Issue 20 §3: 60 connections with an unfinished message of up to 16 MiB, which had no deadline, took 1 GB."""
    settings = {
        **STEADY,
        "unfinished_limit_bytes": str(16 * MIB),
        "setup_timeout_ms": "500",
        "session_open_timeout_ms": "1000",
    }
    async with SystemCluster(data_dir, settings=settings, service=FAN_OUT_SERVICE) as cluster:
        leader = cluster.members[(await cluster.wait_for_leader()).leader_member_id]
        flood = FLOODS[kind](cluster.endpoints[leader.member_id], count=40)
        async with ClusterClient.connect(cluster.endpoints, connect_timeout_s=patient(TIMEOUT_S)) as honest:
            await honest.request(b"before")
            pid, peaks = leader.process.pid, [resident_bytes(leader.process.pid)]
            async with _running(flood):
                await wait_until(
                    lambda: flood.counts.dropped_count >= 40, timeout_s=TIMEOUT_S, what=lambda: f"drops: {flood!r}"
                )
                for _ in range(50):
                    assert await honest.request(b"during", timeout_s=patient(TIMEOUT_S)) == b"during"
                    peaks.append(resident_bytes(pid))

            assert max(peaks) < peaks[0] + 64 * MIB
            assert honest.leader_member_id == leader.member_id
            reasons = [*leader.events("connection.refused"), *leader.events("ingress.refused")]
            assert reasons
            assert all(event["reason"] for event in reasons)


async def test_clients_that_keep_a_warm_connection_to_every_member_survive_all_deadlines(data_dir: Path) -> None:
    """A follower binds nothing on it, but sees by the token that its session is open: it stays, however idle."""
    timeout_s = slowness()  # one second of a quiet machine
    timeout_ms = str(round(1_000 * timeout_s))
    settings = {**STEADY, "setup_timeout_ms": timeout_ms, "session_open_timeout_ms": timeout_ms}
    async with SystemCluster(data_dir, settings=settings, service=FAN_OUT_SERVICE) as cluster:
        await cluster.wait_for_leader()
        async with ClusterClient.connect(cluster.endpoints, connect_timeout_s=patient(TIMEOUT_S)) as idle:
            await idle.request(b"open")
            opened_count = idle._conductor.protocol.events.total_count
            await let_pass(4 * timeout_s)  # several times the deadlines, and looks at who is needed
            await idle.request(b"still there")

            news = idle._conductor.protocol.events
            later = [news.event(number) for number in range(opened_count, news.total_count)]
            assert [event for event in later if isinstance(event, Disconnected)] == []


async def test_idle_clients_that_use_up_descriptors_lock_out_neither_members_nor_operators(data_dir: Path) -> None:
    """Issue 20 §3: with all of them used up status did not answer, and a restarted follower could not rejoin."""
    settings = {**STEADY, "setup_timeout_ms": "600000"}
    cluster = SystemCluster(data_dir, settings=settings, service=FAN_OUT_SERVICE)
    cluster.processes.group = _FewDescriptors()
    async with cluster:
        leader_id = (await cluster.wait_for_leader()).leader_member_id
        follower_id = next(member_id for member_id in cluster.members if member_id != leader_id)
        async with ClusterClient.connect(cluster.endpoints, connect_timeout_s=patient(TIMEOUT_S)) as honest:
            flood = SilentFlood(cluster.endpoints[leader_id], count=DESCRIPTORS)
            async with _running(flood):
                await wait_until(
                    lambda: flood.counts.dropped_count > DESCRIPTORS,
                    timeout_s=TIMEOUT_S,
                    what=lambda: f"drops: {flood!r}",
                )
                status = await query_status(consensus_endpoint(cluster.processes, leader_id), patient(TIMEOUT_S))
                assert status.state == "LEADER"
                cluster.members[follower_id].kill()
                cluster.start(follower_id)
                await wait_for_status(
                    cluster.processes,
                    follower_id,
                    lambda status: status.state == "FOLLOWER",
                    time_limit_s=patient(TIMEOUT_S),
                )
                assert await honest.request(b"during", timeout_s=patient(TIMEOUT_S)) == b"during"
                async with ClusterClient.connect(cluster.endpoints, connect_timeout_s=patient(TIMEOUT_S)) as newcomer:
                    assert await newcomer.request(b"new", timeout_s=patient(TIMEOUT_S)) == b"new"
