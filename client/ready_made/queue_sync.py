"""The client of the queues for code without asyncio.

with SyncQueueClient(["127.0.0.1:9000"]) as queues:
    for job in queues.consume("mail"):
        deliver(job.body)
        job.ack()
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import datetime

from ...service_api.errors import ClusterTimeoutError
from ...service_api.ready_made.queue import (
    AckMessage,
    DeadMessage,
    DefineQueue,
    DeleteQueue,
    DeleteSchedule,
    EndWaiter,
    ExtendLease,
    ListDeadMessages,
    ListQueues,
    ListSchedules,
    MessageState,
    NackMessage,
    PurgeMessages,
    QueueSchedule,
    QueueSettings,
    QueueStats,
    ReadQueueSettings,
    ReadQueueStats,
    ReadWaiter,
    ReceivedMessage,
    ReceiveMessages,
    ReviveMessage,
)
from ...service_api.ready_made.queue.messages import DEFAULT_LEASE_S, QUEUE_PAGE_LIMIT
from ..typed import SyncTypedClient
from .queue_jobs import (
    CONSUME_WAIT_S,
    PURGE_PAGES,
    QUEUE_PAGE,
    QUEUE_POLL_S,
    WAITER_NUMBERS,
    LeasedJob,
    make_schedule,
    make_send,
)


class SyncQueueJob(LeasedJob):
    """A message that is leased to a blocking client."""

    def __init__(self, client: SyncQueueClient, message: ReceivedMessage, lease_s: float) -> None:
        super().__init__(message, lease_s)
        self._client = client

    def ack(self) -> None:
        """As `QueueJob.ack`."""
        self._client.ack(self.message.receipt)

    def nack(self, delay_s: float | None = None, *, reason: str = "") -> MessageState:
        """As `QueueJob.nack`."""
        return self._client.nack(self.message.receipt, delay_s, reason=reason)

    def extend(self, lease_s: float | None = None) -> None:
        """As `QueueJob.extend`."""
        self._client.call(ExtendLease(self.message.receipt, self.lease_s if lease_s is None else lease_s))


class SyncQueueClient(SyncTypedClient, service="queue"):
    """As `QueueClient`, for code without asyncio: leases are extended by hand, `SyncQueueJob.extend`."""

    def send(
        self,
        queue: str,
        body: str | bytes,
        *,
        delay_s: float = 0.0,
        priority: int = 0,
        key: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """As `QueueClient.send`."""
        return self.call(make_send(queue, body, delay_s, priority, key, headers)).message_id

    def receive(
        self,
        queue: str,
        *,
        limit: int = 1,
        lease_s: float = DEFAULT_LEASE_S,
        wait_s: float = 0.0,
        with_session: bool = False,
    ) -> list[SyncQueueJob]:
        """As `QueueClient.receive`. The wait is counted in pauses, so it may be a little shorter or longer."""
        if wait_s <= 0:
            return self._take(ReceiveMessages(queue, limit, lease_s, with_session))
        number = next(WAITER_NUMBERS)
        left_s = wait_s
        while left_s > 0:
            jobs = self._take(ReceiveMessages(queue, limit, lease_s, with_session, number))
            if jobs:
                return jobs
            left_s = self._wait(number, queue, left_s)
        is_woken = not self.call(EndWaiter(number))
        return self._take(ReceiveMessages(queue, limit, lease_s, with_session)) if is_woken else []

    def consume(
        self, queue: str, *, lease_s: float = DEFAULT_LEASE_S, with_session: bool = False
    ) -> Iterator[SyncQueueJob]:
        """Iterate over jobs, one at a time, without an end."""
        while True:
            with contextlib.suppress(ClusterTimeoutError):
                yield from self.receive(queue, lease_s=lease_s, wait_s=CONSUME_WAIT_S, with_session=with_session)

    def ack(self, receipt: int) -> None:
        """As `QueueClient.ack`."""
        self.call(AckMessage(receipt))

    def nack(self, receipt: int, delay_s: float | None = None, *, reason: str = "") -> MessageState:
        """As `QueueClient.nack`."""
        return self.call(NackMessage(receipt, delay_s, reason))

    def define(self, queue: str, settings: QueueSettings) -> None:
        """As `QueueClient.define`."""
        self.call(DefineQueue(queue, settings))

    def delete_queue(self, queue: str) -> bool:
        """As `QueueClient.delete_queue`."""
        return self.call(DeleteQueue(queue))

    def settings(self, queue: str) -> QueueSettings:
        """As `QueueClient.settings`."""
        return self.ask(ReadQueueSettings(queue))

    def stats(self, queue: str, *, max_staleness_s: float | None = None) -> QueueStats:
        """As `QueueClient.stats`."""
        return self.ask(ReadQueueStats(queue), max_staleness_s=max_staleness_s)

    def queues(self, prefix: str = "") -> Iterator[QueueStats]:
        """As `QueueClient.queues`."""
        after = ""
        while page := self.ask(ListQueues(prefix, after, QUEUE_PAGE)):
            yield from page
            after = page[-1].name

    def dead(self, queue: str) -> Iterator[DeadMessage]:
        """As `QueueClient.dead`."""
        after = 0
        while page := self.ask(ListDeadMessages(queue, after, QUEUE_PAGE)):
            yield from page
            after = page[-1].message_id

    def revive(self, queue: str, message_id: int) -> bool:
        """As `QueueClient.revive`."""
        return self.call(ReviveMessage(queue, message_id))

    def purge(self, queue: str, *states: MessageState) -> int:
        """As `QueueClient.purge`."""
        count = 0
        for state in states or (MessageState.READY, MessageState.DELAYED):
            for _ in range(PURGE_PAGES):
                removed_count = self.call(PurgeMessages(queue, state))
                count += removed_count
                if removed_count < QUEUE_PAGE_LIMIT:
                    break
        return count

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
    ) -> QueueSchedule:
        """As `QueueClient.schedule`."""
        return self.call(make_schedule(name, queue, body, cron, at, priority, headers))

    def unschedule(self, name: str) -> bool:
        """As `QueueClient.unschedule`."""
        return self.call(DeleteSchedule(name))

    def schedules(self) -> Iterator[QueueSchedule]:
        """As `QueueClient.schedules`."""
        after = ""
        while page := self.ask(ListSchedules(after, QUEUE_PAGE)):
            yield from page
            after = page[-1].name

    def _take(self, asked: ReceiveMessages) -> list[SyncQueueJob]:
        return [SyncQueueJob(self, message, asked.lease_s) for message in self.call(asked)]

    def _wait(self, number: int, queue: str, left_s: float) -> float:
        """Wait until something may be ready, or the time is over; gives what is left of it."""
        while left_s > 0:
            pause_s = min(QUEUE_POLL_S, left_s)
            # Any message ends the pause: it is the wake, or costs one query.
            next(self.cluster.egress(pause_s), None)
            left_s -= pause_s
            with contextlib.suppress(ClusterTimeoutError):
                found = self.ask(ReadWaiter(self.cluster.cluster_session_id, number, queue))
                if found.ready_count or not found.is_waiting:
                    break
        return left_s
