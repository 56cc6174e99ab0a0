"""Durable queues with leases, retries and dead letters, and schedules that send.

A message is in one place at a time: ready, delayed, leased or dead; `_put` alone moves it. Each lease has a receipt of
its own, so who was too slow is refused by name. A delivery that fails, by the worker's word or with its lease, delays
the message by a time that doubles, and the last one that is allowed makes it dead.

Two orders are derived: where messages are in their queues, and what is due when. They are made when the state is
loaded, and undone by the same journal as the state. Whatever is due has one timer, the alarm, at the earliest time.

A receiver that finds nothing may wait: an event wakes one for each message that becomes ready. It may be lost when a
leader dies, and who was woken may be dead, so a client that waits also asks from time to time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import islice, starmap
from typing import ClassVar, Final

from msgspec.structs import replace

from ...typed import Context, Event, TimerMessage, answers, derived, handles, on_timer, state
from ...types import CloseReason
from ..pages import AnswerPage, check_fits, name_page
from ..sharing import SharingService, client_of
from ..sorted_keys import SortedKeys
from .limits import (
    check_lease,
    check_name,
    check_page,
    check_queue_settings,
    check_range,
    check_waiter,
    message_size,
)
from .messages import (
    QUEUE_NAME_LIMIT_BYTES,
    QUEUE_PAGE_LIMIT,
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
    QueueDefinition,
    QueueError,
    QueueFullError,
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
    SentMessage,
    StaleReceiptError,
    WaiterState,
)
from .stored import (
    EPOCH,
    MESSAGE_STATES,
    PRIORITIES,
    S_NS,
    StoredMessage,
    StoredSchedule,
    due_key,
    next_time_ns,
    number_key,
    pair_key,
    queue_place,
    queue_prefix,
    schedule_size,
    show_schedule,
    split_pair,
)

_DELAY_LIMIT_S: Final = 366 * 86_400.0
_TIME_LIMIT_S: Final = 250_000_000_000.0
"""About the year 9892."""
_ID_LIMIT: Final = 1 << 62
_DUE_LIMIT: Final = 1_000
"""What one alarm does; the rest follows at once with the next one."""
_REASON_LIMIT: Final = 1_000
_BESIDE_BYTES: Final = 4 * _REASON_LIMIT + 4 * QUEUE_NAME_LIMIT_BYTES
"""The room in an answer beside what the sender of a message wrote: why it is dead, names, and when it was due."""
_STORE_REMEDY: Final = "receive and acknowledge messages first"
_WAITER_REMEDY: Final = "end a waiter first"
_DEFAULT_SETTINGS: Final = QueueSettings()
_MESSAGE, _KEY, _SCHEDULE = b"m", b"k", b"s"
"""What is due."""


class WakeQueues(TimerMessage):
    """Something may be due."""


class QueueService(SharingService, name="queue"):
    """Queues and schedules. See docs/queue.md. Every member must have the same limits.

    Each client has a share of `lease_limit`, `waiter_limit`, `queue_waiter_limit` and `store_limit_bytes`.
    """

    events: ClassVar[tuple[type[Event], ...]] = (QueueReady,)

    queue_limit: ClassVar[int] = 10_000
    """Queues that are defined or have messages."""
    schedule_limit: ClassVar[int] = 10_000
    lease_limit: ClassVar[int] = 100_000
    """Messages that are leased, in all queues."""
    key_limit: ClassVar[int] = 500_000
    """Keys that are remembered."""
    waiter_limit: ClassVar[int] = 20_000
    queue_waiter_limit: ClassVar[int] = 1_000
    """Waiters of one queue."""
    store_limit_bytes: ClassVar[int] = 1 << 30
    """Sizes of all messages, and of the bodies of schedules."""

    settings: dict[str, QueueSettings] = state()
    messages: dict[int, StoredMessage] = state()
    next_message_id: int = state(default=1)
    next_receipt: int = state(default=1)
    counts: dict[str, tuple[int, int, int, int, int]] = state()
    """By queue that is not empty: how many messages are in each `MessageState`, in its order, and their size."""
    store_bytes: int = state()
    leases: dict[int, int] = state()
    """The message of each receipt."""
    session_leases: dict[int, int] = state()
    """The session of each receipt whose lease ends with it."""
    keys: dict[tuple[str, str], tuple[int, int]] = state()
    """By queue and key: the message, and when the key is forgotten."""
    waiters: dict[tuple[int, int], tuple[str, bytes]] = state()
    """The queue and the client of each waiter, by session and the client's number."""
    queue_waiters: dict[str, tuple[tuple[int, int], ...]] = state()
    """The waiters of each queue, in order."""
    schedules: dict[str, StoredSchedule] = state()
    alarm_ns: int = state()
    """When the timer fires that looks at what is due; 0: there is none."""
    alarm_id: int = state()

    _places: SortedKeys = derived(lambda queue: SortedKeys(starmap(queue_place, queue.messages.items())))
    _due: SortedKeys = derived(lambda queue: SortedKeys(queue._due_keys()))

    def on_closed(self, ctx: Context, reason: CloseReason) -> None:
        """A session's waiters end with it, and those leases that were taken so."""
        session_id = ctx.session.id
        for waiter in [waiter for waiter in self.waiters if waiter[0] == session_id]:
            self._end_waiter(waiter)
        for receipt in [receipt for receipt, owner in self.session_leases.items() if owner == session_id]:
            self._fail(ctx, self.leases[receipt], None, f"session={session_id} ended: {reason.name.lower()}")
        self._set_alarm(ctx)

    # --- queues

    @handles(DefineQueue)
    def define_queue(self, ctx: Context, message: DefineQueue) -> QueueDefinition:
        """Define or change a queue."""
        check_queue_settings(message.settings, self.store_limit_bytes)
        self._check_queue(message.name)
        self.settings[message.name] = message.settings
        return QueueDefinition(message.name, message.settings)

    @handles(DeleteQueue)
    def delete_queue(self, ctx: Context, message: DeleteQueue) -> bool:
        """Forget a queue that is empty."""
        if message.name in self.counts:
            raise QueueError(f"queue={message.name!r} has messages, expected none; purge or receive them first")
        return self.settings.pop(message.name, None) is not None

    @answers(ReadQueueSettings)
    def read_queue_settings(self, ctx: Context, message: ReadQueueSettings) -> QueueSettings:
        """Say how a queue works."""
        return self._settings_of(message.name)

    @answers(ReadQueueStats)
    def read_queue_stats(self, ctx: Context, message: ReadQueueStats) -> QueueStats:
        """Say what is in a queue."""
        check_name("queue", message.name)
        return self._stats(ctx, message.name)

    @answers(ListQueues)
    def list_queues(self, ctx: Context, message: ListQueues) -> list[QueueStats]:
        """Say what is in queues, in the order of their names."""
        check_page(message.limit)
        names = name_page(ctx, {*self.settings, *self.counts}, message.prefix, message.after, message.limit)
        return [self._stats(ctx, name) for name in names]

    # --- messages

    @handles(SendMessage)
    def send_message(self, ctx: Context, message: SendMessage) -> SentMessage:
        """Put a message into a queue."""
        check_range("delay_s", message.delay_s, 0, _DELAY_LIMIT_S)
        size_bytes = message_size(message.body, message.headers, message.priority, message.key)
        check_fits(ctx, "the message", size_bytes, QueueError, reserved_bytes=_BESIDE_BYTES)
        key = (message.queue, message.key)
        if message.key and key in self.keys:
            return SentMessage(self.keys[key][0], is_duplicate=True)
        window_ns = round(self._settings_of(message.queue).key_window_s * S_NS) if message.key else 0
        is_kept = window_ns > 0
        if is_kept and len(self.keys) >= self.key_limit:
            raise QueueError(f"keys={len(self.keys)} expected less than {self.key_limit}; shorten key_window_s")
        headers = tuple(message.headers.items())
        stored = StoredMessage(
            message.queue, message.body, headers, message.priority, size_bytes, ctx.time_ns, client_of(ctx.session)
        )
        message_id = self._send(ctx, stored, message.delay_s)
        if is_kept:
            forget_ns = ctx.time_ns + window_ns
            self.keys[key] = (message_id, forget_ns)
            self._due.add(due_key(forget_ns, _KEY, pair_key(*key)))
        self._set_alarm(ctx)
        return SentMessage(message_id, is_duplicate=False)

    @handles(ReceiveMessages)
    def receive_messages(self, ctx: Context, message: ReceiveMessages) -> list[ReceivedMessage]:
        """Lease messages that are ready, or wait for one."""
        check_name("queue", message.queue)
        check_page(message.limit)
        check_lease(message.lease_s)
        waiter = None if message.waiter is None else (ctx.session.id, message.waiter)
        if waiter is not None:
            check_waiter(waiter[1])
            self._end_waiter(waiter)
        client = client_of(ctx.session)
        room = self.lease_limit - len(self.leases)
        if room <= 0:
            raise QueueError(f"leases={len(self.leases)} expected less than {self.lease_limit}")
        self._check_share(client, "lease_limit", "acknowledge messages first")
        room = min(room, self.share_of("lease_limit") - self.shares.get(("lease_limit", client), 0))
        received: list[ReceivedMessage] = []
        page = AnswerPage(ctx, min(message.limit, room))
        for message_id in self._in_state(message.queue, MessageState.READY, min(message.limit, room)):
            if not page.takes(self.messages[message_id].size_bytes):
                break
            received.append(self._lease(ctx, message_id, message, client))
        if waiter is not None and not received:
            self._begin_waiter(waiter, message.queue, client)
        self._set_alarm(ctx)
        return received

    @handles(AckMessage)
    def ack_message(self, ctx: Context, message: AckMessage) -> bool:
        """Remove a message that is done."""
        self._put(self._leased(message.receipt), None)
        return True

    @handles(NackMessage)
    def nack_message(self, ctx: Context, message: NackMessage) -> MessageState:
        """Take back a message whose delivery has failed."""
        message_id = self._leased(message.receipt)
        if message.delay_s is not None:
            check_range("delay_s", message.delay_s, 0, _DELAY_LIMIT_S)
        if not message.is_counted:
            stored = self.messages[message_id]
            given_back = replace(stored, delivery_count=stored.delivery_count - 1)
            self._make_ready(ctx, message_id, given_back, message.delay_s or 0)
        else:
            self._fail(ctx, message_id, message.delay_s, message.reason)
        self._set_alarm(ctx)
        return self.messages[message_id].state

    @handles(ExtendLease)
    def extend_lease(self, ctx: Context, message: ExtendLease) -> float:
        """Have a lease end later, or earlier."""
        message_id = self._leased(message.receipt)
        check_lease(message.lease_s)
        due_ns = ctx.time_ns + round(message.lease_s * S_NS)
        session_id = self.session_leases.get(message.receipt)
        self._put(message_id, replace(self.messages[message_id], due_ns=due_ns))
        if session_id is not None:
            self.session_leases[message.receipt] = session_id
        self._set_alarm(ctx)
        return due_ns / S_NS

    @handles(EndWaiter)
    def end_waiter(self, ctx: Context, message: EndWaiter) -> bool:
        """Wake a waiter no more."""
        return self._end_waiter((ctx.session.id, message.waiter))

    @answers(ReadWaiter)
    def read_waiter(self, ctx: Context, message: ReadWaiter) -> WaiterState:
        """Say how a waiter stands."""
        is_waiting = (message.session_id, message.waiter) in self.waiters
        return WaiterState(is_waiting, self._counts_of(message.queue)[0])

    # --- dead letters

    @answers(ListDeadMessages)
    def list_dead_messages(self, ctx: Context, message: ListDeadMessages) -> list[DeadMessage]:
        """Say which messages of a queue are dead."""
        check_name("queue", message.queue)
        check_page(message.limit)
        check_range("after", message.after, 0, _ID_LIMIT)
        found: list[DeadMessage] = []
        page = AnswerPage(ctx, message.limit)
        for message_id in self._in_state(message.queue, MessageState.DEAD, message.limit, message.after):
            stored = self.messages[message_id]
            if not page.takes(stored.size_bytes + len(stored.reason.encode())):
                break
            found.append(
                DeadMessage(
                    message_id,
                    stored.body,
                    dict(stored.headers),
                    stored.priority,
                    stored.delivery_count,
                    stored.sent_ns / S_NS,
                    stored.entered_ns / S_NS,
                    stored.reason,
                )
            )
        return found

    @handles(ReviveMessage)
    def revive_message(self, ctx: Context, message: ReviveMessage) -> bool:
        """Make a dead message ready."""
        stored = self.messages.get(message.message_id)
        if stored is None or stored.queue != message.queue or stored.state is not MessageState.DEAD:
            return False
        self._make_ready(ctx, message.message_id, replace(stored, delivery_count=0), 0)
        return True

    @handles(PurgeMessages)
    def purge_messages(self, ctx: Context, message: PurgeMessages) -> int:
        """Remove messages of a queue."""
        check_name("queue", message.queue)
        if message.state is MessageState.LEASED:
            raise QueueError("state='leased' expected 'ready', 'delayed' or 'dead': their receivers have them")
        found = self._in_state(message.queue, message.state, QUEUE_PAGE_LIMIT)
        for message_id in found:
            self._put(message_id, None)
        return len(found)

    # --- schedules

    @handles(ScheduleMessages)
    def schedule_messages(self, ctx: Context, message: ScheduleMessages) -> QueueSchedule:
        """Have messages sent at times."""
        check_name("schedule", message.name)
        check_name("queue", message.queue)
        size_bytes = message_size(message.body, message.headers, message.priority, "")
        check_fits(ctx, "the message", size_bytes, QueueError, reserved_bytes=_BESIDE_BYTES)
        if bool(message.cron) == (message.at_s is not None):
            raise QueueError(f"cron={message.cron!r} and at_s={message.at_s} expected one of them")
        if message.at_s is not None:
            check_range("at_s", message.at_s, 0, _TIME_LIMIT_S)
            next_ns = max(round(message.at_s * S_NS), 1)
        else:
            next_ns = next_time_ns(message.cron, ctx.time_ns)
        self._delete_schedule(message.name)
        if len(self.schedules) >= self.schedule_limit:
            raise QueueError(f"schedules={len(self.schedules)} expected less than {self.schedule_limit}")
        if self.store_bytes + size_bytes > self.store_limit_bytes:
            raise QueueError(f"the store would have {self.store_bytes + size_bytes} bytes: {self.store_limit_bytes=}")
        client = client_of(ctx.session)
        self._check_share(client, "store_limit_bytes", _STORE_REMEDY, size_bytes)
        self._count_bytes(client, size_bytes)
        headers = tuple(message.headers.items())
        stored = StoredSchedule(message.queue, message.body, headers, message.priority, message.cron, next_ns, client)
        self.schedules[message.name] = stored
        self._due.add(due_key(next_ns, _SCHEDULE, message.name.encode()))
        self._set_alarm(ctx)
        return show_schedule(message.name, stored)

    @handles(DeleteSchedule)
    def delete_schedule(self, ctx: Context, message: DeleteSchedule) -> bool:
        """Forget a schedule."""
        return self._delete_schedule(message.name)

    @answers(ListSchedules)
    def list_schedules(self, ctx: Context, message: ListSchedules) -> list[QueueSchedule]:
        """Say schedules in the order of their names."""
        check_page(message.limit)

        def size_of(name: str) -> int:
            return schedule_size(self.schedules[name]) + 2 * QUEUE_NAME_LIMIT_BYTES

        names = name_page(ctx, self.schedules, "", message.after, message.limit, size_of=size_of)
        return [show_schedule(name, self.schedules[name]) for name in names]

    # --- what is due

    @on_timer(WakeQueues)
    def wake(self, ctx: Context, message: WakeQueues) -> None:
        """Do what is due."""
        self.alarm_ns = self.alarm_id = 0
        end = due_key(ctx.time_ns + 1, b"", b"")
        for due in list(islice(self._due.between(b"", end), _DUE_LIMIT)):
            kind, rest = due[8:9], due[9:]
            if kind == _MESSAGE:
                self._on_message_due(ctx, int.from_bytes(rest, "big"))
            elif kind == _KEY:
                self._due.remove(due)
                del self.keys[split_pair(rest)]
            else:
                self._fire(ctx, rest.decode())
        self._set_alarm(ctx)

    def _on_message_due(self, ctx: Context, message_id: int) -> None:
        stored = self.messages[message_id]
        if stored.state is MessageState.LEASED:
            self._fail(ctx, message_id, None, "the lease ended")
        else:
            self._make_ready(ctx, message_id, stored, 0)

    def _fire(self, ctx: Context, name: str) -> None:
        """Send what a schedule has to send; times that were missed are this one."""
        schedule = self.schedules[name]
        at = EPOCH + timedelta(microseconds=schedule.next_ns // 1_000)
        headers = (*schedule.headers, ("schedule", name), ("scheduled-at", at.isoformat()))
        size_bytes = schedule_size(schedule)
        fresh = StoredMessage(
            schedule.queue, schedule.body, headers, schedule.priority, size_bytes, ctx.time_ns, schedule.client
        )
        try:
            self._send(ctx, fresh, 0)
            schedule = replace(schedule, fired_count=schedule.fired_count + 1)
        except (QueueFullError, QueueError):
            schedule = replace(schedule, refused_count=schedule.refused_count + 1)
        self._due.remove(due_key(schedule.next_ns, _SCHEDULE, name.encode()))
        if not schedule.cron:
            del self.schedules[name]
            self._count_bytes(schedule.client, -size_bytes)
            return
        next_ns = next_time_ns(schedule.cron, ctx.time_ns)
        self.schedules[name] = replace(schedule, next_ns=next_ns)
        self._due.add(due_key(next_ns, _SCHEDULE, name.encode()))

    def _set_alarm(self, ctx: Context) -> None:
        """Have a timer at the earliest time at which something is due; one that is earlier still may stay."""
        first = self._due.first()
        if first is None:
            return
        due_ns = int.from_bytes(first[:8], "big")
        if self.alarm_id and self.alarm_ns <= due_ns:
            return
        if self.alarm_id:
            ctx.cancel(self.alarm_id)
        after_us = max(-(-(due_ns - ctx.time_ns) // 1_000), 0)
        self.alarm_ns = due_ns
        self.alarm_id = ctx.schedule(WakeQueues(), after=timedelta(microseconds=after_us))

    # --- inside

    def _send(self, ctx: Context, message: StoredMessage, delay_s: float) -> int:
        queue, size_bytes = message.queue, message.size_bytes
        self._check_queue(queue)
        settings, counts = self._settings_of(queue), self._counts_of(queue)
        count = sum(counts[:4])
        if count >= settings.message_limit:
            raise QueueFullError(queue, count, counts[4], f"message_limit={settings.message_limit}")
        if counts[4] + size_bytes > settings.size_limit_bytes:
            raise QueueFullError(queue, count, counts[4], f"size_limit_bytes={settings.size_limit_bytes}")
        if self.store_bytes + size_bytes > self.store_limit_bytes:
            raise QueueFullError(queue, count, counts[4], f"store_limit_bytes={self.store_limit_bytes}")
        refusal = self.refuse_share(message.client, "store_limit_bytes", size_bytes, _STORE_REMEDY)
        if refusal is not None:
            raise QueueFullError(queue, count, counts[4], refusal)
        message_id = self.next_message_id
        self.next_message_id = message_id + 1
        self._make_ready(ctx, message_id, message, delay_s)
        return message_id

    def _lease(self, ctx: Context, message_id: int, asked: ReceiveMessages, client: bytes) -> ReceivedMessage:
        stored = self.messages[message_id]
        receipt, now_ns = self.next_receipt, ctx.time_ns
        self.next_receipt = receipt + 1
        leased = replace(
            stored,
            state=MessageState.LEASED,
            entered_ns=now_ns,
            due_ns=now_ns + round(asked.lease_s * S_NS),
            delivery_count=stored.delivery_count + 1,
            receipt=receipt,
            receiver=client,
        )
        self._put(message_id, leased)
        if asked.is_with_session:
            self.session_leases[receipt] = ctx.session.id
        return ReceivedMessage(
            stored.queue,
            message_id,
            receipt,
            stored.body,
            dict(stored.headers),
            stored.priority,
            leased.delivery_count,
            stored.sent_ns / S_NS,
        )

    def _leased(self, receipt: int) -> int:
        """Find the message of a receipt."""
        message_id = self.leases.get(receipt)
        if message_id is None:
            raise StaleReceiptError(receipt)
        return message_id

    def _fail(self, ctx: Context, message_id: int, delay_s: float | None, reason: str) -> None:
        """End a lease whose message is not done."""
        stored = replace(self.messages[message_id], reason=reason[:_REASON_LIMIT])
        settings = self._settings_of(stored.queue)
        if stored.delivery_count >= settings.max_deliveries:
            dead = replace(stored, state=MessageState.DEAD, entered_ns=ctx.time_ns, due_ns=0, receipt=0)
            self._put(message_id, dead)
            return
        if delay_s is None:
            doublings = min(stored.delivery_count - 1, 64)
            delay_s = min(settings.backoff_s * 2**doublings, settings.backoff_limit_s)
        self._make_ready(ctx, message_id, stored, delay_s)

    def _make_ready(self, ctx: Context, message_id: int, stored: StoredMessage, delay_s: float) -> None:
        """Put a message into its queue, ready now or later, and wake a waiter."""
        now_ns = ctx.time_ns
        due_ns = now_ns + round(delay_s * S_NS)
        is_ready = due_ns <= now_ns
        now = replace(
            stored,
            state=MessageState.READY if is_ready else MessageState.DELAYED,
            entered_ns=now_ns,
            due_ns=0 if is_ready else due_ns,
            receipt=0,
        )
        self._put(message_id, now)
        waiting = self.queue_waiters.get(stored.queue)
        if is_ready and waiting:
            session_id, number = waiting[0]
            self._end_waiter(waiting[0])
            ctx.send(QueueReady(number), session_id)

    def _put(self, message_id: int, after: StoredMessage | None) -> None:
        """Add a message, move it into another state, or remove it."""
        before = self.messages.get(message_id)
        self._count(before, after)
        if before is not None:
            self._places.remove(queue_place(message_id, before))
            if before.due_ns:
                self._due.remove(due_key(before.due_ns, _MESSAGE, number_key(message_id)))
            if before.receipt:
                del self.leases[before.receipt]
                self.count_share(before.receiver, "lease_limit", -1)
                self.session_leases.pop(before.receipt, None)
        if after is None:
            del self.messages[message_id]
            return
        self.messages[message_id] = after
        self._places.add(queue_place(message_id, after))
        if after.due_ns:
            self._due.add(due_key(after.due_ns, _MESSAGE, number_key(message_id)))
        if after.receipt:
            self.leases[after.receipt] = message_id
            self.count_share(after.receiver, "lease_limit", 1)

    def _count(self, before: StoredMessage | None, after: StoredMessage | None) -> None:
        """Count a message that is added, moved or removed; one that is moved keeps its queue, client and size."""
        message = after if before is None else before
        assert message is not None
        ready, delayed, leased, dead, size_bytes = self._counts_of(message.queue)
        by_state = [ready, delayed, leased, dead]
        if before is not None:
            by_state[MESSAGE_STATES[before.state][0]] -= 1
        if after is not None:
            by_state[MESSAGE_STATES[after.state][0]] += 1
        if before is None or after is None:
            amount_bytes = message.size_bytes if before is None else -message.size_bytes
            size_bytes += amount_bytes
            self._count_bytes(message.client, amount_bytes)
        if any(by_state):
            ready, delayed, leased, dead = by_state
            self.counts[message.queue] = (ready, delayed, leased, dead, size_bytes)
        else:
            del self.counts[message.queue]

    def _count_bytes(self, client: bytes, amount_bytes: int) -> None:
        self.store_bytes += amount_bytes
        self.count_share(client, "store_limit_bytes", amount_bytes)

    def _check_share(self, client: bytes, limit_name: str, remedy: str, amount: int = 1) -> None:
        refusal = self.refuse_share(client, limit_name, amount, remedy)
        if refusal is not None:
            raise QueueError(refusal)

    def _counts_of(self, queue: str) -> tuple[int, int, int, int, int]:
        return self.counts.get(queue, (0, 0, 0, 0, 0))

    def _settings_of(self, queue: str) -> QueueSettings:
        return self.settings.get(queue) or _DEFAULT_SETTINGS

    def _check_queue(self, queue: str) -> None:
        check_name("queue", queue)
        if queue in self.counts or queue in self.settings:
            return
        count = len({*self.counts, *self.settings})
        if count >= self.queue_limit:
            raise QueueError(f"queues={count} expected less than {self.queue_limit}; delete or empty some first")

    def _in_state(self, queue: str, state: MessageState, limit: int, after: int = 0) -> list[int]:
        """Give messages of a queue that are in a state: by priority, then by id; `after` is for dead ones."""
        begin = queue_prefix(queue) + MESSAGE_STATES[state]
        first = begin + b"\0" + number_key(after + 1) if after > 0 else begin
        end = begin[:-1] + bytes([begin[-1] + 1])
        return [int.from_bytes(key[-8:], "big") for key in islice(self._places.between(first, end), limit)]

    def _stats(self, ctx: Context, name: str) -> QueueStats:
        ready, delayed, leased, dead, size_bytes = self._counts_of(name)
        prefix = queue_prefix(name) + MESSAGE_STATES[MessageState.READY]
        firsts = (
            next(self._places.between(prefix + bytes([each]), prefix + bytes([each + 1])), None) for each in PRIORITIES
        )
        sent_ns = [self.messages[int.from_bytes(key[-8:], "big")].sent_ns for key in firsts if key is not None]
        age_s = max(ctx.time_ns - min(sent_ns), 0) / S_NS if sent_ns else 0.0
        waiters = len(self.queue_waiters.get(name, ()))
        return QueueStats(name, ready, delayed, leased, dead, size_bytes, age_s, waiters)

    def _begin_waiter(self, waiter: tuple[int, int], queue: str, client: bytes) -> None:
        waiting = self.queue_waiters.get(queue, ())
        for what, count, limit in (
            ("waiters", len(self.waiters), self.waiter_limit),
            (f"waiters of {queue!r}", len(waiting), self.queue_waiter_limit),
        ):
            if count >= limit:
                raise QueueError(f"{what}: {count}, expected less than {limit}")
        own_count = sum(self.waiters[each][1] == client for each in waiting)
        refusal = self.refuse_part(client, "queue_waiter_limit", own_count + 1, _WAITER_REMEDY)
        if refusal is not None:
            raise QueueError(f"waiters of {queue!r}: {refusal}")
        self.take_share(client, "waiter_limit", _WAITER_REMEDY, QueueError)
        self.waiters[waiter] = (queue, client)
        self.queue_waiters[queue] = (*waiting, waiter)

    def _end_waiter(self, waiter: tuple[int, int]) -> bool:
        if waiter not in self.waiters:
            return False
        queue, client = self.waiters.pop(waiter)
        self.count_share(client, "waiter_limit", -1)
        left = tuple(each for each in self.queue_waiters.pop(queue) if each != waiter)
        if left:
            self.queue_waiters[queue] = left
        return True

    def _delete_schedule(self, name: str) -> bool:
        schedule = self.schedules.pop(name, None)
        if schedule is None:
            return False
        self._due.remove(due_key(schedule.next_ns, _SCHEDULE, name.encode()))
        self._count_bytes(schedule.client, -schedule_size(schedule))
        return True

    def _due_keys(self) -> Iterator[bytes]:
        for number, each in self.messages.items():
            if each.due_ns:
                yield due_key(each.due_ns, _MESSAGE, number_key(number))
        for key, (_, forget_ns) in self.keys.items():
            yield due_key(forget_ns, _KEY, pair_key(*key))
        for name, schedule in self.schedules.items():
            yield due_key(schedule.next_ns, _SCHEDULE, name.encode())
