"""Targets: what is reached is said as it is, of medians, with how far the rounds lie apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trimaran.benchmarks.machine import data_directory
from trimaran.benchmarks.scenarios import catchup, echo, replay, request, table
from trimaran.benchmarks.scenarios.encryption import CATCHUP, PLAIN, TLS, cells, judged
from trimaran.benchmarks.scenarios.table import Goal, TableParameters


def test_a_target_is_a_floor_or_a_ceiling() -> None:
    floor, ceiling = Goal("", "", "msg/s", 100, at_least=True), Goal("", "", "us", 100, at_least=False)

    assert [floor.is_reached(value) for value in (99, 100, 101)] == [False, True, True]
    assert [ceiling.is_reached(value) for value in (99, 100, 101)] == [True, True, False]
    assert (floor.text, ceiling.text) == (">= 100 msg/s", "<= 100 us")


def test_rounds_count_by_their_median_and_say_how_far_they_lie_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    figures = {"p50_us": 480.0, "p99_us": 2.0, "p999_us": 3.0, "max_us": 4.0}
    found = iter([(141.8, 2.31), (198.2, 1.83), (230.0, 3.05), (212.0, 2.7), (150.0, 2.2)])

    def catch_up(*_: object, **__: object) -> dict[str, Any]:
        rate, ratio = next(found)
        return {"megabytes_per_s": rate, "p99_ratio": ratio}

    monkeypatch.setattr(data_directory, "settle_disk", lambda: None)
    monkeypatch.setattr(table, "measure_disk", lambda _: {"fdatasync_4k_p50_us": 90.0})
    monkeypatch.setattr(table, "measure_processors", lambda: {"loop_ns": 27.0, "round_trip_us": 60.0})
    monkeypatch.setattr(echo, "run", lambda *_, **__: {"throughput_msgs_per_s": 200_000, **figures})
    monkeypatch.setattr(request, "run", lambda *_, **__: {"requests_per_s": 100_000, "p99_us": 1.0})
    monkeypatch.setattr(replay, "run", lambda *_, **__: {"messages_per_s": 2e6, "in_service_s": 5.0, "idle_mib": 60.0})
    monkeypatch.setattr(catchup, "run", catch_up)
    monkeypatch.setattr(table, "_help", lambda measured: None)

    report = table.run(TableParameters(rounds=3, compare_rounds=0), directory=tmp_path)

    rows = {(row["what"], row["figure"]): row for row in report["rows"]}
    rate, ratio = (rows["catch-up under half load", figure] for figure in ("mb_per_s", "p99_ratio"))
    assert table.measured_words(rate, report["rounds"]) == "198 MB/s, 142 to 230"
    assert table.measured_words(ratio, report["rounds"]) == "p99 2.31 x p99 without, 1.83 to 3.05"
    assert (rate["reached"], ratio["reached"]) == (False, False)
    assert rows["1 in flight, level 1", "p50_ratio"]["value"] == 2.0  # 480 beside a round trip of 60 and two syncs
    assert rows["times etcd, 1,024 in flight, level 1", "ratio"]["reached"] is None


def echoed(rate: float, p50_us: float) -> dict[str, Any]:
    return {"throughput_msgs_per_s": rate, "p50_us": p50_us, "cpu_seconds_per_100k": {"member-0": 0.2, "client-0": 0.1}}


@pytest.mark.parametrize(
    ("name", "tls_rate", "tls_p50_us", "reached"),
    [
        ("echo, 1,024 in flight", 70_000, 900, True),
        ("echo, 1,024 in flight", 69_900, 900, False),
        ("echo, 1 in flight", 10, 580, True),
        ("echo, 1 in flight", 10, 581, False),
        ("echo, 64 in flight", 10, 900, None),
    ],
)
def test_an_encrypted_echo_is_held_against_the_target_of_its_depth(
    name: str, tls_rate: float, tls_p50_us: float, reached: bool | None
) -> None:
    plain = [echoed(rate, 500) for rate in (90_000, 100_000, 300_000)]

    row = judged(name, {PLAIN: plain, TLS: [echoed(tls_rate, tls_p50_us)]})

    assert row["reached"] is reached
    assert row["share"] == round(tls_rate / 100_000, 3)
    assert cells(row)[0] == "plain text 100,000/s (90,000 to 300,000), p50 500 µs, CPU 3.00 µs"


def test_an_encrypted_catch_up_is_held_against_its_own_target() -> None:
    row = judged(CATCHUP, {PLAIN: [{"megabytes_per_s": 200.0}], TLS: [{"megabytes_per_s": 99.0}]})

    assert (row["share"], row["reached"]) == (0.495, False)
