"""Clients of the services that are ready to run, for code without asyncio.

with SyncQueueClient.connect(["127.0.0.1:9000"]) as queues:
    for job in queues.consume("mail"):
        deliver(job.body)
        job.ack()

Written by `python -m tests.blocking_stubs`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Self, Unpack

from ...service_api.ready_made.counters.messages import AdmissionAnswer, Counted, RateLimit
from ...service_api.ready_made.kv.messages import KvChange, KvCompare, KvEntry, KvOperation, TransactionAnswer
from ...service_api.ready_made.locks.messages import ClaimState, LockHolder, LockState, LockSummary
from ...service_api.ready_made.queue.messages import (
    DeadMessage,
    MessageState,
    QueueSchedule,
    QueueSettings,
    QueueStats,
    ReceivedMessage,
)
from ..blocking.facade import Blocking, BlockingEvent, BlockingIterator, BlockingScope
from ..config import ConnectSettings
from ..typed.sync_typed_client import SyncTypedClient
from .kv import Text

class SyncCountersClient(SyncTypedClient):
    """Counters and rate limits, for code without asyncio."""

    @classmethod
    def connect(cls, endpoints: str | Sequence[str] = (), **settings: Unpack[ConnectSettings]) -> Self:
        """Open the client. Arguments and errors are those of `CountersClient.connect`.

        Functions that you pass are called in the client's own thread.
        """

    def add(
        self,
        name: str,
        amount: int = 1,
        *,
        minimum: int | None = None,
        maximum: int | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Add to a counter, and give its value.

        See `CountersClient.add`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def add_many(self, amounts: Mapping[str, int], *, timeout_s: float | None = None) -> list[int]:
        """Add to counters in one call, in their order, each as `add` does; gives their values.

        See `CountersClient.add_many`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def set(self, name: str, value: int, *, expected: int | None = None, timeout_s: float | None = None) -> int:
        """Set a counter; with `expected` only if it has that value.

        See `CountersClient.set`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def get(self, name: str, *, max_staleness_s: float | None = None, timeout_s: float | None = None) -> int:
        """Give a counter's value; 0 if it was never set. With `max_staleness_s` a follower may answer.

        See `CountersClient.get`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def delete(self, name: str, *, timeout_s: float | None = None) -> bool:
        """Forget a counter; False if there is none.

        See `CountersClient.delete`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def scan(self, prefix: str = "", *, timeout_s: float | None = None) -> Iterator[Counted]:
        """Iterate over the counters of a prefix by name, page by page; each page is of one moment.

        See `CountersClient.scan`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def define_limit(
        self, name: str, count: int, period_s: float, *, burst: int | None = None, timeout_s: float | None = None
    ) -> RateLimit:
        """Define a rate limit, or change it: `count` in `period_s` for each key, `burst` (`count`) at once.

        See `CountersClient.define_limit`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def delete_limit(self, name: str, *, timeout_s: float | None = None) -> bool:
        """Forget a rate limit; False if there is none.

        See `CountersClient.delete_limit`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def limits(self, *, timeout_s: float | None = None) -> list[RateLimit]:
        """Give all rate limits by name.

        See `CountersClient.limits`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def admit(self, limit: str, key: str, cost: int = 1, *, timeout_s: float | None = None) -> AdmissionAnswer:
        """Ask whether `cost` more may pass under a limit for a key. If so they count; cost 0 only looks.

        See `CountersClient.admit`. Raises ClusterTimeoutError after `timeout_s`.
        """

class SyncKvTransaction(BlockingScope):
    """Reads, and writes that are done together when the block ends, if what was read is still so.

    with kv.transaction() as txn:
        balance = int(txn.get("balance") or 0)
        txn.put("balance", str(balance - 5))

    Raises:
        KvConflictError: at the end of the block: a key that was read has changed. Nothing was written; begin again.
    """

    @property
    def revision(self) -> int:
        """As `KvTransaction.revision`."""

    def get(self, key: Text, *, timeout_s: float | None = None) -> bytes | None:
        """Read a key as it was before the transaction; None if there is none.

        See `KvTransaction.get`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def put(self, key: Text, value: Text, *, ttl_s: float | None = None) -> None:
        """Write a key at the end of the block.

        See `KvTransaction.put`.
        """

    def delete(self, key: Text) -> None:
        """Delete a key at the end of the block.

        See `KvTransaction.delete`.
        """

