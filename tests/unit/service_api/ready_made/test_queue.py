"""The queues, one service by hand."""

from __future__ import annotations

import pytest

from tests.unit.service_api.ready_made.calling import call_as
from trimaran.cluster.testing import TypedHarness
from trimaran.cluster.testing.harness import START_TIME
from trimaran.service_api.ready_made.queue import (
    AckMessage,
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
    QueueError,
    QueueFullError,
    QueueReady,
    QueueService,
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
    WaiterState,
)
from trimaran.service_api.typed import Command, Query

START_S = START_TIME // 1_000


class SmallQueues(QueueService):
    queue_limit = 2
    share_divisor = 1
    schedule_limit = 1
    lease_limit = 2
    key_limit = 1
    waiter_limit = 3
    queue_waiter_limit = 2
    store_limit_bytes = 4_096


@pytest.fixture
def queues() -> TypedHarness[QueueService]:
    return TypedHarness(QueueService)


@pytest.fixture
def small() -> TypedHarness[SmallQueues]:
    return TypedHarness(SmallQueues)


def send(queues: TypedHarness[QueueService], body: str, **options: int | float | str) -> int:
    return queues.call(SendMessage("q", body.encode(), **options)).message_id  # type: ignore[arg-type]


def receive(queues: TypedHarness[QueueService], limit: int = 10, lease_s: float = 30) -> list[ReceivedMessage]:
    return queues.call(ReceiveMessages("q", limit, lease_s))


def stats(queues: TypedHarness[QueueService]) -> tuple[int, int, int, int]:
    found = queues.ask(ReadQueueStats("q"))
    return found.ready, found.delayed, found.leased, found.dead


# --- order, leases


def test_messages_come_by_priority_and_then_as_they_were_sent(queues: TypedHarness[QueueService]) -> None:
    for body, priority in (("a", 0), ("b", 9), ("c", 0), ("d", 5), ("e", 9)):
        send(queues, body, priority=priority)

    assert [each.body for each in receive(queues, 3)] == [b"b", b"e", b"d"]
    assert [each.body for each in receive(queues)] == [b"a", b"c"]
    assert receive(queues) == []


def test_a_message_that_is_acknowledged_is_gone_and_its_receipt_is_stale(queues: TypedHarness[QueueService]) -> None:
    sent = queues.call(SendMessage("q", b"a", headers={"n": "1"}))
    (message,) = receive(queues)
    assert message == ReceivedMessage("q", sent.message_id, message.receipt, b"a", {"n": "1"}, 0, 1, START_S)
    assert stats(queues) == (0, 0, 1, 0)

    assert queues.call(AckMessage(message.receipt))

    assert queues.ask(ListQueues()) == []
    with pytest.raises(StaleReceiptError, match=f"receipt={message.receipt}"):
        queues.call(AckMessage(message.receipt))


def test_a_lease_ends_with_time_and_its_receipt_is_refused(queues: TypedHarness[QueueService]) -> None:
    send(queues, "a")
    (first,) = receive(queues, lease_s=10)
    queues.advance(9.9)
    assert stats(queues) == (0, 0, 1, 0)

    queues.advance(0.1)

    assert stats(queues) == (0, 1, 0, 0)
    for command in (AckMessage(first.receipt), NackMessage(first.receipt), ExtendLease(first.receipt)):
        with pytest.raises(StaleReceiptError):
            queues.call(command)
    queues.advance(1)
    (second,) = receive(queues)
    assert (second.message_id, second.delivery_count) == (first.message_id, 2)
    assert second.receipt != first.receipt


def test_a_lease_that_is_extended_ends_later(queues: TypedHarness[QueueService]) -> None:
    send(queues, "a")
    (message,) = receive(queues, lease_s=10)
    queues.advance(8)

    assert queues.call(ExtendLease(message.receipt, 10)) == START_S + 18

    queues.advance(9.9)
    assert stats(queues) == (0, 0, 1, 0)
    queues.advance(0.1)
    assert stats(queues) == (0, 1, 0, 0)


