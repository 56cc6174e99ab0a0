"""The snapshot benchmark: what a gap is, and a small run that leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trimaran.benchmarks.scenarios.snapshot import SnapshotParameters, longest_gap
from trimaran.service_api.errors import ConfigurationError


@pytest.mark.parametrize(
    ("times", "expected"),
    [([], 100), ([110, 120, 190], 70), ([90, 150, 210], 50), ([101, 199], 98)],
)
def test_the_longest_gap_counts_the_ends_of_what_is_looked_at(times: list[int], expected: int) -> None:
    assert longest_gap(times, 100, 200) == expected


@pytest.mark.parametrize("values", [{"runs": 0}, {"state_mib": 0}, {"rate": 0.5}, {"members": 0}])
def test_parameters_that_make_no_run_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="expected"):
        SnapshotParameters(**values)  # type: ignore[arg-type]


@pytest.mark.campaign
def test_a_cluster_with_a_little_state_is_measured_and_ended(tmp_path: Path) -> None:
    json_path = tmp_path / "report.json"
    arguments = ("snapshot", "--state-mib", "3", "--runs", "1", "--rate", "200", "--json", str(json_path))

    done = subprocess.run(
        (sys.executable, "-m", "trimaran.benchmarks", *arguments, "--dir", str(tmp_path / "data")),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert (done.returncode, done.stderr.strip()) == (0, "")
    report = json.loads(json_path.read_text())
    assert report["runs"][0]["log_position"] > 0
    assert set(report["runs"][0]["member_ms"]) == {"0", "1", "2"}
    for name in ("ingress_stop_max_ms", "reply_stop_max_ms", "loop_stop_max_ms", "snapshot_max_ms"):
        assert report[name] > 0
