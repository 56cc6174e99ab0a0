"""The example with workers on the ready-made services, while leaders and workers die."""

from __future__ import annotations

import asyncio

import pytest

from examples.workers import ORDER_COUNT, Worker
from trimaran.client.ready_made import KvClient, LocksClient, QueueClient
from trimaran.cluster.testing import MemoryCluster
from trimaran.service_api.ready_made.kv import KvService
from trimaran.service_api.ready_made.locks import LockService
from trimaran.service_api.ready_made.queue import QueueService


@pytest.mark.parametrize("seed", range(3))
def test_each_order_is_counted_once_while_leaders_and_workers_die(seed: int) -> None:
    with MemoryCluster([QueueService, KvService, LockService], seed=seed) as cluster:

        async def work() -> int:
            async with (
                QueueClient(await cluster.connect()) as queues,
                KvClient(await cluster.connect()) as kv,
                LocksClient(await cluster.connect()) as locks,
            ):
                return await Worker(queues, kv, locks).run()

        async def test() -> None:
            async with asyncio.timeout(300), asyncio.TaskGroup() as tasks:
                planner = tasks.create_task(work())
                await cluster.advance(0.3)
                others = [tasks.create_task(work()) for _ in range(2)]
                await cluster.advance(0.3)
                planner.cancel()  # it holds the lock, and jobs
                await cluster.restart(cluster.kill_leader())
            expected = ORDER_COUNT * (ORDER_COUNT + 1) // 2
            assert [other.result() for other in others] == [expected] * 2
            await cluster.assert_identical()

        cluster.run(test())