@pytest.mark.parametrize("is_extended", [False, True])
def test_a_lease_ends_with_its_session_if_it_was_taken_so(
    queues: TypedHarness[QueueService], is_extended: bool
) -> None:
    send(queues, "a")
    send(queues, "b")
    worker = queues.open_session()
    (bound,) = call_as(queues, worker, ReceiveMessages("q", 1, 30, is_with_session=True))
    (free,) = call_as(queues, worker, ReceiveMessages("q", 1, 30))
    if is_extended:
        call_as(queues, worker, ExtendLease(bound.receipt, 60))

    worker.close()

    assert stats(queues) == (0, 1, 1, 0)
    with pytest.raises(StaleReceiptError):
        queues.call(AckMessage(bound.receipt))
    assert queues.call(AckMessage(free.receipt))


def test_a_message_that_is_delayed_comes_when_it_is_due(queues: TypedHarness[QueueService]) -> None:
    send(queues, "late", delay_s=5)
    send(queues, "later", delay_s=7)
    send(queues, "sooner", delay_s=0.5)
    assert stats(queues) == (0, 3, 0, 0)

    queues.advance(0.5)
    assert [each.body for each in receive(queues)] == [b"sooner"]
    queues.advance(10)
    assert [each.body for each in receive(queues)] == [b"late", b"later"]


# --- failures


def test_a_delivery_that_fails_is_delayed_twice_as_long_and_the_last_one_is_dead(
    queues: TypedHarness[QueueService],
) -> None:
    queues.call(DefineQueue("q", QueueSettings(max_deliveries=4, backoff_s=2, backoff_limit_s=5)))
    message_id = send(queues, "poison")
    delays = []
    for _ in range(3):
        (message,) = receive(queues)
        assert queues.call(NackMessage(message.receipt, reason="no")) is MessageState.DELAYED
        waited = 0
        while not stats(queues)[0]:
            queues.advance(1)
            waited += 1
        delays.append(waited)
    (message,) = receive(queues)

    assert queues.call(NackMessage(message.receipt, reason="x" * 2_000)) is MessageState.DEAD

    assert delays == [2, 4, 5]
    (dead,) = queues.ask(ListDeadMessages("q"))
    assert (dead.message_id, dead.body, dead.delivery_count, dead.reason) == (message_id, b"poison", 4, "x" * 1_000)
    assert (dead.sent_at_s, dead.died_at_s) == (START_S, START_S + 11)
    assert queues.ask(ListDeadMessages("q", after=message_id)) == []


def test_a_delivery_that_fails_may_say_how_long_it_is_delayed(queues: TypedHarness[QueueService]) -> None:
    send(queues, "a")
    (message,) = receive(queues)
    assert queues.call(NackMessage(message.receipt, 0)) is MessageState.READY
    (message,) = receive(queues)
    assert queues.call(NackMessage(message.receipt, 60)) is MessageState.DELAYED
    queues.advance(60)
    (message,) = receive(queues)
    assert message.delivery_count == 3

    queues.call(NackMessage(message.receipt, is_counted=False))

    assert receive(queues)[0].delivery_count == 3


def test_what_is_dead_can_be_sent_again_or_removed(queues: TypedHarness[QueueService]) -> None:
    queues.call(DefineQueue("q", QueueSettings(max_deliveries=1)))
    ids = [send(queues, body, priority=number) for number, body in enumerate("abc")]
    for message in receive(queues):
        queues.call(NackMessage(message.receipt))
    assert [each.message_id for each in queues.ask(ListDeadMessages("q"))] == ids
    assert [each.message_id for each in queues.ask(ListDeadMessages("q", after=ids[0], limit=1))] == [ids[1]]

    assert queues.call(ReviveMessage("q", ids[0])) is True
    assert queues.call(ReviveMessage("q", ids[0])) is False
    assert queues.call(ReviveMessage("other", ids[1])) is False
    assert [(each.message_id, each.delivery_count) for each in receive(queues)] == [(ids[0], 1)]
    assert queues.call(PurgeMessages("q", MessageState.DEAD)) == 2
    assert stats(queues) == (0, 0, 1, 0)


