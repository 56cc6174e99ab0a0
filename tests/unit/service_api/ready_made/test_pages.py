"""Lists end before they are longer than an answer may be: with short terms, and with entries just below the limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trimaran import Command, LocalProtocolError, Query, TypedService, answers, handles, state
from trimaran.cluster.testing import TypedHarness
from trimaran.service_api.ready_made.counters import (
    CounterService,
    CountUp,
    DefineRateLimit,
    ListCounters,
    ListRateLimits,
)
from trimaran.service_api.ready_made.kv import (
    KvChanges,
    KvError,
    KvService,
    ListKeys,
    PutKey,
    ReadChanges,
    ReadKey,
    RunTransaction,
    WatchKeys,
    get_key,
    put_key,
)
from trimaran.service_api.ready_made.locks import ClaimLock, ListLocks, LockService, ReadLock
from trimaran.service_api.ready_made.queue import (
    ListDeadMessages,
    ListQueues,
    ListSchedules,
    MessageState,
    NackMessage,
    QueueError,
    QueueService,
    ReceiveMessages,
    ScheduleMessages,
    SendMessage,
)
from trimaran.service_api.typed import Context

TERMS = pytest.mark.parametrize("term_length_bytes", [64 << 10, 1 << 20])


def largest(write: Callable[[bytes], object], error: type[Exception]) -> bytes:
    """Find the longest value that is taken."""
    taken, refused = 0, 1 << 20
    while refused - taken > 1:
        length = (taken + refused) // 2
        try:
            write(bytes(length))
            taken = length
        except error:
            refused = length
    assert taken > 0
    return bytes(taken)


def all_of(page_after: Callable[[Any], list[Any]], key: Callable[[Any], Any], first: Any = "") -> list[Any]:
    """Go through a list page by page, as clients do."""
    found: list[Any] = []
    while page := page_after(key(found[-1]) if found else first):
        found += page
    return found


@TERMS
def test_keys_and_changes_just_below_the_limit_are_listed_each_in_a_page(term_length_bytes: int) -> None:
    kv = TypedHarness(KvService, term_length_bytes=term_length_bytes)
    value = largest(lambda value: kv.call(PutKey(b"k", value)), KvError)
    for key in (b"a", b"b"):
        kv.call(PutKey(key, value))
    begin_revision = kv.call(PutKey(b"small", b"")) - 3

    pages, begin = [], b""
    while begin is not None:
        page = kv.ask(ListKeys(begin, b"", 1_000))
        pages.append([entry.key for entry in page.entries])
        begin = page.next_begin  # type: ignore[assignment]
    seen, after = [], begin_revision
    while after < kv.service.revision:
        changes = kv.ask(ReadChanges(b"", b"", after))
        seen += [change.key for change in changes.changes]
        after = changes.through_revision

    assert [key for page in pages for key in page] == [b"a", b"b", b"k", b"small"]
    assert len(pages) > 2
    assert seen == [b"a", b"b", b"small"]
    assert kv.ask(ReadKey(b"a")) is not None


def test_a_value_that_could_not_be_read_back_is_refused_with_the_limit() -> None:
    kv = TypedHarness(KvService, term_length_bytes=1 << 20)

    with pytest.raises(KvError, match=r"expected at most 1[0-9]{5}; term_length_bytes"):
        kv.call(PutKey(b"k", bytes(131_000)))


@TERMS
def test_a_watch_gets_every_change_that_fits_and_a_gap_for_one_that_does_not(term_length_bytes: int) -> None:
    """What is pushed names the change before it, so a client that lacks one asks for it."""
    kv = TypedHarness(KvService, term_length_bytes=term_length_bytes)
    value = largest(lambda value: kv.call(PutKey(b"k", value)), KvError)
    for number in range(100):
        kv.call(WatchKeys(number, b"", b""))
    first_revision = kv.service.revision

    kv.call(PutKey(b"a", value))
    kv.call(PutKey(b"b", value[: len(value) // 4]))
    kv.call(RunTransaction([], [put_key(f"t{n}", value[: len(value) // 8]) for n in range(6)], []))

    known = dict.fromkeys(range(100), first_revision)
    gap_count = 0
    for event in kv.events(KvChanges):
        for watch, previous in event.watches.items():
            gap_count += previous != known[watch]
            known[watch] = event.changes[-1].revision
    assert known == dict.fromkeys(range(100), kv.service.revision)
    assert gap_count <= 100


def test_a_transaction_whose_answer_is_too_long_changes_nothing() -> None:
    kv = TypedHarness(KvService, term_length_bytes=1 << 20)
    kv.call(PutKey(b"a", bytes(100_000)))

    with pytest.raises(KvError, match="the transaction has"):
        kv.call(RunTransaction([], [put_key("b", b"1"), get_key("a"), get_key("a")], []))

    assert kv.ask(ReadKey(b"b")) is None


@TERMS
def test_messages_just_below_the_limit_are_received_and_listed_when_they_are_dead(term_length_bytes: int) -> None:
    queue = TypedHarness(QueueService, term_length_bytes=term_length_bytes)
    body = largest(lambda body: queue.call(SendMessage("trial", body)), QueueError)
    for _ in range(3):
        queue.call(SendMessage("jobs", body))

    received: list[bytes] = []
    while queue.service.leases or queue.service._in_state("jobs", MessageState.READY, 1):
        while page := queue.call(ReceiveMessages("jobs", 10)):
            for message in page:
                received.append(message.body)
                queue.call(NackMessage(message.receipt, 0.0, "é" * 5_000))
    dead = all_of(lambda after: queue.ask(ListDeadMessages("jobs", after, 1_000)), lambda each: each.message_id, 0)

    assert set(received) == {body}
    assert len(dead) == 3


@TERMS
def test_schedules_just_below_the_limit_are_listed_and_what_they_send_is_received(term_length_bytes: int) -> None:
    queue = TypedHarness(QueueService, term_length_bytes=term_length_bytes)
    body = largest(lambda body: queue.call(ScheduleMessages("trial", "q" * 256, body, at_s=1.0)), QueueError)
    for name in ("a", "b"):
        queue.call(ScheduleMessages(name * 256, "q" * 256, body, cron="0 0 1 1 *"))

    found = all_of(lambda after: queue.ask(ListSchedules(after, 1_000)), lambda each: each.name)

    assert [each.name[0] for each in found if each.name != "trial"] == ["a", "b"]
    queue.advance(1)
    assert queue.call(ReceiveMessages("q" * 256, 1))[0].body == body


@TERMS
def test_long_names_are_listed_page_by_page(term_length_bytes: int) -> None:
    names = [f"{number:03}".ljust(256, "n") for number in range(240)]
    counters = TypedHarness(CounterService, term_length_bytes=term_length_bytes)
    locks = TypedHarness(LockService, term_length_bytes=term_length_bytes)
    queue = TypedHarness(QueueService, term_length_bytes=term_length_bytes)
    for number, name in enumerate(names):
        counters.call(CountUp(name, 1))
        counters.call(DefineRateLimit(name, 1, 1.0))
        locks.call(ClaimLock(name, number))
        queue.call(SendMessage(name, b""))

    lists = [
        all_of(lambda after: counters.ask(ListCounters("", after, 1_000)), lambda each: each.name),
        all_of(lambda after: counters.ask(ListRateLimits(after)), lambda each: each.name),
        all_of(lambda after: locks.ask(ListLocks("", after, 1_000)), lambda each: each.name),
        all_of(lambda after: queue.ask(ListQueues("", after, 1_000)), lambda each: each.name),
    ]

    assert [[each.name for each in found] for found in lists] == [names] * 4


@TERMS
def test_a_lock_with_many_waiters_is_shown_with_those_who_are_next(term_length_bytes: int) -> None:
    locks = TypedHarness(LockService, term_length_bytes=term_length_bytes)
    for number in range(100):
        locks.call(ClaimLock("leader", number, value=bytes(4_096)))

    shown = locks.ask(ReadLock("leader"))

    assert len(shown.holders) == 1
    assert shown.waiter_count == 99
    assert len(shown.waiters) < 99


class Grow(Command[str]):
    length: int


class Read(Query[str]):
    pass


class Text(TypedService):
    text: str = state()

    @handles(Grow)
    def grow(self, ctx: Context, message: Grow) -> str:
        self.text = "x" * message.length
        return self.text

    @answers(Read)
    def read(self, ctx: Context, message: Read) -> str:
        return self.text * 2


def test_an_answer_that_is_too_long_undoes_what_its_command_changed() -> None:
    """It was refused after the change had been kept."""
    harness = TypedHarness(Text, term_length_bytes=1 << 20)
    harness.call(Grow(70_000))

    with pytest.raises(LocalProtocolError, match=r"the answer to Grow has .* page by page"):
        harness.call(Grow(131_000))
    with pytest.raises(LocalProtocolError, match=r"the answer to Read has .* page by page"):
        harness.ask(Read())

    assert len(harness.service.text) == 70_000
