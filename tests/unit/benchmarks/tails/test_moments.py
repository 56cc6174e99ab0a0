"""What held up slow messages is told by what the kernel counted around them."""

from __future__ import annotations

import pytest

from trimaran.benchmarks.machine.schedule import ProcessorTimes
from trimaran.benchmarks.tails.moments import (
    HOST,
    INSIDE,
    LATE,
    OTHERS,
    SHARED,
    Sample,
    between,
    cause_of,
    judge_moments,
)

MS = 1_000_000


def sample(at_ms: int, *, busy: int = 0, stolen: int = 0, ran: int = 0, waited: int = 0) -> Sample:
    """Of a machine with two processors and one process; all in milliseconds."""
    return Sample(
        at_ms * MS,
        ProcessorTimes(2 * at_ms * MS, busy * MS, stolen * MS),
        {"member-0": ran * MS},
        {"member-0": waited * MS},
    )


def test_a_span_is_judged_by_the_samples_around_it() -> None:
    samples = [sample(0), sample(50, busy=10), sample(100, busy=60, stolen=10, ran=30, waited=20), sample(150, busy=61)]

    found = between(samples, 60 * MS, 90 * MS)

    assert found == {"stolen_percent": 10.0, "others_percent": 20.0, "waited_percent": {"member-0": 40.0}}
    assert between(samples[:1], 0, 50 * MS) == {}
    assert between([], 0, 50 * MS) == {}


@pytest.mark.parametrize(
    ("moment", "cause"),
    [
        ({"max_ms": 10.0, "lag_ms": 5.0, "stolen_percent": 50.0}, LATE),
        ({"max_ms": 10.0, "lag_ms": 4.0, "stolen_percent": 5.0, "others_percent": 50.0}, HOST),
        ({"max_ms": 10.0, "lag_ms": 4.0, "others_percent": 20.0, "waited_percent": {"client-0": 90.0}}, OTHERS),
        ({"max_ms": 10.0, "lag_ms": 4.0, "waited_percent": {"member-0": 1.0, "client-0": 40.0}}, SHARED),
        ({"max_ms": 10.0, "lag_ms": 4.0, "waited_percent": {"member-0": 39.0}}, INSIDE),
        ({"max_ms": 10.0, "lag_ms": 0.0}, INSIDE),
    ],
)
def test_the_first_cause_that_is_large_enough_is_taken(moment: dict[str, object], cause: str) -> None:
    assert cause_of(moment) == cause


def test_moments_are_counted_by_cause_and_the_longest_described() -> None:
    samples = [sample(0), sample(100), sample(200, stolen=100)]
    moments = [
        {"begin_ns": 10 * MS, "end_ns": 30 * MS, "count": 5, "max_ns": 9 * MS, "lag_ns": 8 * MS},
        {"begin_ns": 110 * MS, "end_ns": 140 * MS, "count": 7, "max_ns": 20 * MS, "lag_ns": 0},
    ]

    judged = judge_moments(moments, samples, 0)

    assert (judged["count"], judged["total_ms"]) == (2, 50.0)
    assert judged["causes"] == {LATE: {"count": 1, "total_ms": 20.0}, HOST: {"count": 1, "total_ms": 30.0}}
    assert [(moment["after_s"], moment["max_ms"], moment["cause"]) for moment in judged["longest"]] == [
        (0.11, 20.0, HOST),
        (0.01, 9.0, LATE),
    ]
