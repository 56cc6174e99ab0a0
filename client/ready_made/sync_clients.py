"""Clients of the services that are ready to run, for code without asyncio.

with SyncQueueClient.connect(["127.0.0.1:9000"]) as queues:
    for job in queues.consume("mail"):
        deliver(job.body)
        job.ack()
"""

from __future__ import annotations

from ...service_api.ready_made.kv import KvChange
from ..blocking.facade import Blocking, BlockingIterator, BlockingScope
from ..typed import SyncTypedClient
from .counters import CountersClient
from .kv import KvClient, KvTransaction
from .kv_watching import KvWatch
from .locks import ElectionClient, HeldLock, Leading, LocksClient
from .queue import QueueClient, QueueJob


class SyncCountersClient(SyncTypedClient, of=CountersClient):
    """Counters and rate limits, for code without asyncio."""


class SyncKvTransaction(BlockingScope, of=KvTransaction):
    """Reads, and writes that are done together when the block ends, if what was read is still so.

    with kv.transaction() as txn:
        balance = int(txn.get("balance") or 0)
        txn.put("balance", str(balance - 5))

    Raises:
        KvConflictError: at the end of the block: a key that was read has changed. Nothing was written; begin again.
    """

    _must_exit = True


class SyncKvWatch(BlockingScope, BlockingIterator[KvChange], of=KvWatch):
    """The changes of a range, each once and in order: `SyncKvClient.watch` gives it.

    with kv.watch(prefix="jobs/") as changes:
        for change in changes:
            print(change.revision, change.key, change.value)

    Without `with` the watch begins when you first wait for a change, and ends with the session.
    """


class SyncKvClient(SyncTypedClient, of=KvClient):
    """A key-value store, for code without asyncio."""


class SyncHeldLock(Blocking, of=HeldLock):
    """A lock that a blocking client has, or had: `lost` says that it ended without a release.

    The client's thread renews its lease, also while the program does something else.
    """


class SyncLeading(SyncHeldLock, of=Leading):
    """An election that a blocking client has won: `lost` says that it does not lead any more."""


class SyncLocksClient(SyncTypedClient, of=LocksClient, without=("begin_release",)):
    """Locks, for code without asyncio."""


class SyncElectionClient(SyncLocksClient, of=ElectionClient, without=("begin_release",)):
    """Leader election, for code without asyncio."""


class SyncQueueJob(Blocking, of=QueueJob, without=("call_when_settled",)):
    """A message that is leased to a blocking client. It is settled by `ack` or `nack`, or when its lease ends."""


class SyncQueueClient(SyncTypedClient, of=QueueClient, without=("work",)):
    """Queues and schedules, for code without asyncio: `consume` in a thread is what `work` is with asyncio."""
