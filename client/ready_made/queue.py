"""Clients of the queues and schedules.

async with QueueClient.connect(["127.0.0.1:9000"]) as queues:
    await queues.send("mail", b"to: ann", key="order-7")
    async for job in queues.consume("mail", concurrency=8):
        await deliver(job.body)
        await job.ack()

A receiver that waits is woken by an event. It may be lost when a leader dies, and another receiver may be woken that is
dead, so a client that waits also asks once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from ...service_api.errors import ClusterError, ClusterTimeoutError, LocalProtocolError, SessionClosedError, first_leaf
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
    QueueReady,
    QueueSchedule,
    QueueSettings,
    QueueStats,
    ReadQueueSettings,
    ReadQueueStats,
    ReadWaiter,
    ReceivedMessage,
    ReceiveMessages,
    ReviveMessage,
    ScheduleMessages,
    SendMessage,
    StaleReceiptError,
)
from ...service_api.ready_made.queue.messages import DEFAULT_LEASE_S, QUEUE_PAGE_LIMIT
from ..errors import IndeterminateError, RejectedError
from ..protocol.protocol import CLOSED_BY_CLIENT
from ..typed import TypedClient
from .ending_calls import EndingCalls
from .event_mailboxes import EventMailboxes
from .pages import pages_after

_POLL_S: Final = 1.0
"""How often a client that waits asks whether something is ready; also how soon a worker notices that it is to stop."""
_CONSUME_WAIT_S: Final = 60.0
_PAGE: Final = 100
_PURGE_PAGES: Final = 100_000
_UNANSWERED: Final[tuple[type[ClusterError], ...]] = (ClusterTimeoutError, IndeterminateError, RejectedError)
"""Errors of calls whose time is over, or whose session is: a job that is not settled is delivered again."""
# A session belongs to one process, so no two waiters of a session have one number.
_WAITER_NUMBERS: Final = itertools.count(1)
R = TypeVar("R")

_log = structlog.get_logger(__name__)


class QueueJob:
    """A message that is leased to this client. It is settled by `ack` or `nack`, or when its lease ends."""

    message: ReceivedMessage
    lease_s: float
    ends_s: float
    """When the lease ends, by the clock of the loop: no later than in the cluster, if the clocks run equally."""
    is_settled: bool

    def __init__(self, client: QueueClient, message: ReceivedMessage, lease_s: float, asked_s: float) -> None:
        self._client = client
        self._clock = asyncio.get_running_loop().time
        self._on_settled: Callable[[], None] = lambda: None
        self.message = message
        self.lease_s = lease_s
        self.ends_s = asked_s + lease_s
        self.is_settled = False

    def __repr__(self) -> str:
        message = self.message
        return f"<{type(self).__name__} {message.queue!r} id={message.message_id} delivery={message.delivery_count}>"

    @property
    def id(self) -> int:
        """The id of the message: the same for each delivery."""
        return self.message.message_id

    @property
    def body(self) -> bytes:
        """The bytes that were sent."""
        return self.message.body

    @property
    def headers(self) -> dict[str, str]:
        """The headers that were sent beside it."""
        return self.message.headers

    @property
    def delivery_count(self) -> int:
        """Which delivery this is, from 1."""
        return self.message.delivery_count

    @property
    def is_over(self) -> bool:
        """Whether it is settled, or its lease has ended by the clock of the loop."""
        return self.is_settled or self._clock() >= self.ends_s

    async def ack(self) -> None:
        """The job is done: remove the message.

        Raises:
            StaleReceiptError: the lease has ended, and another may have the message.
        """
        await self._settle(self._client.ack(self.message.receipt))

    async def nack(self, delay_s: float | None = None, *, reason: str = "") -> MessageState:
        """The job has failed: deliver the message again after `delay_s`, by default after the queue's back-off.

        Gives DEAD if it was the last delivery that the queue allows.

        Raises:
            StaleReceiptError: as for `ack`.
        """
        return await self._settle(self._client.nack(self.message.receipt, delay_s, reason=reason))

    async def give_back(self) -> None:
        """Make the message ready as if it had not been delivered; `StaleReceiptError` as for `ack`."""
        await self._settle(self._client.call(NackMessage(self.message.receipt, is_counted=False)))

    async def extend(self, lease_s: float | None = None, *, timeout_s: float | None = None) -> None:
        """Have the lease end `lease_s` from now, by default as long as it was; `StaleReceiptError` as for `ack`."""
        chosen_s = self.lease_s if lease_s is None else lease_s
        asked_s = asyncio.get_running_loop().time()
        await self._client.call(ExtendLease(self.message.receipt, chosen_s), timeout_s=timeout_s)
        self.ends_s = asked_s + chosen_s

    def call_when_settled(self, call: Callable[[], None]) -> None:
        """Have a function called when this is settled; for the client."""
        self._on_settled = call

    async def _settle(self, answer: Awaitable[R]) -> R:
        try:
            found = await answer
        except StaleReceiptError:
            self._mark_settled()
            raise
        self._mark_settled()
        return found

    def _mark_settled(self) -> None:
        self.is_settled = True
        self._on_settled()


Handler = Callable[[QueueJob], Awaitable[object]]


class QueueClient(TypedClient, service="queue"):
    """Queues and schedules. What a method raises beside what it names is what `TypedClient.call` does."""

    def __init__(self, cluster: Any) -> None:  # Any: as `TypedClient`
        super().__init__(cluster)
        self._wakes: EventMailboxes[QueueReady] = EventMailboxes(QueueReady, lambda event: (event.waiter,))
        self._ending = EndingCalls()

    def _before_call(self) -> None:
        self._wakes.take_ready(self.cluster)

    # --- sending

    async def send(
        self,
        queue: str,
        body: str | bytes,
        *,
        delay_s: float = 0.0,
        priority: int = 0,
        key: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """Put a message into a queue, and give its id.

        With a `key` that was sent to this queue within its `key_window_s`, nothing is sent: the id is that of the first
        message.

        Raises:
            QueueFullError: the queue takes no more.
            QueueError: an argument is wrong, or a limit is reached.
        """
        message = SendMessage(queue, _bytes(body), delay_s, priority, key, dict(headers or {}))
        return (await self.call(message)).message_id

    async def send_many(
        self, queue: str, bodies: Iterable[str | bytes], *, delay_s: float = 0.0, priority: int = 0
    ) -> list[int]:
        """Put messages into a queue in one call, in their order, each as `send` does; gives their ids.

        One that fails stops no other.

        Raises:
            QueueFullError, QueueError: as for `send`; the first one by position.
        """
        sent = await self.call_many([SendMessage(queue, _bytes(body), delay_s, priority, "", {}) for body in bodies])
        return [each.message_id for each in sent]

    # --- receiving

    async def receive(
        self,
        queue: str,
        *,
        limit: int = 1,
        lease_s: float = DEFAULT_LEASE_S,
        wait_s: float = 0.0,
        with_session: bool = False,
    ) -> list[QueueJob]:
        """Lease messages that are ready, `limit` at most; if none is, wait for one as long as `wait_s`.

        With `with_session` the leases end with this session, too. If you cancel this, messages may be leased that you
        never see: they are delivered again when their leases end.
        """
        asked = ReceiveMessages(queue, limit, lease_s, with_session)
        return await self._receive(asked, wait_s, lambda: False, limit_s=None)

    async def consume(
        self,
        queue: str,
        *,
        concurrency: int = 1,
        lease_s: float = DEFAULT_LEASE_S,
        with_session: bool = False,
    ) -> AsyncIterator[QueueJob]:
        """Iterate over jobs, without an end: at most `concurrency` that are not settled at a time.

        You must settle each within `lease_s` or extend it. As long as you settle each before you ask for the next, one
        is leased at a time, so a process that dies has one delivery that failed. If you ask for more, all that you may
        have are leased in one call; what you have not been given yet is given back when the iterator is closed.
        """
        asked = ReceiveMessages(queue, concurrency, lease_s, with_session)
        jobs: list[QueueJob] = []
        unsettled: list[QueueJob] = []
        is_settled = asyncio.Event()
        try:
            while True:
                unsettled = [job for job in unsettled if not job.is_over]
                if len(unsettled) >= concurrency:
                    await _wait_for_slot(is_settled, unsettled)
                    continue
                # Nothing open: the caller does one after the other, and would not begin what is leased beside it.
                room = concurrency - len(unsettled) if unsettled else 1
                jobs = await self._receive_patiently(asked, room, lambda: False)
                for job in jobs:
                    job.call_when_settled(is_settled.set)
                unsettled += jobs
                while jobs:
                    job = jobs.pop(0)
                    if not job.is_over:
                        yield job
        finally:
            if jobs:
                await self._ending.wait_briefly(_give_back(jobs))

    async def work(
        self,
        queue: str,
        handler: Handler,
        *,
        concurrency: int = 1,
        lease_s: float = DEFAULT_LEASE_S,
        with_session: bool = False,
        stop: asyncio.Event | None = None,
        on_failure: Callable[[QueueJob, Exception], None] | None = None,
    ) -> None:
        """Run a handler for each message, `concurrency` at a time, until `stop` is set; those that run then end first.

        A job is acknowledged when its handler returns, and fails when it raises, which is logged; `on_failure` is
        told. Its lease is extended as long as the handler runs. If the lease is lost all the same, the handler is
        cancelled. A handler may settle its job itself. If you cancel this, handlers are cancelled, and their jobs are
        given back: another worker has them at once, and no delivery has failed.

        Raises:
            SessionClosedError: the session has ended. Handlers are cancelled.
            QueueError: an argument is wrong, or a limit is reached.
        """
        asked = ReceiveMessages(queue, concurrency, lease_s, with_session)
        running: set[QueueJob] = set()
        cut_short: list[QueueJob] = []
        is_free = asyncio.Event()

        def on_done(job: QueueJob, task: asyncio.Task[None]) -> None:
            running.discard(job)
            is_free.set()
            if task.cancelled():
                cut_short[:] = [each for each in (*cut_short, job) if not each.is_over]

        def is_stopping() -> bool:
            return stop is not None and stop.is_set()

        try:
            async with asyncio.TaskGroup() as tasks:
                while not is_stopping():
                    if len(running) >= concurrency:
                        is_free.clear()
                        await is_free.wait()
                        continue
                    for job in await self._receive_patiently(asked, concurrency - len(running), is_stopping):
                        running.add(job)
                        task = tasks.create_task(self._handle(job, handler, on_failure))
                        task.add_done_callback(partial(on_done, job))
        except ExceptionGroup as group:
            raise first_leaf(group) from group
        finally:
            if cut_short:
                await self._ending.wait_briefly(_give_back(cut_short))

    async def ack(self, receipt: int) -> None:
        """As `QueueJob.ack`, by the receipt alone."""
        await self.call(AckMessage(receipt))

    async def nack(self, receipt: int, delay_s: float | None = None, *, reason: str = "") -> MessageState:
        """As `QueueJob.nack`, by the receipt alone."""
        return await self.call(NackMessage(receipt, delay_s, reason))

    # --- queues

    async def define(self, queue: str, settings: QueueSettings) -> None:
        """Say how a queue works; `QueueError` if it cannot."""
        await self.call(DefineQueue(queue, settings))

    async def delete_queue(self, queue: str) -> bool:
        """Forget how a queue works; False if it was not defined, `QueueError` if it has messages."""
        return await self.call(DeleteQueue(queue))

    async def settings(self, queue: str) -> QueueSettings:
        """Say how a queue works."""
        return await self.ask(ReadQueueSettings(queue))

    async def stats(self, queue: str, *, max_staleness_s: float | None = None) -> QueueStats:
        """Say what is in a queue. With `max_staleness_s` a follower may answer."""
        return await self.ask(ReadQueueStats(queue), max_staleness_s=max_staleness_s)

    def queues(self, prefix: str = "") -> AsyncIterator[QueueStats]:
        """Iterate over queues that are defined or not empty, by name, page by page; each page is of one moment."""
        return pages_after(lambda after: self.ask(ListQueues(prefix, after, _PAGE)), lambda stats: stats.name)

    def dead(self, queue: str) -> AsyncIterator[DeadMessage]:
        """Iterate over the dead messages of a queue by id, page by page."""
        return pages_after(
            lambda after: self.ask(ListDeadMessages(queue, after, _PAGE)), lambda message: message.message_id, 0
        )

    async def revive(self, queue: str, message_id: int) -> bool:
        """Make a dead message ready again; False if there is none of this id."""
        return await self.call(ReviveMessage(queue, message_id))

    async def purge(self, queue: str, *states: MessageState) -> int:
        """Remove messages that are in some states, by default ready and delayed ones, and give how many."""
        count = 0
        for state in states or (MessageState.READY, MessageState.DELAYED):
            for _ in range(_PURGE_PAGES):
                removed_count = await self.call(PurgeMessages(queue, state))
                count += removed_count
                if removed_count < QUEUE_PAGE_LIMIT:
                    break
        return count

    # --- schedules

    async def schedule(
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
        """Have a message sent at the times of a cron line, in UTC, or once `at` a time. It replaces one of this name.

        Raises:
            QueueError: an argument is wrong, or a limit is reached.
            LocalProtocolError: `at` has no time zone.
        """
        if at is not None and at.tzinfo is None:
            raise LocalProtocolError(f"at={at.isoformat()} has no time zone, expected one, such as datetime.UTC")
        at_s = None if at is None else at.astimezone(UTC).timestamp()
        return await self.call(ScheduleMessages(name, queue, _bytes(body), cron, at_s, priority, dict(headers or {})))

    async def unschedule(self, name: str) -> bool:
        """Forget a schedule; False if there is none."""
        return await self.call(DeleteSchedule(name))

    def schedules(self) -> AsyncIterator[QueueSchedule]:
        """Iterate over schedules by name."""
        return pages_after(lambda after: self.ask(ListSchedules(after, _PAGE)), lambda schedule: schedule.name)

    # --- inside

    async def _receive_patiently(
        self, asked: ReceiveMessages, limit: int, is_stopping: Callable[[], bool]
    ) -> list[QueueJob]:
        """Receive, also if there is no leader for long: then nothing."""
        now = ReceiveMessages(asked.queue, min(limit, QUEUE_PAGE_LIMIT), asked.lease_s, asked.is_with_session)
        try:
            return await self._receive(now, _CONSUME_WAIT_S, is_stopping, limit_s=math.inf)
        except ClusterTimeoutError:
            return []

    async def _receive(
        self, asked: ReceiveMessages, wait_s: float, is_stopping: Callable[[], bool], *, limit_s: float | None
    ) -> list[QueueJob]:
        """Receive as `receive` does; `limit_s` is that of each command."""
        if wait_s <= 0:
            return await self._take(asked, limit_s)
        number = next(_WAITER_NUMBERS)
        waiting = ReceiveMessages(asked.queue, asked.limit, asked.lease_s, asked.is_with_session, number)
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + wait_s
        is_waiting = True
        self._wakes.open(number)
        try:
            while True:
                jobs = await self._take(waiting, limit_s)
                is_waiting = not jobs
                if jobs:
                    return jobs
                await self._wait(number, asked.queue, ends_s, is_stopping)
                if loop.time() >= ends_s or is_stopping():
                    is_waiting = False
                    # One that was woken by the last moment must look, or the message would wait for another.
                    is_woken = not await self.call(EndWaiter(number), timeout_s=limit_s)
                    return await self._take(asked, limit_s) if is_woken and not is_stopping() else []
        finally:
            self._wakes.close(number)
            if is_waiting and not self.cluster.is_closed:
                await self._ending.wait_briefly(self.call(EndWaiter(number), timeout_s=math.inf))

    async def _take(self, asked: ReceiveMessages, limit_s: float | None) -> list[QueueJob]:
        asked_s = asyncio.get_running_loop().time()
        messages = await self.call(asked, timeout_s=limit_s)
        return [QueueJob(self, message, asked.lease_s, asked_s) for message in messages]

    async def _wait(self, number: int, queue: str, ends_s: float, is_stopping: Callable[[], bool]) -> None:
        """Wait until something may be ready, or the time is over."""
        loop = asyncio.get_running_loop()
        while (left_s := ends_s - loop.time()) > 0 and not is_stopping():
            try:
                async with asyncio.timeout(min(_POLL_S, left_s)):
                    await self._wakes.next_event(number, self.cluster.egress())
                return
            except StopAsyncIteration as error:
                raise SessionClosedError(CLOSED_BY_CLIENT) from error
            except TimeoutError:
                with contextlib.suppress(ClusterTimeoutError):
                    found = await self.ask(ReadWaiter(self.cluster.cluster_session_id, number, queue))
                    if found.ready_count or not found.is_waiting:
                        return

    async def _handle(
        self, job: QueueJob, handler: Handler, on_failure: Callable[[QueueJob, Exception], None] | None
    ) -> None:
        """Run a handler while its lease is extended, and settle the job."""
        failure: Exception | None = None
        is_lost = False
        try:
            async with asyncio.TaskGroup() as tasks:
                keeping = tasks.create_task(self._keep_lease(job))
                try:
                    await handler(job)
                except Exception as error:
                    failure = error
                    _log.warning("queue.job_failed", job=repr(job), reason=repr(error), exc_info=error)
                keeping.cancel()
        except* StaleReceiptError:
            is_lost = True
        if failure is not None and on_failure is not None:
            on_failure(job, failure)
        if is_lost or job.is_settled:
            return
        # Without an answer nobody knows whether it is settled. If not, the message is delivered again.
        with contextlib.suppress(StaleReceiptError, *_UNANSWERED):
            if failure is None:
                await job.ack()
            else:
                await job.nack(reason=f"{type(failure).__name__}: {failure}")

    async def _keep_lease(self, job: QueueJob) -> None:
        loop = asyncio.get_running_loop()
        while not job.is_settled:
            await asyncio.sleep(job.lease_s / 3)
            if job.is_settled:
                return
            with contextlib.suppress(*_UNANSWERED):
                await job.extend(timeout_s=max(job.ends_s - loop.time(), 0.001))
            if job.is_over and not job.is_settled:
                raise StaleReceiptError(job.message.receipt)


async def _give_back(jobs: list[QueueJob]) -> None:
    for job in jobs:
        # Where the session has ended before, they are delivered again when their leases end.
        with contextlib.suppress(StaleReceiptError, SessionClosedError, *_UNANSWERED):
            await job.give_back()


async def _wait_for_slot(is_settled: asyncio.Event, unsettled: list[QueueJob]) -> None:
    """Wait until a job is settled, or a lease ends."""
    left_s = min(job.ends_s for job in unsettled) - asyncio.get_running_loop().time()
    is_settled.clear()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(left_s, 0.001)):
            await is_settled.wait()


def _bytes(body: str | bytes) -> bytes:
    return body.encode() if isinstance(body, str) else body
