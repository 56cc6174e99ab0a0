"""Counters and rate limits, one service by hand and a cluster in memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.client.ready_made import CountersClient
from trimaran.cluster.testing import MemoryCluster, TypedHarness
from trimaran.service_api.ready_made.counters import (
    AskAdmission,
    Counted,
    CounterError,
    CounterService,
    CountUp,
    DefineRateLimit,
    DeleteCounter,
    DeleteRateLimit,
    ListCounters,
    ListRateLimits,
    OutOfBoundsError,
    RateLimit,
    ReadCounter,
    SetCounter,
    UnknownRateLimitError,
)


@pytest.fixture
def harness() -> TypedHarness[CounterService]:
    return TypedHarness(CounterService)


def test_a_counter_begins_at_zero_and_is_forgotten(harness: TypedHarness[CounterService]) -> None:
    assert harness.ask(ReadCounter("visits")) == Counted("visits", 0)
    assert harness.call(CountUp("visits")) == Counted("visits", 1)
    assert harness.call(CountUp("visits", -5)) == Counted("visits", -4)
    assert harness.call(DeleteCounter("visits")) is True
    assert harness.call(DeleteCounter("visits")) is False
    assert harness.ask(ReadCounter("visits")).value == 0


def test_a_counter_stays_within_the_bounds_given(harness: TypedHarness[CounterService]) -> None:
    harness.call(SetCounter("seats", 2))
    harness.call(CountUp("seats", -2, minimum=0))

    with pytest.raises(OutOfBoundsError, match="value=0"):
        harness.call(CountUp("seats", -1, minimum=0))
    with pytest.raises(OutOfBoundsError, match="value=0"):
        harness.call(CountUp("seats", (1 << 62) + 1))
    assert harness.ask(ReadCounter("seats")).value == 0


def test_compare_and_set_says_what_is_there(harness: TypedHarness[CounterService]) -> None:
    harness.call(SetCounter("version", 7, expected=0))

    with pytest.raises(OutOfBoundsError) as refused:
        harness.call(SetCounter("version", 9, expected=8))

    assert refused.value.value == 7


def test_counters_are_listed_by_name_in_pages(harness: TypedHarness[CounterService]) -> None:
    for name in ("b/2", "a/1", "b/1", "c/1", "b/3"):
        harness.call(CountUp(name))

    first = harness.ask(ListCounters("b/", limit=2))
    rest = harness.ask(ListCounters("b/", after=first[-1].name))

    assert [each.name for each in first + rest] == ["b/1", "b/2", "b/3"]


@pytest.mark.parametrize(
    "message",
    [
        CountUp(""),
        CountUp("n" * 513),
        CountUp("n", minimum=2, maximum=1),
        SetCounter("n", (1 << 62) + 1),
        DefineRateLimit("n", 0, 1.0),
        DefineRateLimit("n", 1, 0.0),
        DefineRateLimit("n", 1_000_001, 1.0),
        DefineRateLimit("n", 1, float("nan")),
    ],
)
def test_what_is_wrong_is_named(harness: TypedHarness[CounterService], message: CountUp) -> None:
    with pytest.raises(CounterError, match="expected"):
        harness.call(message)


def test_a_burst_passes_and_then_one_each_interval(harness: TypedHarness[CounterService]) -> None:
    harness.call(DefineRateLimit("login", 60, 60.0, burst=3))

    answers = [harness.call(AskAdmission("login", "ann")) for _ in range(4)]

    assert [answer.is_admitted for answer in answers] == [True, True, True, False]
    assert [answer.remaining for answer in answers] == [2, 1, 0, 0]
    assert 0.9 < answers[3].retry_after_s <= 1.0
    assert harness.call(AskAdmission("login", "bob")).is_admitted
    harness.advance(1)
    assert harness.call(AskAdmission("login", "ann")).is_admitted
    assert not harness.call(AskAdmission("login", "ann")).is_admitted


def test_a_key_that_has_used_nothing_is_forgotten(harness: TypedHarness[CounterService]) -> None:
    harness.call(DefineRateLimit("login", 1, 10.0, burst=5))
    harness.call(AskAdmission("login", "ann"))
    harness.advance(5)
    harness.call(AskAdmission("login", "ann"))
    harness.restart()
    harness.advance(10)
    assert harness.service.full_at_ns
    harness.advance(5)

    assert harness.service.full_at_ns == {}
    assert harness.timers == {}


def test_a_limit_that_is_gone_is_named(harness: TypedHarness[CounterService]) -> None:
    harness.call(DefineRateLimit("login", 5, 1.5))
    assert harness.ask(ListRateLimits()) == [RateLimit("login", 5, 1.5, 5)]
    assert harness.call(DeleteRateLimit("login")) is True

    with pytest.raises(UnknownRateLimitError, match="login"):
        harness.call(AskAdmission("login", "ann"))


@given(
    count=st.integers(1, 20),
    period_s=st.integers(1, 50),
    burst=st.integers(1, 20),
    steps=st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 3)), max_size=60),
)
def test_no_window_admits_more_than_the_limit_says(
    count: int, period_s: int, burst: int, steps: list[tuple[int, int]]
) -> None:
    """In any time t at most burst + t x count / period pass."""
    harness = TypedHarness(CounterService)
    harness.call(DefineRateLimit("limit", count, float(period_s), burst=burst))
    passed: list[tuple[int, int]] = []
    now_ms = 0
    for wait_ms, cost in steps:
        harness.advance(wait_ms / 1_000)
        now_ms += wait_ms
        if cost <= burst and harness.call(AskAdmission("limit", "key", cost)).is_admitted:
            passed.append((now_ms, cost))

    for first, (since_ms, _) in enumerate(passed):
        total = 0
        for at_ms, cost in passed[first:]:
            total += cost
            allowed = burst + (at_ms - since_ms + 1) * count / (period_s * 1_000)
            assert total <= allowed + 1e-6


def test_counters_survive_their_leader() -> None:
    with MemoryCluster(CounterService) as cluster:

        async def test() -> None:
            counters = CountersClient(await cluster.connect())
            await counters.add("visits", 5)
            cluster.kill_leader()
            assert await counters.add("visits") == 6
            assert [counted async for counted in counters.scan()] == [Counted("visits", 6)]
            await cluster.restart()
            await cluster.assert_identical()

        cluster.run(test())
