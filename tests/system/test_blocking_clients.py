"""The blocking clients of the ready-made services and of a shared connection, with a real member."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from tests.system.cluster_process import SystemCluster
from tests.waiting import patient
from trimaran.client import ClientConfig, SyncSessionPool, SyncSharedConnection
from trimaran.client.ready_made import (
    LockTimeoutError,
    SyncCountersClient,
    SyncElectionClient,
    SyncHeldLock,
    SyncKvClient,
    SyncLocksClient,
    SyncQueueClient,
)
from trimaran.service_api.errors import SessionClosedError
from trimaran.service_api.ready_made import READY_MADE
from trimaran.service_api.ready_made.kv import KvConflictError
from trimaran.service_api.ready_made.queue import MessageState, StaleReceiptError

DEADLINE_S = 30.0
SERVICES = ",".join(READY_MADE[name].target for name in ("kv", "locks", "queue", "counters"))

pytestmark = pytest.mark.slow


async def test_scripts_use_every_service_that_is_ready_to_run(data_dir: Path) -> None:
    async with SystemCluster(data_dir, member_count=1, service=SERVICES) as cluster:
        await cluster.wait_for_leader()
        config = ClientConfig(endpoints=tuple(cluster.endpoints), connect_timeout_s=patient(DEADLINE_S))
        for use in (use_keys, use_locks, use_queues, use_counters, share_a_connection, use_a_pool):
            await asyncio.to_thread(use, config)


def use_keys(config: ClientConfig) -> None:
    with SyncKvClient.connect(config=config) as kv, ThreadPoolExecutor(1) as pool:
        with kv.watch(prefix="jobs/") as changes:
            watching = pool.submit(lambda: [change.key for change in islice(changes, 50)])
            for number in range(50):
                kv.put(f"jobs/{number:03}", "waiting", timeout_s=patient(DEADLINE_S))
            keys = [b"jobs/%03d" % number for number in range(50)]
            assert watching.result(patient(DEADLINE_S)) == keys
        assert [entry.key for entry in kv.scan("jobs/", timeout_s=patient(DEADLINE_S))] == keys

        with kv.transaction() as txn:
            txn.put("balance", str(int(txn.get("balance") or 0) + 5))
        assert (kv.get("balance"), txn.revision) == (b"5", 51)
        with pytest.raises(KvConflictError, match="balance"):
            write_between(kv)
        with pytest.raises(SessionClosedError):
            close_between(kv)


def write_between(kv: SyncKvClient) -> None:
    with kv.transaction() as txn:
        txn.get("balance")
        kv.put("balance", "6")
        txn.put("balance", "7")


def close_between(kv: SyncKvClient) -> None:
    with kv.transaction() as txn:
        txn.put("balance", "8")
        kv.close()


def use_locks(config: ClientConfig) -> None:
    with SyncLocksClient.connect(config=config) as locks, SyncElectionClient.connect(config=config) as election:
        with locks.lock("a", value="one", lease_s=patient(DEADLINE_S)) as lock, ThreadPoolExecutor(1) as pool:
            assert isinstance(lock, SyncHeldLock)
            assert ([each.token for each in locks.scan()], lock.lost.is_set()) == ([lock.token], False)
            assert election.try_acquire("a") is None
            with pytest.raises(LockTimeoutError, match="lock='a'"):
                election.acquire("a", timeout_s=0.01)
            waiting = pool.submit(election.acquire, "a")
            assert lock.release()
            held = waiting.result(patient(DEADLINE_S))
        assert held.token > lock.token
        leading = election.campaign("leader", value="two")
        assert next(election.observe("leader")).value == b"two"
        assert leading.resign()
        with locks.lock("b"):
            locks.close()


def use_queues(config: ClientConfig) -> None:
    with SyncQueueClient.connect(config=config) as queues, ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(queues.receive, "mail", wait_s=patient(DEADLINE_S))
        first_id = queues.send("mail", "to: ann")
        (job,) = receiving.result(patient(DEADLINE_S))
        assert (job.id, job.body, job.is_over) == (first_id, b"to: ann", False)
        job.extend(60)
        job.ack()
        assert job.is_settled
        with pytest.raises(StaleReceiptError):
            job.ack()

        for number in range(3):
            queues.send("mail", str(number))
        jobs = queues.consume("mail", concurrency=2)
        for number in range(3):
            job = next(jobs)
            assert job.body == b"%d" % number
            job.ack()
        assert [stats.ready for stats in queues.queues()] in ([], [0])
        queues.send("mail", "rest")
        assert queues.purge("mail", MessageState.READY) == 1


def use_counters(config: ClientConfig) -> None:
    with SyncCountersClient.connect(config=config) as counters:
        assert (counters.add("visits", 5), counters.add("visits")) == (5, 6)
        assert [(each.name, each.value) for each in counters.scan()] == [("visits", 6)]


def share_a_connection(config: ClientConfig) -> None:
    with SyncSharedConnection.connect(config=config) as shared:
        with shared.open_session(client_info="user 1") as one, shared.open_session(client_info="user 2") as two:
            assert one.cluster_session_id != two.cluster_session_id
            counters, kv = SyncCountersClient.over(one), SyncKvClient.over(two)
            assert (counters.add("visits"), kv.get("balance")) == (7, b"6")
            assert counters.cluster is one
            assert shared.session_count == 2
        assert (one.is_closed, shared.session_count) == (True, 0)
        late = shared.open_session()
        with shared.open_client(SyncKvClient, client_info="user 3") as kv:
            assert (kv.get("balance"), shared.session_count) == (b"6", 2)
        assert shared.session_count == 1
    assert late.is_closed
    with pytest.raises(SessionClosedError):
        late.offer(b"1")
    late.close()


def use_a_pool(config: ClientConfig) -> None:
    """From many threads, with every service over one connection."""

    def use(number: int) -> None:
        with pool.client(SyncCountersClient) as counters:
            counters.add("lent")
        with pool.client(SyncKvClient) as kv, kv.watch(f"lent/{number}") as changes:
            kv.put(f"lent/{number}", "1")
            assert next(changes).value == b"1"
        with pool.client(SyncLocksClient) as locks, locks.lock("lent", timeout_s=patient(DEADLINE_S)):
            assert locks.inspect("lent").holders[0].session_id == locks.cluster.cluster_session_id

    with SyncSessionPool.connect(config=config, size=3) as pool, ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(use, number) for number in range(8)]:
            done.result(patient(DEADLINE_S))
        assert (pool.size, pool.idle_count, pool.shared.session_count) == (3, 3, 4)
        with pool.session() as cluster:
            assert SyncCountersClient.over(cluster).get("lent") == 8
            pool.close()
    with pytest.raises(SessionClosedError), pool.session():
        pass