def test_a_purge_takes_a_thousand_of_one_state(queues: TypedHarness[QueueService]) -> None:
    for number in range(1_001):
        queues.call(SendMessage("q", b"", delay_s=number % 2 * 0.0))
    send(queues, "later", delay_s=9)
    queues.call(SendMessage("r", b"other queue"))

    assert queues.call(PurgeMessages("q", MessageState.READY)) == 1_000
    assert queues.call(PurgeMessages("q", MessageState.READY)) == 1
    assert queues.call(PurgeMessages("q", MessageState.READY)) == 0
    assert stats(queues) == (0, 1, 0, 0)
    assert queues.call(PurgeMessages("q", MessageState.DELAYED)) == 1
    with pytest.raises(QueueError, match="state='leased' expected"):
        queues.call(PurgeMessages("q", MessageState.LEASED))
    assert [each.name for each in queues.ask(ListQueues())] == ["r"]


# --- keys


def test_a_key_is_sent_once_within_its_time_also_when_its_message_is_done(queues: TypedHarness[QueueService]) -> None:
    queues.call(DefineQueue("q", QueueSettings(key_window_s=60)))
    first = queues.call(SendMessage("q", b"a", key="k"))
    (message,) = receive(queues)
    queues.call(AckMessage(message.receipt))

    again = queues.call(SendMessage("q", b"b", key="k"))
    other = queues.call(SendMessage("r", b"b", key="k"))

    assert (again.message_id, again.is_duplicate) == (first.message_id, True)
    assert not other.is_duplicate
    assert receive(queues) == []
    queues.advance(60)
    assert not queues.call(SendMessage("q", b"c", key="k")).is_duplicate
    queues.advance(1_000)
    assert queues.service.keys == {}


# --- waiters


def test_one_waiter_is_woken_for_each_message_in_order(queues: TypedHarness[QueueService]) -> None:
    other = queues.open_session()
    assert queues.call(ReceiveMessages("q", waiter=1)) == []
    assert queues.call(ReceiveMessages("q", waiter=2)) == []
    assert call_as(queues, other, ReceiveMessages("q", waiter=1)) == []
    assert queues.ask(ReadQueueStats("q")).waiters == 3
    assert queues.ask(ReadWaiter(queues.client.id, 1, "q")) == WaiterState(True, 0)

    send(queues, "a")
    assert queues.events(QueueReady) == [QueueReady(1)]
    assert queues.ask(ReadWaiter(queues.client.id, 1, "q")) == WaiterState(False, 1)
    send(queues, "late", delay_s=1)
    assert len(queues.events(QueueReady)) == 1
    queues.advance(1)
    assert queues.events(QueueReady) == [QueueReady(1), QueueReady(2)]
    send(queues, "b")
    assert len(other.egress) == 1
    assert queues.ask(ReadQueueStats("q")).waiters == 0


def test_a_waiter_ends_when_it_receives_or_says_so_or_with_its_session(queues: TypedHarness[QueueService]) -> None:
    worker = queues.open_session()
    call_as(queues, worker, ReceiveMessages("q", waiter=1))
    call_as(queues, worker, ReceiveMessages("r", waiter=1))
    assert queues.ask(ReadQueueStats("q")).waiters == 0
    assert queues.ask(ReadQueueStats("r")).waiters == 1
    assert call_as(queues, worker, EndWaiter(1)) is True
    assert call_as(queues, worker, EndWaiter(1)) is False
    call_as(queues, worker, ReceiveMessages("q", waiter=2))

    worker.close()

    assert (queues.service.waiters, queues.service.queue_waiters) == ({}, {})


# --- bounds


