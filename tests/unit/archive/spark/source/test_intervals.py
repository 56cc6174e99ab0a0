"""Sets of numbers as intervals, against sets of numbers."""

from __future__ import annotations

import random

from trimaran.archive.spark.source.intervals import ANY_VALUE, Interval, Intervals, join


def test_sets_of_intervals_are_sets() -> None:
    draw = random.Random(7)

    def some() -> tuple[Intervals, set[int]]:
        parts = [(low := draw.randrange(40), low + draw.randrange(-1, 6)) for _ in range(draw.randrange(5))]
        numbers = {number for low, high in parts for number in range(low, high + 1)}
        return Intervals.of(*(Interval(low, high) for low, high in parts)), numbers

    def numbers_of(found: Intervals) -> set[int]:
        return {number for number in range(50) if found.meets(number, number)}

    for _ in range(300):
        (one, first), (two, second) = some(), some()
        assert numbers_of(one) == first
        assert numbers_of(one.narrow(two)) == first & second
        assert numbers_of(join([one, two])) == first | second
        assert numbers_of(one.invert()) == set(range(50)) - first
        assert one.invert().invert() == one
        assert bool(one) == bool(first)
        assert not first or (one.low, one.high) == (min(first), max(first))
        assert one.holds_all(3, 5) == ({3, 4, 5} <= first)
    assert ANY_VALUE.invert() == Intervals.of()
    assert ANY_VALUE.narrow(ANY_VALUE) == ANY_VALUE


def test_short_gaps_and_too_many_intervals_are_merged() -> None:
    found = Intervals.of(Interval(0, 10), Interval(15, 20), Interval(100, 110))

    assert found.merge(4, 10) == found
    assert found.merge(5, 10) == Intervals.of(Interval(0, 20), Interval(100, 110))
    assert found.merge(5, 1) == Intervals.of(Interval(0, 110))