class SyncKvWatch(BlockingScope, BlockingIterator[KvChange]):
    """The changes of a range, each once and in order: `SyncKvClient.watch` gives it.

    with kv.watch(prefix="jobs/") as changes:
        for change in changes:
            print(change.revision, change.key, change.value)

    Without `with` the watch begins when you first wait for a change, and ends with the session.
    """

class SyncKvClient(SyncTypedClient):
    """A key-value store, for code without asyncio."""

    @classmethod
    def connect(cls, endpoints: str | Sequence[str] = (), **settings: Unpack[ConnectSettings]) -> Self:
        """Open the client. Arguments and errors are those of `KvClient.connect`.

        Functions that you pass are called in the client's own thread.
        """

    def put(
        self,
        key: Text,
        value: Text,
        *,
        expected_revision: int | None = None,
        ttl_s: float | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Write a key, and give the revision.

        See `KvClient.put`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def put_many(
        self, values: Mapping[Text, Text], *, ttl_s: float | None = None, timeout_s: float | None = None
    ) -> list[int]:
        """Write keys in one call, in their order, each as `put` does; gives the revisions.

        See `KvClient.put_many`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def get(self, key: Text, *, max_staleness_s: float | None = None, timeout_s: float | None = None) -> bytes | None:
        """Give a key's value, None if there is none. With `max_staleness_s` a follower may answer.

        See `KvClient.get`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def entry(
        self, key: Text, *, max_staleness_s: float | None = None, timeout_s: float | None = None
    ) -> KvEntry | None:
        """Give a key with its value, revisions and TTL; otherwise as `get`.

        See `KvClient.entry`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def delete(self, key: Text, *, expected_revision: int | None = None, timeout_s: float | None = None) -> bool:
        """Delete a key; False if there is none. `expected_revision` is that of `put`.

        See `KvClient.delete`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def delete_range(self, begin: Text, end: Text = b"", *, timeout_s: float | None = None) -> int:
        """Delete the keys from `begin` to before `end`; gives how many. `key_range` makes a range of a prefix.

        See `KvClient.delete_range`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def cas(self, key: Text, expected: Text | None, value: Text, *, timeout_s: float | None = None) -> bool:
        """Write a key if it has the value `expected`; None: if there is no such key. False if it has another.

        See `KvClient.cas`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def scan(
        self,
        prefix: Text = b"",
        *,
        begin: Text | None = None,
        end: Text = b"",
        max_staleness_s: float | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[KvEntry]:
        """Iterate over a prefix, or from `begin` to before `end`, in the order of keys; each page is of one moment.

        See `KvClient.scan`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def txn(
        self,
        compare: Sequence[KvCompare] = (),
        success: Sequence[KvOperation] = (),
        failure: Sequence[KvOperation] = (),
        *,
        timeout_s: float | None = None,
    ) -> TransactionAnswer:
        """Compare, then do `success` if all hold, otherwise `failure`: all of it, or nothing if it raises.

        See `KvClient.txn`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def transaction(self) -> SyncKvTransaction:
        """Begin a transaction that reads, decides here, and writes at its end; see `KvTransaction`.

        See `KvClient.transaction`.
        """

    def watch(
        self,
        key: Text | None = None,
        *,
        prefix: Text = b"",
        begin: Text | None = None,
        end: Text = b"",
        from_revision: int | None = None,
    ) -> SyncKvWatch:
        """Watch a key, a prefix, or from `begin` to before `end`; with neither, all keys.

        See `KvClient.watch`.
        """

class SyncHeldLock(Blocking):
    """A lock that a blocking client has, or had: `lost` says that it ended without a release.

    The client's thread renews its lease, also while the program does something else.
    """

    @property
    def name(self) -> str:
        """As `HeldLock.name`."""

    @property
    def token(self) -> int:
        """As `HeldLock.token`."""

    @property
    def lost(self) -> BlockingEvent:
        """As `HeldLock.lost`."""

    def release(self, *, timeout_s: float | None = None) -> bool:
        """Give the lock back; False if it was lost. It waits for a leader; a cancel gives up the answer only.

        See `HeldLock.release`. Raises ClusterTimeoutError after `timeout_s`.
        """

class SyncLeading(SyncHeldLock):
    """An election that a blocking client has won: `lost` says that it does not lead any more."""

    def resign(self, *, timeout_s: float | None = None) -> bool:
        """Lead no longer; False if it was lost before.

        See `Leading.resign`. Raises ClusterTimeoutError after `timeout_s`.
        """

class SyncLocksClient(SyncTypedClient):
    """Locks, for code without asyncio."""

    @classmethod
    def connect(cls, endpoints: str | Sequence[str] = (), **settings: Unpack[ConnectSettings]) -> Self:
        """Open the client. Arguments and errors are those of `LocksClient.connect`.

        Functions that you pass are called in the client's own thread.
        """

    def lock(
        self,
        name: str,
        *,
        shared: bool = False,
        timeout_s: float | None = None,
        lease_s: float | None = None,
        value: str | bytes = b"",
    ) -> AbstractContextManager[SyncHeldLock]:
        """Hold a lock within an `async with`; the arguments are those of `acquire`.

        See `LocksClient.lock`.
        """

    def acquire(
        self,
        name: str,
        *,
        shared: bool = False,
        timeout_s: float | None = None,
        lease_s: float | None = None,
        value: str | bytes = b"",
    ) -> SyncHeldLock:
        """Wait for a lock, and take it. `value` is what others see of its holder.

        See `LocksClient.acquire`.
        """

    def try_acquire(
        self,
        name: str,
        *,
        shared: bool = False,
        lease_s: float | None = None,
        value: str | bytes = b"",
        timeout_s: float | None = None,
    ) -> SyncHeldLock | None:
        """Take a lock if it is free now; None if not.

        See `LocksClient.try_acquire`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def inspect(self, name: str, *, max_staleness_s: float | None = None, timeout_s: float | None = None) -> LockState:
        """Say who holds a lock and who waits for it.

        See `LocksClient.inspect`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def scan(self, prefix: str = "", *, timeout_s: float | None = None) -> Iterator[LockSummary]:
        """Iterate over the locks held of a prefix by name, page by page; each page is of one moment.

        See `LocksClient.scan`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def claim_state(self, number: int, *, timeout_s: float | None = None) -> ClaimState:
        """Say how a claim of this session stands.

        See `LocksClient.claim_state`. Raises ClusterTimeoutError after `timeout_s`.
        """

class SyncElectionClient(SyncLocksClient):
    """Leader election, for code without asyncio."""

    @classmethod
    def connect(cls, endpoints: str | Sequence[str] = (), **settings: Unpack[ConnectSettings]) -> Self:
        """Open the client. Arguments and errors are those of `ElectionClient.connect`.

        Functions that you pass are called in the client's own thread.
        """

    def campaign(
        self, name: str, *, value: str | bytes = b"", timeout_s: float | None = None, lease_s: float | None = None
    ) -> SyncLeading:
        """Wait until this session leads. `value` is what others see of the leader.

        See `ElectionClient.campaign`.
        """

    def leader(
        self, name: str, *, max_staleness_s: float | None = None, timeout_s: float | None = None
    ) -> LockHolder | None:
        """Say who leads: with a value and a token; None if nobody does.

        See `ElectionClient.leader`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def observe(self, name: str, *, interval_s: float = 1.0, timeout_s: float | None = None) -> Iterator[LockHolder]:
        """Iterate over leaders, each once, beginning with the present one. One that leads between two looks is missed.

        See `ElectionClient.observe`. Raises ClusterTimeoutError after `timeout_s`.
        """

class SyncQueueJob(Blocking):
    """A message that is leased to a blocking client. It is settled by `ack` or `nack`, or when its lease ends."""

    @property
    def message(self) -> ReceivedMessage:
        """As `QueueJob.message`."""

    @property
    def lease_s(self) -> float:
        """As `QueueJob.lease_s`."""

    @property
    def ends_s(self) -> float:
        """As `QueueJob.ends_s`."""

    @property
    def is_settled(self) -> bool:
        """As `QueueJob.is_settled`."""

    @property
    def id(self) -> int:
        """The id of the message: the same for each delivery."""

    @property
    def body(self) -> bytes:
        """The bytes that were sent."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers that were sent beside it."""

    @property
    def delivery_count(self) -> int:
        """Which delivery this is, from 1."""

    @property
    def is_over(self) -> bool:
        """Whether it is settled, or its lease has ended by the clock of the loop."""

    def ack(self, *, timeout_s: float | None = None) -> None:
        """The job is done: remove the message.

        See `QueueJob.ack`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def nack(self, delay_s: float | None = None, *, reason: str = "", timeout_s: float | None = None) -> MessageState:
        """The job has failed: deliver the message again after `delay_s`, by default after the queue's back-off.

        See `QueueJob.nack`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def give_back(self, *, timeout_s: float | None = None) -> None:
        """Make the message ready as if it had not been delivered; `StaleReceiptError` as for `ack`.

        See `QueueJob.give_back`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def extend(self, lease_s: float | None = None, *, timeout_s: float | None = None) -> None:
        """Have the lease end `lease_s` from now, by default as long as it was; `StaleReceiptError` as for `ack`.

        See `QueueJob.extend`.
        """

class SyncQueueClient(SyncTypedClient):
    """Queues and schedules, for code without asyncio: `consume` in a thread is what `work` is with asyncio."""

    @classmethod
    def connect(cls, endpoints: str | Sequence[str] = (), **settings: Unpack[ConnectSettings]) -> Self:
        """Open the client. Arguments and errors are those of `QueueClient.connect`.

        Functions that you pass are called in the client's own thread.
        """

    def send(
        self,
        queue: str,
        body: str | bytes,
        *,
        delay_s: float = 0.0,
        priority: int = 0,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Put a message into a queue, and give its id.

        See `QueueClient.send`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def send_many(
        self,
        queue: str,
        bodies: Iterable[str | bytes],
        *,
        delay_s: float = 0.0,
        priority: int = 0,
        timeout_s: float | None = None,
    ) -> list[int]:
        """Put messages into a queue in one call, in their order, each as `send` does; gives their ids.

        See `QueueClient.send_many`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def receive(
        self,
        queue: str,
        *,
        limit: int = 1,
        lease_s: float = 30.0,
        wait_s: float = 0.0,
        with_session: bool = False,
        timeout_s: float | None = None,
    ) -> list[SyncQueueJob]:
        """Lease messages that are ready, `limit` at most; if none is, wait for one as long as `wait_s`.

        See `QueueClient.receive`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def consume(
        self,
        queue: str,
        *,
        concurrency: int = 1,
        lease_s: float = 30.0,
        with_session: bool = False,
        timeout_s: float | None = None,
    ) -> Iterator[SyncQueueJob]:
        """Iterate over jobs, without an end: at most `concurrency` that are not settled at a time.

        See `QueueClient.consume`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def ack(self, receipt: int, *, timeout_s: float | None = None) -> None:
        """As `QueueJob.ack`, by the receipt alone.

        See `QueueClient.ack`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def nack(
        self, receipt: int, delay_s: float | None = None, *, reason: str = "", timeout_s: float | None = None
    ) -> MessageState:
        """As `QueueJob.nack`, by the receipt alone.

        See `QueueClient.nack`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def define(self, queue: str, settings: QueueSettings, *, timeout_s: float | None = None) -> None:
        """Say how a queue works; `QueueError` if it cannot.

        See `QueueClient.define`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def delete_queue(self, queue: str, *, timeout_s: float | None = None) -> bool:
        """Forget how a queue works; False if it was not defined, `QueueError` if it has messages.

        See `QueueClient.delete_queue`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def settings(self, queue: str, *, timeout_s: float | None = None) -> QueueSettings:
        """Say how a queue works.

        See `QueueClient.settings`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def stats(self, queue: str, *, max_staleness_s: float | None = None, timeout_s: float | None = None) -> QueueStats:
        """Say what is in a queue. With `max_staleness_s` a follower may answer.

        See `QueueClient.stats`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def queues(self, prefix: str = "", *, timeout_s: float | None = None) -> Iterator[QueueStats]:
        """Iterate over queues that are defined or not empty, by name, page by page; each page is of one moment.

        See `QueueClient.queues`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def dead(self, queue: str, *, timeout_s: float | None = None) -> Iterator[DeadMessage]:
        """Iterate over the dead messages of a queue by id, page by page.

        See `QueueClient.dead`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def revive(self, queue: str, message_id: int, *, timeout_s: float | None = None) -> bool:
        """Make a dead message ready again; False if there is none of this id.

        See `QueueClient.revive`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def purge(self, queue: str, *states: MessageState, timeout_s: float | None = None) -> int:
        """Remove messages that are in some states, by default ready and delayed ones, and give how many.

        See `QueueClient.purge`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def schedule(
        self,
        name: str,
        queue: str,
        body: str | bytes,
        *,
        cron: str = "",
        at: datetime | None = None,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> QueueSchedule:
        """Have a message sent at the times of a cron line, in UTC, or once `at` a time. It replaces one of this name.

        See `QueueClient.schedule`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def unschedule(self, name: str, *, timeout_s: float | None = None) -> bool:
        """Forget a schedule; False if there is none.

        See `QueueClient.unschedule`. Raises ClusterTimeoutError after `timeout_s`.
        """

    def schedules(self, *, timeout_s: float | None = None) -> Iterator[QueueSchedule]:
        """Iterate over schedules by name.

        See `QueueClient.schedules`. Raises ClusterTimeoutError after `timeout_s`.
        """