def test_a_queue_that_is_full_refuses_and_says_why(queues: TypedHarness[QueueService]) -> None:
    queues.call(DefineQueue("q", QueueSettings(message_limit=2)))
    queues.call(DefineQueue("r", QueueSettings(size_limit_bytes=300)))
    send(queues, "a")
    send(queues, "b", delay_s=1, key="b")

    with pytest.raises(QueueFullError, match=r"queue='q', message_count=2, .*message_limit=2"):
        send(queues, "c")
    with pytest.raises(QueueFullError, match=r"queue='r', message_count=0, size_bytes=0, .*size_limit_bytes=300"):
        queues.call(SendMessage("r", b"x" * 45))
    assert queues.call(SendMessage("q", b"b", key="b")).is_duplicate
    assert queues.ask(ReadQueueStats("q")).size_bytes == 2 * 256 + 3
    queues.call(SendMessage("r", b"x" * 44))


def test_the_service_has_limits_of_its_own(small: TypedHarness[SmallQueues]) -> None:
    small.call(SendMessage("q", b"a", key="k"))
    for number in range(2):
        small.call(SendMessage("r", b"%d" % number))
    with pytest.raises(QueueError, match=r"queues=2.* 2"):
        small.call(SendMessage("s", b""))
    with pytest.raises(QueueError, match=r"keys=1.* 1"):
        small.call(SendMessage("q", b"", key="k2"))
    with pytest.raises(QueueFullError, match="store_limit_bytes=4096"):
        small.call(SendMessage("q", b"x" * 4_000))
    assert len(small.call(ReceiveMessages("r", 1)) + small.call(ReceiveMessages("q", 10))) == 2
    with pytest.raises(QueueError, match=r"leases=2.* 2"):
        small.call(ReceiveMessages("r", 1))


def test_waiters_have_limits(small: TypedHarness[SmallQueues]) -> None:
    for number in range(2):
        small.call(ReceiveMessages("q", waiter=number))
    with pytest.raises(QueueError, match=r"waiters.*'q': 2,.* 2"):
        small.call(ReceiveMessages("q", waiter=2))
    small.call(ReceiveMessages("r", waiter=2))
    with pytest.raises(QueueError, match=r"waiters: 3,.* 3"):
        small.call(ReceiveMessages("r", waiter=3))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (SendMessage("", b""), "the name of the queue has 0 bytes, expected 1 to 256"),
        (SendMessage("é" * 129, b""), "the name of the queue has 258 bytes"),
        (SendMessage("q", b"x" * (1 << 20) + b"x"), "body has 1048577 bytes, expected at most 1048576"),
        (SendMessage("q", b"", priority=10), "priority=10 expected 0 to 9"),
        (SendMessage("q", b"", delay_s=-1), "delay_s=-1.0 expected 0 to"),
        (SendMessage("q", b"", delay_s=float("nan")), "delay_s=nan expected 0 to"),
        (SendMessage("q", b"", delay_s=float("inf")), "delay_s=inf expected 0 to"),
        (SendMessage("q", b"", key="k" * 513), "key has 513 bytes, expected at most 512"),
        (SendMessage("q", b"", headers={str(n): "" for n in range(33)}), "headers=33 expected at most 32"),
        (SendMessage("q", b"", headers={"n": "v" * 8_192}), "headers have 8193 bytes, expected at most 8192"),
        (ReceiveMessages("", 1), "the name of the queue has 0 bytes"),
        (ReceiveMessages("q", 0), "limit=0 expected 1 to 1000"),
        (ReceiveMessages("q", 1, 0.01), "lease_s=0.01 expected 0.1 to 604800"),
        (ReceiveMessages("q", waiter=-1), "waiter=-1 expected 0 to"),
        (DefineQueue("q", QueueSettings(max_deliveries=0)), "max_deliveries=0 expected 1 to 1000"),
        (DefineQueue("q", QueueSettings(backoff_s=9, backoff_limit_s=1)), "backoff_limit_s=1.0 expected 9.0 to"),
        (DefineQueue("q", QueueSettings(message_limit=0)), "message_limit=0 expected 1 to"),
        (DefineQueue("q", QueueSettings(size_limit_bytes=1 << 40)), "size_limit_bytes=1099511627776 expected 1 to"),
        (DefineQueue("", QueueSettings()), "the name of the queue has 0 bytes"),
        (PurgeMessages("q" * 70_000, MessageState.READY), "the name of the queue has 70000 bytes"),
        (ScheduleMessages("", "q", b"", cron="* * * * *"), "the name of the schedule has 0 bytes"),
        (ScheduleMessages("s", "q", b""), "cron='' and at_s=None expected one of them"),
        (ScheduleMessages("s", "q", b"", cron="* * * * *", at_s=1), "expected one of them"),
        (ScheduleMessages("s", "q", b"", cron="61 * * * *"), "minute='61' expected numbers from 0 to 59"),
        (ScheduleMessages("s", "q", b"", at_s=float("nan")), "at_s=nan expected 0 to"),
    ],
)
def test_an_argument_that_is_wrong_is_named(
    queues: TypedHarness[QueueService], message: Command[object], expected: str
) -> None:
    with pytest.raises(QueueError, match=expected.replace("(", r"\(")):
        queues.call(message)


