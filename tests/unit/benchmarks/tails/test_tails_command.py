"""The benchmark of tails from end to end, against real clusters of one member."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trimaran.benchmarks.tails.callbacks import interval_s
from trimaran.benchmarks.tails.command import run
from trimaran.benchmarks.tails.disturbances import disturbances, measure_disturbance
from trimaran.benchmarks.tails.open_loop import summary
from trimaran.benchmarks.tails.parameters import TailsParameters
from trimaran.service_api.errors import ConfigurationError


def test_an_open_loop_says_what_everybody_did(tmp_path: Path) -> None:
    report = run(TailsParameters(runs=1, seconds=0.5, members=1, rate=500.0, only=("open-loop",)), directory=tmp_path)

    (measured,) = report["open_loop"]["runs"]
    assert 0 < measured["p50_us"] <= measured["p99_us"] <= measured["p999_us"] <= measured["max_us"]
    assert measured["since_sent"]["max_us"] <= measured["max_us"]
    assert {*measured["waited_percent"]} == {"member-0", "client-0"}
    assert measured["seen"]["member-0"]["stages"]["sync"]["count"] > 0
    assert measured["seen"]["member-0"]["syncs"]["fdatasync"]["count"] > 0
    assert sum(total["count"] for total in measured["slow"]["causes"].values()) == measured["slow"]["count"]
    assert [goal["target"] for goal in report["open_loop"]["goals"]] == ["<= 5,000 us", "<= 10,000 us", "<= 50,000 us"]


def test_what_others_feel_of_a_slow_callback_is_as_long_as_the_callback(tmp_path: Path) -> None:
    report = run(
        TailsParameters(members=1, rate=500.0, only=("callbacks",), callbacks_ms=(80.0,), callback_count=1, calm_s=0.3),
        directory=tmp_path,
    )

    (row,) = report["callbacks"]
    assert row["elections"] == 0
    # Messages are due each 2 ms, so that one waits for nearly all of it.
    assert row["during"]["max_us"] >= 70_000
    assert {"p50_us", "p99_us", "p999_us", "max_us"} <= {*row["calm"]}


def test_a_snapshot_by_a_copy_is_a_row_of_its_own(tmp_path: Path) -> None:
    """A real member makes the copy."""
    parameters = TailsParameters(members=1, calm_s=0.3, snapshots_mib=(1,), copied_mib=(3,))
    made = {name: each for each in disturbances(parameters) for name in each.names.values()}

    short = replace(made["a snapshot of 3 MiB by a copy"], after_s=1.0)
    (row,) = measure_disturbance(parameters, short, 300.0, tmp_path)

    assert {"a snapshot of 1 MiB", "a snapshot of 3 MiB by a copy"} <= {*made}
    assert row["calm"]["p999_us"] > 0
    assert row["during"]["p999_us"] > 0
    assert row["delivery_stop_ms"] <= row["taken_ms"]


def test_a_summary_is_the_median_of_the_runs_and_their_spread() -> None:
    names = ("p50_us", "p99_us", "p999_us", "max_us")
    found = summary([dict.fromkeys(names, value) for value in (4_000.0, 90_000.0, 6_000.0)])

    assert found["median"]["p99_us"] == 6_000.0
    assert (found["least"]["max_us"], found["most"]["max_us"]) == (4_000.0, 90_000.0)
    assert [goal["reached"] for goal in found["goals"]] == [False, True, True]


def test_a_long_callback_leaves_the_service_alone_for_three_times_its_length() -> None:
    assert [interval_s(callback_ms) for callback_ms in (1.0, 250.0, 1_000.0)] == [1.0, 1.0, 4.0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"runs": 0}, "runs=0"),
        ({"seconds": 0.0}, "seconds=0"),
        ({"only": ("lunch",)}, "only='lunch' expected some of open-loop,disturbances,callbacks"),
        ({"only": ()}, "only=''"),
        ({"rate": -1.0}, "rate=-1"),
        ({"calm_s": 0.0}, "calm_s=0"),
        ({"snapshots_mib": (0,)}, "snapshots_mib="),
        ({"copied_mib": (0,)}, r"copied_mib=\(0,\)"),
        ({"callbacks_ms": (0.0,)}, "callbacks_ms="),
        ({"callback_count": 0}, "callback_count=0"),
    ],
)
def test_values_that_make_no_run_are_refused(changes: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        TailsParameters(**changes)  # type: ignore[arg-type]  # of several types
