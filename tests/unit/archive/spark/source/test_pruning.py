"""Which places of a log a filter on terms or times leaves, and at how few of them it is looked to know it."""

from __future__ import annotations

import pytest

from trimaran.archive.spark.source.intervals import ANY_VALUE, Interval, Intervals
from trimaran.archive.spark.source.pruning import HEAD_LIMIT, LogHead, WantedTimes, choose_runs

PLACE_COUNT = 100_000


class Heads:
    """The heads of 100,000 places: a second lies between two of them; counts which are asked for."""

    def __init__(self, places_per_term: int = PLACE_COUNT) -> None:
        self.count = 0
        self._places_per_term = places_per_term

    def find(self, number: int) -> LogHead:
        self.count += 1
        return LogHead(number // self._places_per_term, number * 1_000_000)


def values(*bounds: tuple[int, int]) -> Intervals:
    return Intervals.of(*(Interval(low, high) for low, high in bounds))


def seconds(*bounds: tuple[int, int]) -> WantedTimes:
    return WantedTimes(ANY_VALUE, values(*((first * 1_000_000, last * 1_000_000) for first, last in bounds)))


@pytest.mark.parametrize(
    ("first", "last", "begin", "end"),
    [
        (70_000, 70_000, 69_999, 70_001),
        (50_000, 1 << 40, 49_999, PLACE_COUNT),
        (0, 50_000, 0, 50_001),
        (25_000, 75_000, 24_999, 75_001),
        (0, 1 << 40, 0, PLACE_COUNT),
    ],
)
def test_a_range_of_times_is_found_at_100_000_places_by_looking_at_a_few(
    first: int, last: int, begin: int, end: int
) -> None:
    heads = Heads()

    chosen = choose_runs(PLACE_COUNT, heads.find, seconds((first, last)))

    # Behind the last place another leader with another clock may follow: it is ruled out by no time.
    assert chosen == [(begin, end)] if end == PLACE_COUNT else [(begin, end), (PLACE_COUNT - 1, PLACE_COUNT)]
    assert heads.count <= 70


def test_several_ranges_of_times_are_found_apart() -> None:
    heads = Heads()

    chosen = choose_runs(PLACE_COUNT, heads.find, seconds((10, 20), (50_000, 50_001)))

    assert chosen == [(9, 21), (49_999, 50_002), (PLACE_COUNT - 1, PLACE_COUNT)]
    assert heads.count <= 120


def test_terms_are_found_as_times_are() -> None:
    heads = Heads(places_per_term=1_000)

    chosen = choose_runs(PLACE_COUNT, heads.find, WantedTimes(values((40, 59)), ANY_VALUE))

    # The last frames of the term before may lie behind the place before, and those of the last term behind its last.
    assert chosen == [(39_999, 60_000)]
    assert heads.count <= 90


def test_what_is_not_decided_after_the_limit_is_read() -> None:
    """With a new term at each place nobody knows what time it is in between."""
    heads = Heads(places_per_term=1)

    chosen = choose_runs(PLACE_COUNT, heads.find, seconds((70_000, 70_000)))

    assert heads.count <= HEAD_LIMIT + 2
    assert chosen == sorted(chosen)
    assert any(begin <= 69_999 and end > 70_000 for begin, end in chosen)


def test_heads_that_nobody_can_read_rule_nothing_out() -> None:
    assert choose_runs(1000, lambda place: None, seconds((5, 6))) == [(0, 1000)]