@pytest.mark.parametrize(
    "query",
    [
        ListDeadMessages("q" * 70_000),
        ListDeadMessages("q", after=(1 << 64) - 1),
        ListDeadMessages("q", after=-1),
        ListDeadMessages("q", limit=1_001),
        ListQueues(limit=0),
        ListSchedules(limit=-1),
        ReadQueueStats("q" * 70_000),
    ],
)
def test_a_query_that_is_wrong_is_refused(queues: TypedHarness[QueueService], query: Query[object]) -> None:
    with pytest.raises(QueueError, match="expected"):
        queues.ask(query)


def test_a_large_answer_ends_before_a_mebibyte(queues: TypedHarness[QueueService]) -> None:
    queues.call(DefineQueue("q", QueueSettings(max_deliveries=1)))
    for _ in range(4):
        queues.call(SendMessage("q", b"x" * 400_000))

    first = receive(queues)
    for each in (*first, *receive(queues)):
        queues.call(NackMessage(each.receipt))

    assert len(first) == 2
    page = queues.ask(ListDeadMessages("q"))
    assert len(page) == 2
    assert len(queues.ask(ListDeadMessages("q", after=page[-1].message_id))) == 2


# --- queues


def test_a_queue_has_settings_until_it_is_deleted(queues: TypedHarness[QueueService]) -> None:
    chosen = QueueSettings(max_deliveries=2)
    assert queues.call(DefineQueue("q", chosen)).settings == chosen
    send(queues, "a")
    queues.advance(2)
    assert queues.ask(ReadQueueSettings("q")) == chosen
    assert queues.ask(ReadQueueSettings("other")) == QueueSettings()
    with pytest.raises(QueueError, match=r"queue='q'.*messages"):
        queues.call(DeleteQueue("q"))
    assert queues.ask(ListQueues()) == [QueueStats("q", 1, 0, 0, 0, 257, 2.0, 0)]
    queues.call(PurgeMessages("q", MessageState.READY))

    assert queues.call(DeleteQueue("q")) is True

    assert queues.call(DeleteQueue("q")) is False
    assert queues.ask(ListQueues()) == []


def test_queues_are_listed_in_pages_by_name(queues: TypedHarness[QueueService]) -> None:
    for name in ("b", "a/2", "a/1", "a/3"):
        queues.call(SendMessage(name, b""))

    assert [each.name for each in queues.ask(ListQueues("a/", limit=2))] == ["a/1", "a/2"]
    assert [each.name for each in queues.ask(ListQueues("a/", after="a/2"))] == ["a/3"]


# --- schedules


