"""The page of the benchmarks: every kind of file has its sections, nothing is fetched, other files are refused."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.unit.benchmarks.page import samples
from trimaran.benchmarks.app import main
from trimaran.benchmarks.page import captions, figures
from trimaran.benchmarks.page.building import build_page
from trimaran.benchmarks.page.files import HAND_MADE, NEEDED, read_sources
from trimaran.benchmarks.page.sections import all_sections
from trimaran.benchmarks.scenarios.scan import Dimension
from trimaran.service_api import ConfigurationError

SECTIONS = (
    "targets",
    "latencies",
    "growth-payload",
    "inflight-throughput",
    "growth-inflight",
    "growth-members",
    "growth-sessions",
    "growth-log",
    "costs",
    "peers-1024",
    "profile-leader",
    "profile-follower",
    "profile-client",
    "scenario-encryption",
    "scenario-flood",
    "scenario-replay",
    "environment",
)


def write(directory: Path, reports: dict[str, Any]) -> list[Path]:
    paths = []
    for name, report in reports.items():
        paths.append(directory / name)
        paths[-1].write_text(json.dumps(report))
    return paths


def test_a_page_of_every_kind_of_file_has_every_section(tmp_path: Path) -> None:
    html = build_page(write(tmp_path, samples.everything()))

    assert tuple(re.findall(r'<section id="([\w-]+)"', html)) == SECTIONS
    assert "10,000 could not be measured: not enough open files" in html
    assert "raftos: because" in html
    assert "broken failed in round 1, at start: no leader." in html
    assert "on disk (fdatasync) on a majority" in html
    assert "How to measure it" in html


def test_a_page_fetches_nothing_and_is_the_same_each_time(tmp_path: Path) -> None:
    paths = write(tmp_path, samples.everything())

    html = build_page(paths)

    assert html == build_page(paths)
    assert "default-src 'none'" in html
    assert not re.search(r"<script|<link(?! rel=\"icon\")|src=|url\(\s*['\"]?http", html)


def test_every_figure_has_named_axes_and_says_what_there_is_to_see(tmp_path: Path) -> None:
    drawn = [section for section in all_sections(read_sources(write(tmp_path, samples.everything()))) if section.chart]

    for section in drawn:
        assert section.chart is not None
        for axes in section.chart.axes:
            assert axes.get_xlabel() or axes.get_ylabel(), section.anchor
        assert section.caption.endswith("."), section.anchor
        assert ElementTree.fromstring(str(section.figure)).tag == "svg"
    assert len(drawn) == 12


def test_any_one_file_makes_a_page(tmp_path: Path) -> None:
    for path in write(tmp_path, samples.everything()):
        assert "environment" in build_page([path])


def test_two_files_of_one_kind_have_anchors_of_their_own(tmp_path: Path) -> None:
    html = build_page(write(tmp_path, {"a.json": samples.scan(), "b.json": samples.scan()}))

    anchors = re.findall(r'<section id="([\w-]+)"', html)
    assert len(anchors) == len(set(anchors))
    assert "growth-payload-2" in anchors


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "scenario=None expected one of aeron"),
        ('{"scenario": "lunch"}', "scenario='lunch'"),
        ('{"scenario": "scan", "points": []}', "has no failures, parameters, environment"),
    ],
)
def test_a_file_that_no_benchmark_wrote_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)

    with pytest.raises(ConfigurationError, match=r"other\.json") as raised:
        read_sources([path])

    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_one_line_and_exit_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "report", str(tmp_path / "no.json"), "-o", str(tmp_path / "o")])
    monkeypatch.setattr("signal.signal", lambda number, handler: None)

    with pytest.raises(SystemExit) as raised:
        main()

    assert raised.value.code == 2
    assert capsys.readouterr().err.endswith("no.json: No such file or directory\n")
    assert not (tmp_path / "o").exists()


def test_every_scenario_that_writes_json_is_known() -> None:
    benchmarks = Path(figures.__file__).parents[1]
    written = {
        name
        for folder in ("scenarios", "tails")
        for path in (benchmarks / folder).glob("*.py")
        for name in re.findall(r'"scenario": "([\w-]+)"', path.read_text())
    }

    assert set(NEEDED) - HAND_MADE == written


def test_costs_are_told_by_part_and_the_busiest_member_leads_where_nobody_says() -> None:
    parts = figures.cost_parts(samples.CPU, "member-0")

    assert {name: round(us, 3) for name, us in parts.items()} == {"leader": 1.0, "followers": 3.5, "clients": 2.0}
    assert figures.cost_parts(samples.CPU, None)["leader"] == 2.5


def test_figures_without_points_say_so() -> None:
    for chart in (
        figures.latencies({}),
        figures.throughput_by_inflight([]),
        figures.growth([], "members"),
        figures.costs({}),
        figures.comparison({"absent": {"missing": "why"}}, "1"),
        figures.stages("leader", {"stages": [], "cpu_us": 0.0}),
    ):
        assert [text.get_text() for text in chart.axes[0].texts] == ["nothing to show"]


def test_a_growing_cost_is_told_as_a_factor_and_a_shrinking_one_as_a_part() -> None:
    few, many = ({"member-0": 0.1}, {"member-0": 0.4})

    grows = [
        samples.point("members", 1, cpu_seconds_per_100k=few),
        samples.point("members", 5, cpu_seconds_per_100k=many),
    ]
    shrinks = [{**grows[0], "cpu_seconds_per_100k": many}, {**grows[1], "cpu_seconds_per_100k": few}]

    assert "4.0 times the 1.0 µs with 1." in captions.growth(Dimension.MEMBERS, grows)
    assert "1/4 of the 4.0 µs with 1." in captions.growth(Dimension.MEMBERS, shrinks)
    assert "about as much as the 1.0 µs" in captions.growth(Dimension.MEMBERS, [grows[0], {**grows[0], "value": 3}])
