"""Openings and snapshots of many kinds: every case is measured, and one that fails is told while the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.benchmarks.rig.processes import ProcessError
from trimaran.benchmarks.scenarios import opening, openings, snapshot, snapshots
from trimaran.benchmarks.scenarios.opening import OpeningParameters
from trimaran.benchmarks.scenarios.openings import OpeningsParameters
from trimaran.benchmarks.scenarios.profile import ProfileParameters
from trimaran.benchmarks.scenarios.snapshot import SnapshotParameters
from trimaran.benchmarks.scenarios.snapshots import SnapshotsParameters
from trimaran.service_api import ClusterError, ConfigurationError


def opened(seconds: float) -> dict[str, object]:
    return {
        "opening": {"s": seconds, "leader_us": 100.0},
        "a second at rest": {"leader_us": 2.0},
        "failover": {"p50_ms": 10.0 * seconds, "p99_ms": 20.0, "max_ms": 30.0},
        "environment": {"file_system": "ext4", "load_average_before": [0.25, 1.0, 1.0]},
    }


def test_every_opening_is_measured_and_medians_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[int, bool, bool]] = []
    seconds = iter([1.0, 5.0, 2.0] * 4)

    def run(parameters: OpeningParameters, *, directory: Path | None, keep: bool) -> dict[str, object]:
        asked.append((parameters.sessions, parameters.share, parameters.password))
        if parameters.sessions == 20 and parameters.share:
            raise ProcessError("a process needs 60,000 open files\nand more")
        return opened(next(seconds))

    monkeypatch.setattr(opening, "run", run)

    report = openings.run(OpeningsParameters(sessions=(10, 20), rounds=2), directory=tmp_path)

    assert len(asked) == 16
    assert asked[:4] == [(10, False, False), (10, False, True), (10, True, False), (10, True, True)]
    assert [(case["sessions"], case["share"], case["password"]) for case in report["cases"]] == asked[:6]
    first = report["cases"][0]
    assert first["opening"]["s"] == 1.0  # of 1 and, six cases later, 1
    assert first["failover"]["p50_ms"] == 10.0
    assert first["load_average_before"] == 0.25
    assert first["rounds_of"]["opening s"] == [1.0, 1.0]
    failed = {"sessions": 20, "share": True, "password": False, "reason": "a process needs 60,000 open files"}
    assert report["failures"][0] == failed
    openings._print(report)
    assert "20 sessions not measured: a process needs 60,000 open files" in capsys.readouterr().out


def test_openings_of_which_not_one_can_be_measured_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(parameters: OpeningParameters, *, directory: Path | None, keep: bool) -> dict[str, object]:
        raise ProcessError("no member starts")

    monkeypatch.setattr(opening, "run", run)

    with pytest.raises(ClusterError, match="no member starts"):
        openings.run(OpeningsParameters(sessions=(10,)))
    with pytest.raises(ConfigurationError, match=r"sessions=\(0,\)"):
        OpeningsParameters(sessions=(0,))
    with pytest.raises(ConfigurationError, match="sessions='ten' expected numbers"):
        openings.openings(sessions="ten")


def test_snapshots_are_taken_in_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(parameters: SnapshotParameters, *, directory: Path | None, keep: bool) -> dict[str, object]:
        if parameters.way == "pieces":
            raise ProcessError("no snapshot was taken")
        found: dict[str, object] = dict.fromkeys(snapshots._FIGURES, float(parameters.runs))
        return {**found, "environment": {"file_system": "ext4"}}

    monkeypatch.setattr(snapshot, "run", run)

    report = snapshots.run(SnapshotsParameters(orders=20_000, runs=2))

    assert list(report["ways"]) == ["message", "copy"]
    assert report["ways"]["copy"]["load_s"] == 2.0
    assert report["failures"] == {"pieces": "no snapshot was taken"}
    assert report["environment"]["file_system"] == "ext4"
    with pytest.raises(ConfigurationError, match="way='carrier'"):
        SnapshotsParameters(ways=("carrier",))


def test_a_profile_of_many_sessions_has_as_many_clients_as_may_open_the_files() -> None:
    assert ProfileParameters().client_count == 1
    assert ProfileParameters(sessions=5_000, inflight=5_000).client_count == 1
    assert ProfileParameters(sessions=10_000, inflight=10_000).client_count == 2
