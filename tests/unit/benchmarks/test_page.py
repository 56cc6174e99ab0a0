"""docs/performance.md and its plots say what the stored results say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from trimaran.benchmarks.page.performance_page import FIGURES, IMAGES, PAGE, RESULTS, make_pages, write_pages
from trimaran.benchmarks.page.plots import digest_in
from trimaran.benchmarks.page.sections import SECTIONS, efficiency_percent, modelled_rate, session_bytes, stage_rows
from trimaran.service_api import ConfigurationError


def stored(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return found


def make_with(tmp_path: Path, **reports: dict[str, Any]) -> str:
    """Make the page of the stored table and of more reports, by file name."""
    for name, report in {"table": stored("table.json"), **reports}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    return make_pages(tmp_path).figures


def test_the_pages_are_those_that_the_stored_results_make() -> None:
    """Write it again with `python -m trimaran.benchmarks performance`."""
    pages = make_pages(RESULTS)

    assert PAGE.read_text() == pages.summary
    assert FIGURES.read_text() == pages.figures
    images = {path.name: digest_in(path) for path in (PAGE.parent / IMAGES).glob("performance-*.svg")}
    assert images == {plot.file_name: plot.digest for plot in pages.plots}


def test_every_stored_result_has_a_section() -> None:
    pages = make_pages(RESULTS)
    of_profiles = {"profile.json", "profile-1000.json", "profile-10000.json"}
    named = {section.file_name for section in SECTIONS} | of_profiles

    assert {path.name for path in RESULTS.glob("*.json")} <= named
    for section in SECTIONS:
        if (RESULTS / section.file_name).exists():
            assert f"\n## {section.title}\n" in pages.figures
            assert f"| [{section.title}](../benchmarks/results/README.md#" in pages.summary


def test_targets_and_failures_are_told_as_they_were_measured(tmp_path: Path) -> None:
    table = stored("table.json")
    compared = stored("compare.json")
    compared["peers"]["etcd"]["failures"] = [{"round": 2, "load": "1024 in flight", "reason": "h2load said no"}]
    compared["peers"]["absent"] = {"missing": "why"}
    scanned = stored("scan.json")
    scanned["failures"] = [{"dimension": "log", "value": 9_000, "reason": "no room"}]

    page = make_with(tmp_path, compare=compared, scan=scanned)

    for row in table["rows"]:
        if not row["what"].startswith("times "):
            reached = "yes" if row["reached"] else "**no**"
            assert f"| {row['what']} | " in page
            assert f"| {row['target']} | {reached} |" in page
    ratio = compared["peers"]["etcd"]["depths"]["1024"]["trimaran_is_times_faster"]
    assert f"(5 rounds at commit {compared['environment']['git_commit']}) | {ratio:.2f} x |" in page
    assert "h2load said no" in page
    assert "Not installed: absent." in page
    assert "log 9,000: no room." in page


def test_floods_are_told_as_medians_with_their_spread(tmp_path: Path) -> None:
    runs = [
        {"most_open_count": 9, "rss_before_mb": 80.0, "rss_peak_mb": 120.0, "honest_alone_p99_ms": 2.0}
        | {"honest_during_p99_ms": during, "status_unanswered": 0, "status_answered": 30}
        for during in (3.0, 5.0, 4.0)
    ]
    flood = {
        "scenario": "flood",
        "half-handshake,": runs[2],
        "runs": {"half-handshake": runs},
        "parameters": {"rounds": 3, "members": 3, "connections": 9, "tls": True},
        "environment": stored("table.json")["environment"],
    }

    assert "| 2.0 ms | 4.0 ms | 2.0 x (1.5 to 2.5) | 80 MB | 120 MB | 0 of 30 |" in make_with(tmp_path, flood=flood)


@pytest.mark.parametrize("part", ["peak_per_s", "open_loop", "disturbances", "callbacks"])
def test_parts_of_steady_tails_that_were_not_measured_are_left_out(tmp_path: Path, part: str) -> None:
    tails = stored("tails.json")
    del tails[part]

    assert "## Steady tails" in make_with(tmp_path, tails=tails)


def test_files_of_commands_that_there_are_no_more_are_passed_over(tmp_path: Path) -> None:
    assert make_with(tmp_path) == make_with(tmp_path, openings={"scenario": "openings"}, codec={"scenario": "codec"})


def test_another_run_has_a_table_of_its_own(tmp_path: Path) -> None:
    table = stored("table.json")
    (tmp_path / "quick").mkdir()
    (tmp_path / "left-over").mkdir()
    other = {**table, "environment": {**table["environment"], "cpu_model": "another processor"}}
    (tmp_path / "quick" / "table.json").write_text(json.dumps(other))

    here, elsewhere = make_with(tmp_path).split("## Targets in another run, quick")

    assert "another processor" not in here
    assert "another processor" in elsewhere
    assert "left-over" not in here + elsewhere


def test_plots_are_files_of_their_own_and_old_ones_go(tmp_path: Path) -> None:
    results, page, figures = tmp_path / "results", tmp_path / "docs" / "page.md", tmp_path / "figures.md"
    results.mkdir()
    shutil.copy(RESULTS / "table.json", results)
    images = page.parent / IMAGES
    images.mkdir(parents=True)
    (images / "performance-old.svg").touch()

    write_pages(results, page, figures)

    assert [path.name for path in images.iterdir()] == ["performance-latencies.svg"]
    svg = (images / "performance-latencies.svg").read_text()
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in svg
    assert f"({IMAGES}/performance-latencies.svg)" in page.read_text()
    assert f"({IMAGES}/performance-latencies.svg)" in figures.read_text().replace("../../docs/", "")


def test_without_results_there_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        make_pages(tmp_path)


def test_a_session_costs_what_its_process_has_grown_by() -> None:
    def point(sessions: int, leader: int, clients: int, process_count: int) -> dict[str, Any]:
        sizes = {"member-0": leader, "member-1": 50, "client-0": clients}
        return {"value": sessions, "leader": "member-0", "resident_bytes": sizes, "client_processes": process_count}

    one, many = point(1, 100, 40, 1), point(11, 300, 180, 2)

    assert session_bytes(many, one) == [20.0, 0.0, 10.0]
    assert session_bytes(one, one) == []


def test_efficiency_is_the_processor_time_of_one_session_beside_that_of_many() -> None:
    one, many = ({"cpu_seconds_per_100k": {"member-0": seconds}} for seconds in (0.5, 2.0))

    assert efficiency_percent(many, one) == 25.0


def test_more_groups_are_modelled_until_the_cores_are_busy() -> None:
    rates = [modelled_rate(4, groups, leader_us=2.0, others_us=6.0) for groups in (1, 2)]

    assert rates == [500_000.0, 500_000.0]
    assert modelled_rate(16, 2, leader_us=2.0, others_us=6.0, used_share=0.5) == 500_000.0


def test_stages_that_are_small_everywhere_are_one_row() -> None:
    def process(**stages: float) -> dict[str, Any]:
        rows = [{"stage": name, "detail": "", "us": us} for name, us in stages.items()]
        return {"stages": rows, "cpu_us": sum(stages.values())}

    rows = stage_rows([process(egress=9.0, sync=0.9, rare=0.1), process(sync=99.0, rare=1.0), None])

    assert rows == [
        ("sync", "0.90", "99.00", "0.00"),
        ("egress", "9.00", "0.00", "0.00"),
        ("smaller ones", "0.10", "1.00", "0.00"),
        ("**all**", "10.00", "100.00", "0.00"),
    ]
