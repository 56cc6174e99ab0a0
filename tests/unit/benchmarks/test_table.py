"""The table of targets: every row is measured, and what is reached is said as it is."""

from __future__ import annotations

import pytest

from benchmarks.scenarios import table
from benchmarks.scenarios.table import GOALS, Goal, TableParameters
from service_api import ConfigurationError
from tests.unit.benchmarks import samples


@pytest.mark.slow
def test_every_row_but_those_of_peers_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    report = table.run(TableParameters(rounds=1, compare_rounds=0, log_mib=2, scale=0.02))

    table.print_targets(report)
    printed = capsys.readouterr().out
    for row, goal in zip(report["rows"], GOALS, strict=True):
        if goal.row.startswith("times "):
            assert (row["value"], row["reached"]) == (None, None)
        else:
            assert row["value"] > 0, row
            assert row["reached"] is goal.is_reached(row["value"])
    assert "fdatasync_4k_p50_us" in printed
    assert "not measured" in printed


def test_a_target_is_a_floor_or_a_ceiling() -> None:
    floor, ceiling = Goal("", "", "msg/s", 100, at_least=True), Goal("", "", "us", 100, at_least=False)

    assert [floor.is_reached(value) for value in (99, 100, 101)] == [False, True, True]
    assert [ceiling.is_reached(value) for value in (99, 100, 101)] == [True, True, False]
    assert (floor.text, ceiling.text) == (">= 100 msg/s", "<= 100 us")


def test_values_that_make_no_run_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="rounds=0"):
        TableParameters(rounds=0)


def test_ratios_are_those_of_the_comparison_where_there_is_one_and_say_of_how_many_rounds() -> None:
    row = {"what": "times etcd, 1,024 in flight, level 1", "figure": "ratio", "unit": "x", "target": ">= 10 x"}
    other = {**row, "what": "times ZooKeeper, 1,024 in flight, level 1", "value": 15.0, "reached": True}
    report = {**samples.table(), "rows": [*samples.table()["rows"], {**row, "value": 9.0, "reached": False}, other]}

    found = table.with_comparison(report, samples.compare())

    assert found["rows"][:2] == report["rows"][:2]
    assert found["rows"][2] == {
        **row,
        "what": "times etcd, 1,024 in flight, level 1 (3 rounds at commit abc)",
        "value": 10.3,
        "reached": True,
    }
    assert found["rows"][3] == other
