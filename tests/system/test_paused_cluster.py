"""A cluster that stands still as a whole, as under SIGSTOP or `docker pause`: nobody waits for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.system.cluster_process import TIMEOUT_S, SystemCluster
from tests.waiting import patient, within
from trimaran.client import RequestIndeterminateError
from trimaran.client.ready_made import KvClient, LocksClient
from trimaran.service_api.errors import ClusterError
from trimaran.service_api.ready_made.kv import PutKey

pytestmark = pytest.mark.slow

SERVICES = "trimaran.service_api.ready_made.locks:LockService,trimaran.service_api.ready_made.kv:KvService"
LEASE_S = 1.0
CALL_S = 0.5


def pause(cluster: SystemCluster) -> None:
    for member in cluster.members.values():
        member.pause()


def resume(cluster: SystemCluster) -> None:
    for member in cluster.members.values():
        member.resume()


async def test_calls_and_leases_end_while_every_member_stands_still(data_dir: Path) -> None:
    """Calls without a limit, `lost` of a lock and the ends of blocks waited for the cluster, without end."""
    async with SystemCluster(data_dir, service=SERVICES) as cluster:
        await cluster.wait_for_leader()
        limit_s = patient(TIMEOUT_S)
        async with (
            KvClient.connect(cluster.endpoints, connect_timeout_s=limit_s, reopen=True) as kv,
            LocksClient.connect(cluster.endpoints, connect_timeout_s=limit_s) as locks,
        ):
            await kv.put("before", "1")
            held = await locks.acquire("daily", lease_s=LEASE_S)
            pause(cluster)

            async with within(30.0):
                with pytest.raises(RequestIndeterminateError) as unknown:
                    await kv.call(PutKey(b"meanwhile", b"1"), timeout_s=CALL_S)
                await held.lost.wait()
                assert await held.release() is False

            resume(cluster)
            async with within(TIMEOUT_S):
                try:
                    await unknown.value.resolve()
                except ClusterError:
                    """Its session may have ended meanwhile; then nobody knows."""
                await kv.put("after", "1")
                entry = await kv.get("before")
            assert entry is not None


async def test_a_block_can_be_cancelled_while_every_member_stands_still(data_dir: Path) -> None:
    async with SystemCluster(data_dir, service=SERVICES) as cluster:
        await cluster.wait_for_leader()
        async with LocksClient.connect(cluster.endpoints, connect_timeout_s=patient(TIMEOUT_S)) as locks:
            entered = asyncio.Event()

            async def work() -> None:
                async with locks.lock("daily"):
                    entered.set()
                    await asyncio.Event().wait()

            working = asyncio.create_task(work())
            await entered.wait()
            pause(cluster)
            working.cancel()

            async with within(30.0):
                with pytest.raises(asyncio.CancelledError):
                    await working

            resume(cluster)
