"""What an open loop saw, by the time at which messages were due."""

from __future__ import annotations

from array import array

import pytest

from trimaran.benchmarks.load import slow_moments as module
from trimaran.benchmarks.load.echo import Phase
from trimaran.benchmarks.load.slow_moments import latencies_since_sent, latencies_within, slow_moments
from trimaran.benchmarks.statistics.histogram import Histogram

MS = 1_000_000


def phase_of(*messages: tuple[int, int, int]) -> Phase:
    """When each message was due, its latency and its lag, in milliseconds."""
    return Phase(
        0,
        len(messages),
        sent_at_ns=array("q", (due * MS for due, _, _ in messages)),
        replied_at_ns=array("q", ((due + latency) * MS for due, latency, _ in messages)),
        send_lags_ns=array("q", (lag * MS for _, _, lag in messages)),
    )


def test_slow_messages_that_are_close_are_one_moment() -> None:
    phase = phase_of((0, 1, 0), (10, 6, 0), (15, 1, 0), (29, 9, 4), (60, 7, 1), (70, 4, 0))

    first, second = slow_moments(phase, 5 * MS)

    assert first == {"begin_ns": 10 * MS, "end_ns": 38 * MS, "count": 2, "max_ns": 9 * MS, "lag_ns": 4 * MS}
    assert second == {"begin_ns": 60 * MS, "end_ns": 67 * MS, "count": 1, "max_ns": 7 * MS, "lag_ns": 1 * MS}


def test_moments_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOMENT_LIMIT", 2)

    assert len(slow_moments(phase_of(*((at, 9, 0) for at in range(0, 500, 50))), 5 * MS)) == 2


def test_a_message_belongs_to_the_time_at_which_it_was_due() -> None:
    phase = phase_of((0, 1, 0), (10, 50, 0), (20, 2, 0), (30, 3, 0))

    found = latencies_within(phase, {"all": [(0, 31 * MS)], "two": [(10 * MS, 20 * MS), (30 * MS, 40 * MS)], "no": []})

    histograms = {name: Histogram.from_json(histogram) for name, histogram in found.items()}
    assert {name: histogram.count for name, histogram in histograms.items()} == {"all": 4, "two": 2, "no": 0}
    assert histograms["two"].max_ns == pytest.approx(50 * MS, abs=256)


def test_what_a_message_was_sent_late_is_told_apart() -> None:
    assert latencies_since_sent(phase_of((0, 9, 8), (10, 3, 0))).max_ns == pytest.approx(3 * MS, abs=256)