def test_a_schedule_sends_at_the_times_of_its_line(queues: TypedHarness[QueueService]) -> None:
    # The harness begins at 2023-11-14 22:13:20 UTC.
    shown = queues.call(ScheduleMessages("s", "q", b"go", cron="*/5 * * * *", headers={"n": "1"}, priority=3))
    assert shown.next_at_s == START_S + 100
    queues.advance(99)
    assert stats(queues)[0] == 0

    queues.advance(1)

    (message,) = receive(queues)
    assert (message.body, message.priority) == (b"go", 3)
    assert message.headers == {"n": "1", "schedule": "s", "scheduled-at": "2023-11-14T22:15:00+00:00"}
    queues.call(AckMessage(message.receipt))
    for _ in range(3):
        queues.advance(300)
    assert stats(queues)[0] == 3
    (listed,) = queues.ask(ListSchedules())
    assert (listed.fired_count, listed.next_at_s) == (4, START_S + 100 + 4 * 300)
    assert queues.call(DeleteSchedule("s")) is True
    assert queues.call(DeleteSchedule("s")) is False
    queues.advance(1_000)
    assert stats(queues)[0] == 3
    assert queues.service.store_bytes == queues.ask(ReadQueueStats("q")).size_bytes


def test_times_that_were_missed_are_one(queues: TypedHarness[QueueService]) -> None:
    queues.call(ScheduleMessages("s", "q", b"", cron="* * * * *"))
    alarm_id = queues.service.alarm_id
    later = queues.time + 600_000
    queues._now = later
    queues.fire_timer(alarm_id)

    assert stats(queues)[0] == 1
    assert queues.ask(ListSchedules())[0].next_at_s > later / 1_000


def test_a_schedule_may_fire_once(queues: TypedHarness[QueueService]) -> None:
    queues.call(ScheduleMessages("past", "q", b"past", at_s=0))
    queues.call(ScheduleMessages("soon", "q", b"soon", at_s=START_S + 5))
    queues.advance(0)
    assert [each.body for each in receive(queues)] == [b"past"]
    queues.advance(5)

    assert [each.body for each in receive(queues)] == [b"soon"]
    assert queues.ask(ListSchedules()) == []


def test_a_schedule_whose_queue_is_full_counts_it(queues: TypedHarness[QueueService]) -> None:
    queues.call(DefineQueue("q", QueueSettings(message_limit=1)))
    queues.call(ScheduleMessages("s", "q", b"", cron="* * * * *"))
    for _ in range(3):
        queues.advance(60)

    (listed,) = queues.ask(ListSchedules())
    assert (listed.fired_count, listed.refused_count) == (1, 2)


def test_a_schedule_that_is_refused_leaves_the_one_there_was(small: TypedHarness[SmallQueues]) -> None:
    small.call(ScheduleMessages("s", "q", b"old", cron="* * * * *"))
    before = small.service.state_hash()
    with pytest.raises(QueueError, match="the store"):
        small.call(ScheduleMessages("s", "q", b"x" * 4_000, cron="*/2 * * * *"))
    with pytest.raises(QueueError, match=r"schedules=1.* 1"):
        small.call(ScheduleMessages("t", "q", b"", cron="* * * * *"))
    assert small.service.state_hash() == before

    small.advance(60)

    assert [each.body for each in small.call(ReceiveMessages("q"))] == [b"old"]


# --- the state


def test_a_restart_from_a_snapshot_changes_nothing(queues: TypedHarness[QueueService]) -> None:
    queues.call(DefineQueue("q", QueueSettings(max_deliveries=1)))
    queues.call(ScheduleMessages("s", "q", b"go", cron="* * * * *"))
    for number in range(3):
        send(queues, str(number), priority=number)
    send(queues, "late", delay_s=5, key="k")
    dead, leased = receive(queues, 2, lease_s=7)
    queues.call(NackMessage(dead.receipt))
    before = queues.service.state_hash()

    queues.restart()

    assert queues.service.state_hash() == before
    assert stats(queues) == (1, 1, 1, 1)
    queues.advance(5)
    assert [each.body for each in receive(queues)] == [b"0", b"late"]
    assert queues.call(AckMessage(leased.receipt))
    queues.advance(60)
    assert [each.body for each in receive(queues)] == [b"go"]


def test_more_than_one_alarm_takes_what_is_due_at_once(queues: TypedHarness[QueueService]) -> None:
    for _ in range(2_100):
        queues.call(SendMessage("q", b"", delay_s=5))

    queues.advance(5)

    assert stats(queues) == (2_100, 0, 0, 0)
    assert queues.service.timers == {}
