"""The outbox of real processes: leaders and workers are killed while effects are done, and the page goes as it says."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from examples.tickets import Buy, CardProvider, Cashier, Charge, StatusOf
from tests.places import ROOT
from tests.system.cluster_process import SystemCluster
from tests.system.guide import run_guide
from tests.waiting import patient
from trimaran import Command, TypedClient
from trimaran.client import ClusterClient
from trimaran.client.outbox_worker import OutboxWorker
from trimaran.service_api.outbox import PendingEffect

pytestmark = pytest.mark.slow

SERVICE = "tests.unit.client.outbox.plain_shop:Shop"
ORDER_COUNT = 60


class WorkerDied(BaseException):
    """The worker's process has ended."""


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
                raise WorkerDied

        for _ in range(2):
            async with ClusterClient.connect(cluster.endpoints) as client:
                with contextlib.suppress(WorkerDied):
                    while await OutboxWorker(client, handle, timeout_s=patient(60)).run_once():
                        pass
        cluster.start(leadership.leader_member_id)
        await cluster.wait_for_leader()

    payloads = list(dict.fromkeys(effect.payload for effect in done))
    assert payloads == [b"deliver %d" % number for number in range(0, 2 * ORDER_COUNT, 2)]
    assert len({effect.key for effect in done}) == ORDER_COUNT


async def test_payments_are_made_once_while_leaders_and_workers_are_killed(data_dir: Path) -> None:
    provider, cashier, died = CardProvider(), Cashier(CardProvider()), list[int]()
    cashier.provider = provider
    async with SystemCluster(data_dir, service="examples.tickets:Tickets") as cluster:
        leadership = await cluster.wait_for_leader()

        async def charge(effect: PendingEffect[Charge]) -> Command[None]:
            result = await cashier.charge(effect)
            if effect.payload.seat == 10 and not died:
                died.append(10)
                cluster.members[leadership.leader_member_id].kill()
                raise WorkerDied  # charged, and nobody was told
            return result

        async with TypedClient.connect(cluster.endpoints) as buyer:
            for seat in range(30):
                await buyer.call(Buy(seat, f"card {seat}"), timeout_s=patient(60))
            for _ in range(2):
                async with ClusterClient.connect(cluster.endpoints) as client:
                    worker = OutboxWorker(client, charge, effect=Charge, concurrency=4, timeout_s=patient(60))
                    with contextlib.suppress(WorkerDied):
                        while await worker.run_once():
                            pass
            statuses = [await buyer.ask(StatusOf(seat), timeout_s=patient(60)) for seat in range(30)]

    assert sorted(statuses) == sorted(f"sold, {receipt}" for receipt in provider.receipts.values())
    assert len(provider.receipts) == 30


def test_the_page_goes_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    for step in run_guide(ROOT / "docs" / "calling-other-systems.md", tmp_path):
        step.check()
