"""What type checkers see of blocking clients, by their stubs: mypy reads it with all tests.

Each line that must be refused says so; a checker that takes it complains of the comment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_type

from trimaran import SyncClusterClient, SyncGroupedClient, SyncSessionPool, SyncSharedConnection
from trimaran.client.ready_made import (
    SyncHeldLock,
    SyncKvClient,
    SyncKvTransaction,
    SyncKvWatch,
    SyncLocksClient,
    SyncQueueClient,
    SyncQueueJob,
)
from trimaran.cluster.subscriptions import SyncSubscription, subscribe_blocking
from trimaran.service_api.ready_made.kv import KvChange, KvEntry


def right(kv: SyncKvClient, locks: SyncLocksClient, queues: SyncQueueClient, groups: SyncGroupedClient) -> None:
    assert_type(kv.get("a", timeout_s=None), bytes | None)
    assert_type(kv.scan("a"), Iterator[KvEntry])
    assert_type(kv.cluster, SyncClusterClient)
    with kv.transaction() as txn, kv.watch("a") as watch, locks.lock("a") as lock:
        assert_type(txn, SyncKvTransaction)
        assert_type(watch, SyncKvWatch)
        assert_type(next(watch), KvChange)
        assert_type(lock, SyncHeldLock)
        assert_type(lock.lost.wait(timeout_s=None), bool)
    assert_type(queues.receive("mail"), list[SyncQueueJob])
    assert_type(groups.typed_for_key("a", SyncKvClient), SyncKvClient)
    with SyncSharedConnection.connect("127.0.0.1:9000") as shared, shared.open_session(client_info="a") as cluster:
        assert_type(cluster, SyncClusterClient)
        assert_type(SyncQueueClient.over(cluster), SyncQueueClient)
        assert_type(shared.open_client(SyncKvClient, client_info="b"), SyncKvClient)
    with SyncSessionPool.connect("127.0.0.1:9000", size=2) as pool, pool.client(SyncKvClient) as lent:
        assert_type(lent, SyncKvClient)
        assert_type(pool.shared, SyncSharedConnection)
        with pool.session(timeout_s=None) as session:
            assert_type(session, SyncClusterClient)
    assert_type(subscribe_blocking(["127.0.0.1:9001"], from_position=0), SyncSubscription)


def wrong(kv: SyncKvClient, queues: SyncQueueClient) -> None:
    kv.put("a")  # type: ignore[call-arg]
    kv.get("a", timeout=None)  # type: ignore[call-arg]
    kv.aclose()  # type: ignore[attr-defined]
    queues.work("mail", print)  # type: ignore[attr-defined]
    subscribe_blocking(["127.0.0.1:9001"], from_positoin=0)  # type: ignore[call-arg]
    SyncClusterClient.connect(endpoint="127.0.0.1:9000")  # type: ignore[call-arg]
