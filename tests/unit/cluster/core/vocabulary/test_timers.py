"""Timers by correlation id; case names are Aeron's `PriorityHeapTimerServiceTest`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimaran.cluster.core.vocabulary.timers import TimerIds, TimerService


def service(**deadlines: int) -> TimerService:
    """Timers a1=10 and so on: the id is the number in the name."""
    timers = TimerService()
    for name, deadline in deadlines.items():
        timers.schedule(int(name[1:]), deadline)
    return timers


@pytest.mark.parametrize(("deadline", "expected"), [(10, [1, 2]), (20, [1, 2]), (40, [2, 1])])
def test_timer_scheduled_again_is_moved(deadline: int, expected: list[int]) -> None:
    """scheduleTimerForAnExistingCorrelationId…: the same, a nearer and a farther deadline."""
    timers = service(a1=20, a2=30)

    timers.schedule(1, deadline)

    assert len(timers) == 2
    assert timers.expired(deadline - 1, limit=9) == [entry for entry in expected[:-1] if deadline > 30]
    assert [*timers.expired(50, limit=9)] == (expected if deadline <= 30 else [1])


def test_heap_does_not_grow_with_moves() -> None:
    """shouldReuse…EntriesFromAFreeList, in our way: stale entries are swept."""
    timers = service(a1=1, a2=2)

    for deadline in range(10_000):
        timers.schedule(1, deadline + 100)

    assert len(timers._heap) < 100
    assert timers.expired(1 << 40, limit=9) == [2, 1]


@given(st.integers(1, 10), st.integers(0, 9), st.integers(0, (1 << 56) - 1))
def test_ids_of_several_services_are_told_apart(service_count: int, service_id: int, correlation_id: int) -> None:
    """The service's id is the highest byte, and what the log holds fits a signed 64-bit number."""
    service_id %= service_count
    ids = TimerIds(service_count)

    in_log = ids.encode(service_id, correlation_id)

    assert ids.decode(in_log) == (service_id, correlation_id)
    assert 0 <= in_log < 1 << 63
    if service_id == 0:
        assert in_log == correlation_id


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_ids_of_one_service_stay_as_they_are(correlation_id: int) -> None:
    assert TimerIds(1).encode(0, correlation_id) == correlation_id
    assert TimerIds(1).decode(correlation_id) == (0, correlation_id)


def test_timer_that_is_cancelled_and_set_while_its_event_is_on_the_way_does_not_fire_twice() -> None:
    """The event in the log takes the new timer along: on the leader, and on a follower that appended nothing."""
    leader, follower = service(a1=1), service(a1=1)
    assert leader.expired(5, limit=9) == [1]
    for timers in (leader, follower):
        assert timers.cancel(1)
        timers.schedule(1, 3)

    assert leader.expired(9, limit=9) == []
    for timers in (leader, follower):
        timers.on_fired(1)

    assert leader.pending() == follower.pending() == []


operations = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), st.integers(0, 2), st.integers(0, 4)),
        st.tuples(st.just("cancel"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("fired"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("expire"), st.integers(1, 3), st.integers(0, 5)),
        st.tuples(st.just("rearm"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=400)
@given(operations)
def test_timers_agree_with_a_plain_dictionary(operations: list[tuple[str, int, int]]) -> None:
    """manyRandomOperations: a naive twin that looks at every timer every time."""
    timers = TimerService()
    naive: dict[int, int] = {}
    on_the_way: set[int] = set()
    for what, number, value in operations:
        match what:
            case "schedule":
                timers.schedule(number, value)
                naive[number] = value
            case "cancel":
                assert timers.cancel(number) == (naive.pop(number, None) is not None)
            case "fired":
                timers.on_fired(number)
                naive.pop(number, None)
                on_the_way.discard(number)
            case "rearm":
                timers.rearm()
                on_the_way.clear()
            case _:
                due = sorted((at, key) for key, at in naive.items() if at <= value and key not in on_the_way)
                expired = timers.expired(value, limit=number)
                assert [naive[key] for key in expired] == [at for at, _ in due[:number]]
                assert len(set(expired)) == len(expired)
                on_the_way.update(expired)
        assert len(timers) == len(naive)
