"""The table of targets: every row is measured, and what is reached is said as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.benchmarks.page import samples
from trimaran.benchmarks.machine import data_directory
from trimaran.benchmarks.scenarios import catchup, echo, replay, request, table
from trimaran.benchmarks.scenarios.table import GOALS, Goal, TableParameters
from trimaran.service_api import ConfigurationError


@pytest.mark.campaign
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
    assert "The disk alone: fdatasync" in printed
    assert "The processors alone" in printed
    assert "not measured" in printed


def test_a_target_is_a_floor_or_a_ceiling() -> None:
    floor, ceiling = Goal("", "", "msg/s", 100, at_least=True), Goal("", "", "us", 100, at_least=False)

    assert [floor.is_reached(value) for value in (99, 100, 101)] == [False, True, True]
    assert [ceiling.is_reached(value) for value in (99, 100, 101)] == [True, True, False]
    assert (floor.text, ceiling.text) == (">= 100 msg/s", "<= 100 us")


def test_what_is_measured_in_rounds_counts_by_its_median_and_says_how_far_they_lie_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    echoed = samples.echo(max_us=4.0, p50_us=480.0)
    found = iter([(141.8, 2.31), (198.2, 1.83), (230.0, 3.05), (212.0, 2.7), (150.0, 2.2)])

    def catch_up(*_: object, **__: object) -> dict[str, Any]:
        rate, ratio = next(found)
        return {"megabytes_per_s": rate, "p99_ratio": ratio}

    monkeypatch.setattr(data_directory, "settle_disk", lambda: None)
    monkeypatch.setattr(table, "measure_disk", lambda _: {"fdatasync_4k_p50_us": 90.0})
    monkeypatch.setattr(table, "measure_processors", lambda: {"loop_ns": 27.0, "round_trip_us": 60.0})
    monkeypatch.setattr(echo, "run", lambda *_, **__: echoed)
    monkeypatch.setattr(request, "run", lambda *_, **__: {"requests_per_s": 100_000, "p99_us": 1.0})
    monkeypatch.setattr(replay, "run", lambda *_, **__: {"messages_per_s": 2e6, "in_service_s": 5.0, "idle_mib": 60.0})
    monkeypatch.setattr(catchup, "run", catch_up)

    report = table.run(TableParameters(rounds=3, compare_rounds=0), directory=tmp_path)

    rows = {(row["what"], row["figure"]): row for row in report["rows"]}
    rate, ratio = (rows["catch-up under half load", figure] for figure in ("mb_per_s", "p99_ratio"))
    assert table.measured_words(rate, report["rounds"]) == "198 MB/s, 142 to 230"
    assert table.measured_words(ratio, report["rounds"]) == "p99 2.31 x p99 without, 1.83 to 3.05"
    assert (rate["reached"], ratio["reached"]) == (False, False)
    floor = rows["1 in flight, level 1", "p50_ratio"]
    assert (floor["value"], floor["reached"]) == (2.0, False)
    assert floor["target"] == "<= 1.2 x one round trip and two syncs"
    assert table.measured_words(rows["replay at start", "in_service_s"], report["rounds"]) == "5.00 s"


def test_what_the_machine_does_by_itself_is_told_as_medians_of_the_rounds() -> None:
    rounds = {
        "disk": [
            {"fdatasync_4k_p50_us": value, "fdatasync_4k_p99_us": 200.0, "stream_mb_per_s": 1900}
            for value in (86, 129, 90)
        ],
        "processors": [{"loop_ns": value, "round_trip_us": 2 * value} for value in (20.0, 60.0, 27.4)],
    }

    assert table.alone_words({"rounds": rounds, "stolen_percent": 4.2}) == (
        "The disk alone: fdatasync of 4 KiB into a file that is written already 90 µs (p50), 200 µs (p99); a stream "
        "synced every 4 MiB 1,900 MB/s. The processors alone: a byte to another process and back over loopback 55 µs, "
        "a pass of a Python loop on each 27 ns; their host took 4.2 % of their time meanwhile."
    )
    assert table.alone_words({"rounds": {}}) == ""


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
