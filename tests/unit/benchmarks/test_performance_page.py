"""docs/performance.md says what the stored results say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.performance_page import PAGE, RESULTS, make_page
from service_api import ConfigurationError

ENVIRONMENT = {
    "git_commit": "abc",
    "python": "CPython 3.11.7",
    "uvloop": "0.22",
    "cores": 2,
    "cpu_model": "a processor",
    "kernel": "Linux 6",
    "file_system": "ext4",
}


def table_of(value: float, *, reached: bool) -> dict[str, object]:
    echo = {
        "scenario": "echo",
        "throughput_msgs_per_s": value,
        "p50_us": 1.0,
        "p99_us": 2.0,
        "p999_us": 3.0,
        "max_us": 4.0,
        "cpu_seconds_per_100k": {"member-0": 0.1, "member-1": 0.25, "member-2": 0.1, "client-0": 0.2},
    }
    row = {"what": "a row", "unit": "msg/s", "value": value, "target": ">= 250,000 msg/s", "reached": reached}
    disk = {"fdatasync_4k_p50_us": 90.0, "fdatasync_4k_p99_us": 200.0, "stream_mb_per_s": 700}
    return {
        "rows": [row],
        "rounds": {"disk": [disk]},
        "reports": {"a row": [echo]},
        "parameters": {"rounds": 3},
        "environment": ENVIRONMENT,
    }


def test_every_figure_comes_from_the_results(tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text(json.dumps(table_of(217_123.4, reached=False)))
    figures = {"messages_per_s": 21_000, "p50_us": 48_000.0, "quorate_is_times_faster": 10.3}
    compared = {
        "peers": {
            "etcd": {"version": "3.4", "durability": "on disk", "client": "h2load", "depths": {"1024": figures}},
            "absent": {"missing": "why"},
        },
        "not_measurable": {"raftos": "because"},
        "parameters": {"rounds": 5, "payload": 32, "depths": [1024]},
        "environment": ENVIRONMENT,
    }
    (tmp_path / "compare.json").write_text(json.dumps(compared))

    page = make_page(tmp_path)

    assert "| a row | 217,123 msg/s | >= 250,000 msg/s | **no** |" in page
    assert "| a row | 1 | 2 | 3 | 4 | 2.50 | 2.00 | 2.00 |" in page
    assert "fdatasync of 4 KiB into a file that is written already 90 µs" in page
    assert "| etcd (3.4) | on disk | h2load | 21,000/s, p50 48,000 µs (10.3x) |" in page
    assert "| absent | not installed |" in page
    assert "raftos is not among them: because." in page


def test_without_results_there_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"table\.json"):
        make_page(tmp_path)


def test_the_page_in_docs_is_the_one_that_the_stored_results_make() -> None:
    """Both are there, or neither: no figure is typed by hand."""
    if (RESULTS / "table.json").exists():
        assert PAGE.read_text() == make_page(RESULTS)
    else:
        assert not PAGE.exists()
