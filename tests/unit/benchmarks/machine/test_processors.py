"""What processors do by themselves, and how much of them others took."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.benchmarks.machine import processors
from trimaran.benchmarks.machine.processors import StolenTime, measure_processors


def test_processors_are_measured_by_real_processes() -> None:
    found = measure_processors()

    assert 1 < found["loop_ns"] < 100_000
    assert 1 < found["round_trip_us"] < 100_000


def test_loop_that_dies_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "_loop", print)  # what is no writer of a pipe sends nothing

    with pytest.raises(EOFError):
        measure_processors()


def test_stolen_time_is_a_share_of_all_times_but_those_that_are_counted_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "stat"
    monkeypatch.setattr(processors, "_STATISTICS", path)
    path.write_text("cpu  100 0 50 1000 0 0 0 10 70 0\ncpu0 1 2 3\n")
    stolen = StolenTime()

    path.write_text("cpu  130 0 60 1050 0 0 0 20 100 0\n")

    assert stolen.percent() == 10.0


@pytest.mark.parametrize("content", ["", "cpu  1 2 3\n", "cpu  none\n"])
def test_kernel_that_counts_no_stolen_time_has_none(
    content: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "stat"
    path.write_text(content)
    monkeypatch.setattr(processors, "_STATISTICS", path)

    assert StolenTime().percent() == 0.0
