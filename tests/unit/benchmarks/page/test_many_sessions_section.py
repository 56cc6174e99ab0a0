"""The section of many sessions says what a comparison found, and what of it was aimed at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.unit.benchmarks.page import samples
from trimaran.benchmarks.page.many_sessions_section import many_sessions_plot, many_sessions_text
from trimaran.benchmarks.page.performance_page import make_page
from trimaran.benchmarks.scenarios.compare_sessions import of_one_session


def row(rate: int, times: float | None = None, servers_us: float = 30.0, client_us: float = 12.0) -> dict[str, Any]:
    found = {"messages_per_s": rate, "p50_us": 40_000.0, "p99_us": None, "rounds": [rate]}
    used = {"client_cpu_us": client_us, "server_cpu_us": servers_us}
    return {**found, **used} if times is None else {**found, **used, "trimaran_is_times_faster": times}


def report() -> dict[str, Any]:
    ours = "Trimaran, file sync level 1"
    peers = {
        ours: {"100x1": row(20_000, 1.0), "1000x1": row(27_000, 1.0, servers_us=25.0)},
        f"{ours}, its own client": {"100x1": row(9_000, 2.2), "1000x1": row(12_000, 2.3, servers_us=50.0)},
        f"{ours}, one session": {"1000x1": row(90_000, 0.3, servers_us=20.0, client_us=3.0)},
        "etcd": {"100x1": row(5_000, 4.0), "1000x1": row(10_000, 2.7, servers_us=150.0)},
        "NATS JetStream R3": {"1000x1": row(15_000, 1.8)},
    }
    found: dict[str, Any] = {
        name: {"version": "1\nmore", "durability": "on disk", "client": "a load", "depths": depths}
        for name, depths in peers.items()
    }
    found["etcd"]["failures"] = [{"round": 1, "load": "100 sessions x 1", "reason": "h2load said no"}]
    found["Redis"] = {"missing": "why"}
    return {
        "scenario": "compare-sessions",
        "peers": found,
        "loads": {"100x1": "100 sessions x 1", "1000x1": "1000 sessions x 1"},
        "percent_of_one_session": of_one_session(found),
        "parameters": {"rounds": 1, "payload": 32, "seconds": 5.0, "processes": 2, "sessions": [100, 1000]},
        "environment": {**samples.ENVIRONMENT, "load_average": [7.5, 1.0, 1.0]},
    }


def test_targets_tables_and_failures_are_told() -> None:
    text = many_sessions_text(report())

    assert "| times etcd, 1,000 sessions | 2.7 x | >= 3 x | **no** |" in text
    assert "| times NATS JetStream R3, 1,000 sessions | 1.8 x | >= 1.5 x | yes |" in text
    assert "of the members, 1,000 sessions beside one: Trimaran, file sync level 1 | 80 % | >= 60 % | yes |" in text
    assert "its own client | 40 % | >= 60 % | **no** |" in text
    assert "| etcd (1) | on disk | a load |" in text
    assert "| etcd | 10,000 | 2.7 | 40.0 |  | 150.0 | 12.0 |" in text
    assert "| NATS JetStream R3 | failed |" in text
    assert "etcd failed in round 1, 100 sessions x 1: h2load said no." in text
    assert "Not installed: Redis." in text
    assert "a load average of 7.5 on 2 cores" in text
    assert "compare --sessions 100,1000`" in text


def test_one_session_is_no_system_and_has_no_line_in_the_plot() -> None:
    plot = many_sessions_plot(report())

    assert plot.data == {
        "Trimaran, file sync level 1": [(100, 20_000), (1000, 27_000)],
        "Trimaran, file sync level 1, its own client": [(100, 9_000), (1000, 12_000)],
        "etcd": [(100, 5_000), (1000, 10_000)],
        "NATS JetStream R3": [(1000, 15_000)],
    }
    assert plot.caption == (
        "One message in flight on each connection. With 1,000: Trimaran, file sync level 1 27,000 a second, NATS "
        "JetStream R3 15,000 a second, Trimaran, file sync level 1, its own client 12,000 a second, etcd 10,000 a "
        "second."
    )
    assert ElementTree.fromstring(plot.svg()).tag.endswith("svg")


def test_the_page_has_the_section_once_it_was_measured(tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text(json.dumps(samples.table()))
    (tmp_path / "compare-sessions.json").write_text(json.dumps(report()))

    page, plots = make_page(tmp_path)

    assert "## Many sessions beside others" in page
    assert "performance-many-sessions.svg" in page
    assert plots[-1].name == "many-sessions"


def test_many_sessions_are_compared_with_one_where_both_were_measured() -> None:
    found = report()["percent_of_one_session"]

    assert set(found) == {"1000x1"}
    assert found["1000x1"]["Trimaran, file sync level 1"] == {"members": 80.0, "all": round(23 / 37 * 100, 1)}
    assert of_one_session({}) == {}
