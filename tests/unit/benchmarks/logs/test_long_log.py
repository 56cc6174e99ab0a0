"""Start-up and catch-up are measured on real processes, with logs that are short here."""

from __future__ import annotations

import pytest

from trimaran.benchmarks.scenarios import catchup, replay
from trimaran.service_api import ConfigurationError


@pytest.mark.campaign
def test_a_node_is_measured_as_it_replays_a_log() -> None:
    report = replay.run(replay.ReplayParameters(log_mib=2, runs=2))

    assert report["log_bytes"] >= 2 << 20
    assert report["messages"] * 96 == pytest.approx(report["log_bytes"], rel=0.01)
    assert len(report["runs"]) == 2
    assert all(0 < run["replay_s"] < run["in_service_s"] for run in report["runs"])
    assert report["peak_mib"] >= report["idle_mib"] > 10


@pytest.mark.campaign
def test_a_member_is_measured_as_it_catches_up() -> None:
    report = catchup.run(catchup.CatchupParameters(missed_mib=4, rate=500, seconds=2))

    assert report["copied_bytes"] >= 4 << 20
    assert report["megabytes_per_s"] > 0
    assert report["p99_ratio"] > 0


def test_values_that_make_no_run_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="log_mib=0"):
        replay.ReplayParameters(log_mib=0)
    with pytest.raises(ConfigurationError, match="rate=0"):
        catchup.CatchupParameters(rate=0)
