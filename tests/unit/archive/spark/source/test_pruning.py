"""Which segments a filter on terms or times leaves, and how few of them are opened to know it."""

from __future__ import annotations

import pytest

from trimaran.archive.spark.source.filters import ANY_VALUE, Interval
from trimaran.archive.spark.source.pruning import HEAD_LIMIT, SegmentHead, WantedTimes, choose_segments

SEGMENT_COUNT = 100_000
LENGTH = 1 << 27
BASES = range(0, SEGMENT_COUNT * LENGTH, LENGTH)


class Heads:
    """The heads of 100,000 segments: a second lies between two of them; counts which are asked for."""

    def __init__(self, segments_per_term: int = SEGMENT_COUNT) -> None:
        self.count = 0
        self._segments_per_term = segments_per_term

    def find(self, base_position: int) -> SegmentHead:
        self.count += 1
        number = base_position // LENGTH
        return SegmentHead(number // self._segments_per_term, number * 1_000_000)


def seconds(first: int, last: int) -> WantedTimes:
    return WantedTimes(ANY_VALUE, Interval(first * 1_000_000, last * 1_000_000))


@pytest.mark.parametrize(
    ("first", "last", "segments"),
    [
        (70_000, 70_000, range(69_999, 70_001)),
        (50_000, 1 << 40, range(49_999, SEGMENT_COUNT)),
        (0, 50_000, range(50_001)),
        (25_000, 75_000, range(24_999, 75_001)),
        (0, 1 << 40, range(SEGMENT_COUNT)),
    ],
)
def test_a_range_of_times_is_found_in_100_000_segments_by_opening_a_few(first: int, last: int, segments: range) -> None:
    heads = Heads()

    chosen = choose_segments(BASES, heads.find, seconds(first, last))

    # In the last segment another leader with another clock may follow: it is ruled out by no time.
    expected = [*segments, SEGMENT_COUNT - 1] if SEGMENT_COUNT - 1 not in segments else segments
    assert chosen == [number * LENGTH for number in expected]
    assert heads.count <= 70


def test_terms_are_found_as_times_are() -> None:
    heads = Heads(segments_per_term=1_000)

    chosen = choose_segments(BASES, heads.find, WantedTimes(Interval(40, 59), ANY_VALUE))

    # The last frames of the term before may lie in the segment before, and those of the last term in the one behind.
    assert chosen == [number * LENGTH for number in range(39_999, 60_000)]
    assert heads.count <= 70


def test_what_is_not_decided_after_the_limit_is_read() -> None:
    """With a new term in each segment nobody knows what time it is in between."""
    heads = Heads(segments_per_term=1)

    chosen = choose_segments(BASES, heads.find, seconds(70_000, 70_000))

    assert heads.count <= HEAD_LIMIT + 2
    assert chosen == sorted(chosen)
    assert {69_999 * LENGTH, 70_000 * LENGTH} <= set(chosen)


def test_heads_that_nobody_can_read_rule_nothing_out() -> None:
    assert choose_segments(BASES[:1000], lambda base: None, seconds(5, 6)) == list(BASES[:1000])
