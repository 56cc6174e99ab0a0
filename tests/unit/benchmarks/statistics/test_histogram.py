"""The histogram against sorting, and its own arithmetic."""

from __future__ import annotations

import json
import math
import random

import pytest

from trimaran.benchmarks.statistics.histogram import Histogram


def percentile_by_sorting(values: list[int], percentile: float) -> int:
    return sorted(values)[math.ceil(len(values) * percentile / 100) - 1]


@pytest.mark.parametrize("limit", [100, 2_047, 2_048, 5_000, 10**6, 10**10])
def test_percentiles_are_those_of_sorting_within_a_thousandth(limit: int) -> None:
    generator = random.Random(limit)
    values = [generator.randrange(limit) for _ in range(5_000)]
    histogram = Histogram()

    histogram.record_all(values)

    for percentile in (0.1, 1, 50, 90, 99, 99.9, 100):
        exact = percentile_by_sorting(values, percentile)
        assert exact <= histogram.percentile_ns(percentile) <= exact * 1.001
    assert histogram.max_ns == max(values)
    assert histogram.count == 5_000


def test_coarse_steps_are_as_good_where_latencies_are_long() -> None:
    generator = random.Random(1)
    values = [generator.randrange(1_000_000, 50_000_000) for _ in range(5_000)]
    exact, coarse = Histogram(), Histogram()

    exact.record_all(values)
    coarse.record_all(values, step_bits=8)

    assert coarse.count == 5_000
    assert coarse.max_ns == pytest.approx(exact.max_ns, abs=128)
    for percentile in (1, 50, 99, 99.9):
        assert coarse.percentile_ns(percentile) == pytest.approx(exact.percentile_ns(percentile), rel=0.002)


def test_values_below_2048_ns_are_exact() -> None:
    for value in (0, 1, 1023, 1024, 2047):
        histogram = Histogram()
        histogram.record_all([value, 10_000])

        assert histogram.percentile_ns(50) == value


def test_histograms_add_up_also_over_json() -> None:
    first, second, both = Histogram(), Histogram(), Histogram()
    first.record_all([1, 5_000, 123_456_789])
    second.record_all([7, 5_000])
    both.record_all([1, 5_000, 123_456_789, 7, 5_000])

    first.add(Histogram.from_json(json.loads(json.dumps(second.to_json()))))

    assert first.to_json() == both.to_json()
    assert repr(first) == "<Histogram count=5 max_ns=123456789>"


def test_an_empty_histogram_has_zeros() -> None:
    assert (Histogram().percentile_ns(99), Histogram().max_ns, Histogram().count) == (0, 0, 0)


def test_a_clock_that_went_back_counts_as_zero() -> None:
    histogram = Histogram()

    histogram.record_all([-5])

    assert histogram.percentile_ns(100) == 0
