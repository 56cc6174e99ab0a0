"""Virtual time passes in order, and nothing waits for real."""

from __future__ import annotations

import asyncio

from tests.unit.cluster.testing.simulation.small_world import MS, SECOND, forever, world
from trimaran.cluster.testing.simulation.world.scheduler import START_NS, Scheduler


def test_entries_run_in_order_of_time_and_those_of_one_time_as_they_were_made() -> None:
    scheduler, order = Scheduler(), list[object]()
    for name, delay_ns in (("late", 5), ("first", 2), ("second", 2), ("early", 1), ("third", 2)):
        scheduler.call_after(delay_ns, lambda name=name: order.append((name, scheduler.now_ns - START_NS)))

    scheduler.run_until(START_NS + 10)

    assert order == [("early", 1), ("first", 2), ("second", 2), ("third", 2), ("late", 5)]


def test_what_is_made_at_an_instant_for_the_same_instant_runs_after_what_was_there() -> None:
    scheduler, order = Scheduler(), list[object]()

    def first() -> None:
        order.append("first")
        scheduler.call_after(0, order.append, "made by first")

    scheduler.call_after(1, first)
    scheduler.call_after(1, order.append, "second")
    scheduler.run_until(START_NS + 1)

    assert order == ["first", "second", "made by first"]


def test_time_stops_where_it_was_told_and_goes_on_from_there() -> None:
    scheduler, seen = Scheduler(), list[int]()
    scheduler.call_after(SECOND, seen.append, 1)
    scheduler.call_after(SECOND + 1, seen.append, 2)

    assert scheduler.run_until(START_NS + SECOND) is False
    assert (seen, scheduler.now_ns) == ([1], START_NS + SECOND)

    scheduler.run_until(START_NS + 2 * SECOND)
    assert (seen, scheduler.now_ns) == ([1, 2], START_NS + 2 * SECOND)


def test_an_entry_in_the_past_runs_now_and_time_does_not_go_back() -> None:
    scheduler, seen = Scheduler(), list[int]()
    scheduler.run_until(START_NS + SECOND)

    scheduler.call_at(START_NS, lambda: seen.append(scheduler.now_ns))
    scheduler.run_until(START_NS + 2 * SECOND)

    assert seen == [START_NS + SECOND]


def test_a_run_ends_between_two_instants_when_its_condition_holds() -> None:
    scheduler, seen = Scheduler(), list[int]()
    for delay_ns in (1, 2, 2, 3):
        scheduler.call_after(delay_ns, seen.append, delay_ns)

    assert scheduler.run_until(START_NS + 10, is_done=lambda: 2 in seen) is True
    assert (seen, scheduler.now_ns) == ([1, 2, 2], START_NS + 2)


def test_a_cancelled_entry_does_not_run_and_is_not_counted() -> None:
    scheduler, seen = Scheduler(), list[int]()
    scheduler.call_after(1, seen.append, 1).cancel()
    scheduler.call_after(2, seen.append, 2)

    scheduler.run_until(START_NS + 2)

    assert (seen, scheduler.event_count) == ([2], 1)


def test_the_observer_of_a_process_is_called_after_each_thing_that_ran_there_only() -> None:
    counts = {"a": 0, "b": 0}

    async def yield_often(times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)
        await forever()

    def count(name: str) -> None:
        counts[name] += 1

    with world("a", "b") as it:
        it.start("a", lambda: yield_often(5)).observer = lambda: count("a")
        it.start("b", lambda: yield_often(50)).observer = lambda: count("b")
        it.run(MS)

    assert counts == {"a": 7, "b": 52}
