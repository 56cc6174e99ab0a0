"""The flood benchmark from end to end, against a real cluster of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.benchmarks.scenarios.flood import FloodParameters, flood_rows, run
from trimaran.service_api.errors import ConfigurationError


@pytest.mark.parametrize(
    ("kind", "tls"), [pytest.param("never-read", False, marks=pytest.mark.campaign), ("half-handshake", True)]
)
def test_leader_and_an_honest_client_are_measured_beside_a_flood(tmp_path: Path, kind: str, tls: bool) -> None:
    report = run(
        FloodParameters(
            kinds=(kind,),
            members=1,
            connections=4,
            tls=tls,
            rounds=2,
            alone_s=0.2,
            flood_s=1.0,
            after_s=0.1,
            node_settings={"file_sync_level": "0", "term_length_bytes": "1MiB", "segment_length_bytes": "1MiB"},
            time_limit_s=60,
        ),
        directory=tmp_path,
    )

    figures = report[f"{kind},"]
    assert figures["most_open_count"] >= 1
    assert 0 < figures["rss_before_mb"] <= figures["rss_peak_mb"]
    assert figures["honest_during_per_s"] > 0
    assert figures["honest_during_p50_ms"] <= figures["honest_during_p99_ms"]
    assert len(report["runs"][kind]) == 2
    (row,) = flood_rows(report)
    assert row[0] == kind
    assert len(row) == 8


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"kinds": ("unknown",)}, "kinds=unknown expected some of silent"), ({"connections": 0}, "connections=0")],
    ids=["kinds", "connections"],
)
def test_floods_that_make_no_run_are_refused(changes: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        FloodParameters(node_settings={}, **changes)  # type: ignore[arg-type]  # of several types
