"""`trimaran check-disk`: figures beside what is needed, a verdict, and an exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.facts import has_facts
from trimaran.archive.tool.output import EXIT_OK, EXIT_UNHEALTHY, EXIT_USAGE
from trimaran.cluster.cli import check_disk
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.cli.check_disk import judge_syncs

MS = 1_000_000


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "100"}).invoke(build_app(["check-disk"]), ["check-disk", *arguments])


@pytest.mark.parametrize(
    ("usual_ms", "slowest_ms", "verdict"),
    [(0.1, 9.9, "good"), (0.1, 10.0, "usable"), (5.0, 99.9, "usable"), (0.1, 100.0, "too slow")],
)
def test_the_99th_percentile_decides(usual_ms: float, slowest_ms: float, verdict: str) -> None:
    durations_ns = [round(usual_ms * MS)] * 98 + [round(slowest_ms * MS)] + [900 * MS]

    report = judge_syncs("/data", durations_ns, slow_ms=100)

    assert (report.verdict, report.p50_ms, report.p99_ms, report.max_ms) == (verdict, usual_ms, slowest_ms, 900.0)
    assert f"{1_000 / usual_ms:,.0f} a second" in report.detail


@pytest.mark.parametrize(
    ("duration_ms", "arguments", "verdict", "status"),
    [
        (0.2, (), "good", EXIT_OK),
        (200.0, (), "too slow", EXIT_UNHEALTHY),
        (200.0, ("--sync-slow-ms", "201"), "usable", EXIT_OK),
    ],
)
def test_the_exit_status_says_whether_a_member_would_be_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    duration_ms: float,
    arguments: tuple[str, ...],
    verdict: str,
    status: int,
) -> None:
    monkeypatch.setattr(check_disk, "measure_syncs", lambda *_, **__: [round(duration_ms * MS)] * 10)

    result = run(str(tmp_path), *arguments, "-o", "json")

    found = json.loads(result.stdout)
    assert (result.exit_code, found["verdict"], found["sync_count"]) == (status, verdict, 10)


def test_a_directory_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    result = run(str(tmp_path), "--seconds", "0.1", "--sync-slow-ms", "1000000")

    assert result.exit_code == EXIT_OK, result.output
    assert has_facts(result.stdout, "p50", "p99", "max", "p99 10 ms")
    assert [*tmp_path.iterdir()] == []


def test_a_directory_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    assert run(str(tmp_path / "absent")).exit_code == EXIT_USAGE
