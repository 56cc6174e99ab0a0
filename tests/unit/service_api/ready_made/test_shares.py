"""Shares of the ready-made services: one client takes its part of a limit, and the others have the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import pytest

from tests.facts import has_facts
from tests.unit.service_api.ready_made.calling import call_as
from trimaran.cluster.testing import TypedHarness
from trimaran.cluster.testing.harness import HarnessSession
from trimaran.service_api.ready_made.counters import (
    AskAdmission,
    CounterService,
    CountUp,
    DefineRateLimit,
    DeleteCounter,
    DeleteRateLimit,
)
from trimaran.service_api.ready_made.kv import (
    DeleteKey,
    EndWatch,
    KvService,
    PutKey,
    RunTransaction,
    WatchKeys,
    delete_key,
    put_key,
)
from trimaran.service_api.ready_made.locks import ClaimLock, LockService, ReleaseLock
from trimaran.service_api.ready_made.queue import (
    AckMessage,
    DeleteSchedule,
    EndWaiter,
    NackMessage,
    QueueFullError,
    QueueService,
    ReceiveMessages,
    ScheduleMessages,
    SendMessage,
)
from trimaran.service_api.ready_made.sharing import SharingService
from trimaran.service_api.typed import Command, ServiceError

LIMIT: Final = 8
SHARE: Final = 2
MESSAGE_BYTES: Final = 256
"""An empty message counts so much."""


class SmallKv(KvService):
    ttl_limit = watch_limit = LIMIT


class SmallLocks(LockService):
    claim_limit = LIMIT


class ShortLocks(LockService):
    queue_limit = LIMIT


class SmallQueues(QueueService):
    store_limit_bytes = LIMIT * MESSAGE_BYTES


class FewLeases(QueueService):
    lease_limit = waiter_limit = LIMIT


class ShortQueues(QueueService):
    queue_waiter_limit = LIMIT


class SmallCounters(CounterService):
    counter_limit = definition_limit = use_limit = LIMIT


@dataclass(frozen=True)
class Case:
    """How a client takes of a limit, and gives one back; numbers make each call another one."""

    service: type[SharingService]
    limit_name: str
    take: Callable[[int], Command[Any]]
    give: Callable[[int], Command[Any]]
    unit: int = 1
    prepare: Callable[[int], Command[Any]] | None = None

    def __str__(self) -> str:
        return f"{self.service.__name__}.{self.limit_name}"


CASES: Final = (
    Case(SmallKv, "watch_limit", lambda n: WatchKeys(n, b"", b""), EndWatch),
    Case(SmallKv, "ttl_limit", lambda n: PutKey(b"%d" % n, b"", ttl_s=9), lambda n: DeleteKey(b"%d" % n)),
    Case(SmallLocks, "claim_limit", lambda n: ClaimLock(f"L{n}", n), ReleaseLock),
    Case(ShortLocks, "queue_limit", lambda n: ClaimLock("a", n), ReleaseLock),
    Case(FewLeases, "waiter_limit", lambda n: ReceiveMessages(f"q{n}", waiter=n), EndWaiter),
    Case(ShortQueues, "queue_waiter_limit", lambda n: ReceiveMessages("q", waiter=n), EndWaiter),
    Case(
        FewLeases,
        "lease_limit",
        lambda n: ReceiveMessages("q"),
        AckMessage,
        prepare=lambda n: SendMessage("q", b"%d" % n),
    ),
    Case(
        SmallQueues,
        "store_limit_bytes",
        lambda n: ScheduleMessages(f"s{n}", "q", b"", cron="0 0 * * *"),
        lambda n: DeleteSchedule(f"s{n}"),
        unit=MESSAGE_BYTES,
    ),
    Case(SmallCounters, "counter_limit", lambda n: CountUp(f"c{n}"), lambda n: DeleteCounter(f"c{n}")),
    Case(
        SmallCounters, "definition_limit", lambda n: DefineRateLimit(f"r{n}", 1, 1), lambda n: DeleteRateLimit(f"r{n}")
    ),
)


class Greedy:
    """Clients of one service that take what they can."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.harness = TypedHarness(case.service)
        self.number = 0
        for n in range(4 * LIMIT if case.prepare is not None else 0):
            assert case.prepare is not None
            self.harness.call(case.prepare(n))

    def take(self, session: HarnessSession) -> int:
        """Take one; gives its number."""
        self.number += 1
        call_as(self.harness, session, self.case.take(self.number))
        return self.number

    def take_all(self, session: HarnessSession) -> str:
        """Take until refused; gives why."""
        for _ in range(LIMIT + 1):
            try:
                self.take(session)
            except ServiceError as error:
                return str(error)
        raise AssertionError(f"never refused: {self.case}")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_session_takes_its_share_and_is_told_the_rest_is_for_others(case: Case) -> None:
    greedy = Greedy(case)
    session = greedy.harness.open_session()

    said = greedy.take_all(session)

    share, wanted = SHARE * case.unit, (SHARE + 1) * case.unit
    limit = f"{case.limit_name}={LIMIT * case.unit}"
    assert greedy.number == SHARE + 1
    assert has_facts(said, f"session={session.id}", f"{wanted} of {limit}", f"share={share}", "; ")
    for _ in range(LIMIT // SHARE - 1):
        other = greedy.harness.open_session()
        for _ in range(SHARE):
            greedy.take(other)
    assert "share=" not in greedy.take_all(greedy.harness.open_session())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_sessions_of_a_principal_have_one_share(case: Case) -> None:
    greedy = Greedy(case)
    first, second = (greedy.harness.open_session(b"app") for _ in range(2))
    greedy.take(first)
    greedy.take(second)

    said = greedy.take_all(second)

    assert greedy.number == SHARE + 1
    assert has_facts(said, "principal=b'app'", f"share={SHARE * case.unit}")
    greedy.take(greedy.harness.open_session(b"another"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_share_is_in_the_snapshot_and_comes_back_with_what_is_given(case: Case) -> None:
    greedy = Greedy(case)
    session = greedy.harness.open_session()
    first = greedy.take(session)
    greedy.take(session)

    greedy.harness.restart()
    refused = greedy.take_all(session)
    call_as(greedy.harness, session, case.give(first))
    greedy.take(session)

    assert has_facts(refused, f"session={session.id}", f"share={SHARE * case.unit}")
    assert "share=" in greedy.take_all(session)


@pytest.mark.parametrize("case", [case for case in CASES if case.unit == 1], ids=str)
def test_a_service_may_have_no_shares(case: Case) -> None:
    class Whole(case.service):  # type: ignore[name-defined, misc]  # a class of the case
        share_divisor = 1

    greedy = Greedy(Case(Whole, case.limit_name, case.take, case.give, prepare=case.prepare))
    session = greedy.harness.open_session()

    said = greedy.take_all(session)

    assert greedy.number == LIMIT + 1
    assert str(LIMIT) in said


def test_a_key_that_gets_another_ttl_is_counted_once_for_who_set_it_last() -> None:
    kv = TypedHarness(SmallKv)
    first, second = kv.open_session(), kv.open_session()
    for session in (first, first, second, second):
        call_as(kv, session, PutKey(b"a", b"", ttl_s=9))

    assert kv.service.shares == {("ttl_limit", b"s%d" % second.id): 1}
    kv.advance(9)
    assert kv.service.shares == {}


def test_a_transaction_that_is_refused_for_its_share_has_taken_nothing() -> None:
    kv = TypedHarness(SmallKv)
    puts = [PutKey(b"%d" % n, b"", ttl_s=9) for n in range(SHARE)]
    for put in puts:
        kv.call(put)
    before = dict(kv.service.shares)

    with pytest.raises(ServiceError, match=f"share={SHARE}"):
        kv.call(RunTransaction([], [delete_key("0"), put_key("x", "", ttl_s=9), put_key("y", "", ttl_s=9)], []))

    assert kv.service.shares == before
    assert len(kv.service.expiry_timers) == SHARE


def test_what_outlives_its_session_counts_for_that_client_until_it_is_gone() -> None:
    queues = TypedHarness(SmallQueues)
    session = queues.open_session()
    for _ in range(SHARE):
        call_as(queues, session, SendMessage("q", b""))
    with pytest.raises(QueueFullError, match=f"share={SHARE * MESSAGE_BYTES}"):
        call_as(queues, session, SendMessage("q", b""))

    session.close()
    (received,) = queues.call(ReceiveMessages("q"))
    queues.call(AckMessage(received.receipt))

    assert queues.service.shares == {("store_limit_bytes", b"s%d" % session.id): MESSAGE_BYTES}


def test_a_schedule_sends_of_the_share_of_who_made_it() -> None:
    queues = TypedHarness(SmallQueues)
    queues.call(ScheduleMessages("s", "q", b"", cron="* * * * *"))

    queues.advance(180)

    assert queues.service.shares == {("store_limit_bytes", b"s%d" % queues.client.id): SHARE * MESSAGE_BYTES}
    assert (queues.service.schedules["s"].fired_count, queues.service.schedules["s"].refused_count) == (1, 2)


def test_keys_of_rate_limits_have_a_share_until_their_uses_are_back() -> None:
    counters = TypedHarness(SmallCounters)
    counters.call(DefineRateLimit("r", 1, 1))
    greedy = counters.open_session()
    for number in range(SHARE):
        assert call_as(counters, greedy, AskAdmission("r", f"k{number}")).is_admitted
    with pytest.raises(ServiceError, match=rf"use_limit={LIMIT}.*share={SHARE}"):
        call_as(counters, greedy, AskAdmission("r", "another"))
    assert counters.call(AskAdmission("r", "another")).is_admitted

    counters.advance(2)

    assert call_as(counters, greedy, AskAdmission("r", "another")).is_admitted
    assert counters.service.shares[("use_limit", b"s%d" % greedy.id)] == 1


# --- any order of commands


def held(service: Any) -> Iterator[tuple[str, bytes, int]]:
    """Give all that is held of limits: what `shares` counts, from the things themselves."""
    if isinstance(service, SmallKv):
        yield from (("watch_limit", b"s%d" % session_id, 1) for session_id, _ in service.watches)
        yield from (("ttl_limit", client, 1) for _, _, client in service.expiry_timers.values())
    elif isinstance(service, SmallLocks):
        yield from (("claim_limit", claim.client, 1) for claim in service.claims.values())
    elif isinstance(service, SmallCounters):
        yield from (("counter_limit", client, 1) for client in service.counter_clients.values())
        yield from (("definition_limit", client, 1) for client in service.limit_clients.values())
        yield from (("use_limit", client, 1) for _, client in service.full_at_ns.values())
    else:
        for message in service.messages.values():
            yield "store_limit_bytes", message.client, message.size_bytes
            if message.receipt:
                yield "lease_limit", message.receiver, 1
        yield from (("waiter_limit", client, 1) for _, client in service.waiters.values())
        yield from (("store_limit_bytes", each.client, MESSAGE_BYTES) for each in service.schedules.values())


def recount(service: Any) -> dict[tuple[str, bytes], int]:
    """Count what each client holds."""
    counts = Counter[tuple[str, bytes]]()
    for limit_name, client, amount in held(service):
        counts[limit_name, client] += amount
    return dict(counts)


class AllQueues(SmallQueues):
    lease_limit = waiter_limit = LIMIT


ORDERS: Final[dict[type[SharingService], Callable[[Random], Command[Any]]]] = {
    SmallKv: lambda random: random.choice(
        (
            WatchKeys(random.randrange(4), b"", b""),
            EndWatch(random.randrange(4)),
            PutKey(b"%d" % random.randrange(4), b"", ttl_s=random.choice((None, 1, 3))),
            DeleteKey(b"%d" % random.randrange(4)),
        )
    ),
    SmallLocks: lambda random: random.choice(
        (
            ClaimLock(
                random.choice("ab"),
                random.randrange(4),
                random.random() < 0.5,
                wait_s=random.choice((None, 0, 2)),
                lease_s=random.choice((None, 2)),
            ),
            ReleaseLock(random.randrange(4)),
        )
    ),
    SmallCounters: lambda random: random.choice(
        (
            CountUp(f"c{random.randrange(4)}", maximum=2),
            DeleteCounter(f"c{random.randrange(4)}"),
            DefineRateLimit(random.choice("rs"), 2, 2),
            DeleteRateLimit(random.choice("rs")),
            AskAdmission(random.choice("rs"), f"k{random.randrange(4)}"),
        )
    ),
    AllQueues: lambda random: random.choice(
        (
            SendMessage("q", b"", delay_s=random.choice((0, 2)), key=random.choice(("", "k"))),
            ReceiveMessages("q", 2, 1, random.random() < 0.5, random.choice((None, 1, 2))),
            AckMessage(random.randrange(1, 20)),
            NackMessage(random.randrange(1, 20)),
            EndWaiter(1),
            ScheduleMessages(random.choice("st"), "q", b"", cron="* * * * *"),
            DeleteSchedule(random.choice("st")),
        )
    ),
}


def run_in_any_order(
    service: Callable[[], SharingService], choose: Callable[[Random], Command[Any]], seed: int
) -> None:
    """Have three clients send commands in some order; shares are what they hold, and none holds more than its share."""
    random, harness = Random(seed), TypedHarness(service)
    sessions = [harness.open_session() for _ in range(3)]
    for _ in range(120):
        place = random.randrange(3)
        with suppress(ServiceError):
            call_as(harness, sessions[place], choose(random))
        chance = random.random()
        if chance < 0.04:
            sessions[place].close()
            sessions[place] = harness.open_session()
        elif chance < 0.08:
            harness.restart()
        elif chance < 0.2:
            harness.advance(random.choice((1, 2, 60)))
        assert recount(harness.service) == dict(harness.service.shares)
        for (limit_name, client), amount in harness.service.shares.items():
            assert amount <= harness.service.share_of(limit_name), (limit_name, client)


def run_seeds(service: Callable[[], SharingService], choose: Callable[[Random], Command[Any]], seed_count: int) -> None:
    """Run several orders."""
    for seed in range(seed_count):
        run_in_any_order(service, choose, seed)


@pytest.mark.parametrize("service", ORDERS, ids=lambda service: service.__name__)
def test_shares_are_what_clients_hold_in_any_order(service: type[SharingService]) -> None:
    run_seeds(service, ORDERS[service], 6)


def never_give_back(service: type[SharingService]) -> type[SharingService]:
    """Plant a bug: what is given back stays counted."""

    class Planted(service):  # type: ignore[valid-type, misc]  # a class of the test
        def count_share(self, client: bytes, limit_name: str, amount: int) -> None:
            super().count_share(client, limit_name, max(amount, 0))

    return Planted


def refuse_nothing(service: type[SharingService]) -> type[SharingService]:
    """Plant a bug: shares are counted, and nobody looks at them."""

    class Planted(service):  # type: ignore[valid-type, misc]  # a class of the test
        def refuse_part(self, client: bytes, limit_name: str, wanted: int, remedy: str) -> str | None:
            return None

    return Planted


def forget_in_snapshots(service: type[SharingService]) -> type[SharingService]:
    """Plant a bug: a member that starts from a snapshot has counted nothing."""

    class Planted(service):  # type: ignore[valid-type, misc]  # a class of the test
        async def on_start(self, cluster: Any, snapshot: Any) -> None:
            await super().on_start(cluster, snapshot)
            self.shares.clear()

    return Planted


@pytest.mark.parametrize("plant", [never_give_back, refuse_nothing, forget_in_snapshots])
@pytest.mark.parametrize("service", ORDERS, ids=lambda service: service.__name__)
def test_a_planted_bug_in_shares_is_found(
    service: type[SharingService], plant: Callable[[type[SharingService]], type[SharingService]]
) -> None:
    """Control: `test_shares_are_what_clients_hold_in_any_order`."""
    with pytest.raises((AssertionError, KeyError)):
        run_seeds(plant(service), ORDERS[service], 20)
