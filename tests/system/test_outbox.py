"""The outbox of real processes: the leader is killed while its effects are done."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.system.cluster_process import SystemCluster
from tests.waiting import patient
from trimaran.client import ClusterClient
from trimaran.client.outbox_worker import OutboxWorker
from trimaran.service_api.outbox import PendingEffect

pytestmark = pytest.mark.slow

SERVICE = "tests.unit.client.outbox.plain_shop:Shop"
ORDER_COUNT = 60


async def test_effects_happen_while_leaders_and_workers_are_killed(data_dir: Path) -> None:
    done: list[PendingEffect[bytes]] = []
    async with SystemCluster(data_dir, service=SERVICE) as cluster:
        leadership = await cluster.wait_for_leader()
        async with ClusterClient.connect(cluster.endpoints) as client:
            for number in range(0, 2 * ORDER_COUNT, 2):
                await client.request(b"%d" % number, timeout_s=patient(60))

        async def handle(effect: PendingEffect[bytes]) -> None:
            done.append(effect)
            if len(done) == 20:
                cluster.members[leadership.leader_member_id].kill()
            if len(done) == 40:
                raise asyncio.CancelledError  # the worker ends in the middle of a round

        for _ in range(2):
            async with ClusterClient.connect(cluster.endpoints) as client:
                with contextlib.suppress(asyncio.CancelledError):
                    while await OutboxWorker(client, handle, timeout_s=patient(60)).run_once():
                        pass
        cluster.start(leadership.leader_member_id)
        await cluster.wait_for_leader()

    payloads = list(dict.fromkeys(effect.payload for effect in done))
    assert payloads == [b"deliver %d" % number for number in range(0, 2 * ORDER_COUNT, 2)]
    assert len({effect.key for effect in done}) == ORDER_COUNT
