"""The page says what a run of `tails` found, and what held up its slow moments."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.unit.benchmarks.page import samples
from trimaran.benchmarks.page.files import read_sources
from trimaran.benchmarks.page.performance_page import make_page
from trimaran.benchmarks.page.plots import Plot
from trimaran.benchmarks.page.tails_section import tails_plot, tails_section


def no_plots(plots: Iterable[Plot]) -> str:
    return " ".join(plot.caption for plot in plots)


def test_every_part_has_its_table() -> None:
    text = tails_section(samples.tails(), no_plots)

    assert "3 runs of 30 s at 100,000 messages a second, half of a peak of 200,000" in text
    assert "| p99 | 4.00 ms | 3.00 ms to 6.00 ms | <= 5,000 us | yes |" in text
    assert "| p99.9 | 12.0 ms | 7.00 ms to 36.0 ms | <= 10,000 us | **no** |" in text
    assert (
        "| 2 | 1.00 ms | 4.00 ms | 36.0 ms | 72.0 ms | 0.70 ms, 0.90 ms | 60 ms | waits for a processor 40 ms (2), "
        "other processes 20 ms (1) |"
    ) in text
    assert "| 1 | 0.5 % | 3 % | 20 % | 10 %, 11 % | 12 % | egress 8 ms | egress 8 ms | 8.4 ms | 1.5 ms |" in text
    assert "| quorum | 2.10 ms | 8.4 ms | 2.10 ms | 8.4 ms |" in text
    assert (
        "| a snapshot of 10 MiB | 3.00 ms | 6.00 ms | 30.0 ms | 60.0 ms | 250 ms "
        "| a member's delivery stood still for 120 ms, the last member had it after 130 ms |"
    ) in text
    assert "| a segment of 8 MiB rolls, 7 times |" in text
    assert "| a snapshot of 100 MiB by a copy | 3.00 ms |" in text
    assert "*By a copy*: the service yields its state" in text
    assert "| 10 ms | 1 s | 0.90 ms | 2.00 ms | 6.00 ms | 1.10 ms | 9.00 ms | 60.0 ms | 0 |" in text
    assert "| 5000 ms | 20 s | | | | | | | 1 |" in text
    assert "2,000 ms by default" in text


def test_what_by_a_copy_means_is_said_where_there_is_such_a_row() -> None:
    report = samples.tails()
    report["disturbances"] = [row for row in report["disturbances"] if "copy" not in row["what"]]

    assert "*By a copy*" not in tails_section(report, no_plots)


def test_tables_have_as_many_cells_in_each_row() -> None:
    rows: list[int] = []
    for line in [*tails_section(samples.tails(), no_plots).splitlines(), ""]:
        if line.startswith("|"):
            rows.append(line.count("|"))
        elif rows:
            assert len(set(rows)) == 1, rows
            rows = []


@pytest.mark.parametrize("part", ["open_loop", "disturbances", "callbacks"])
def test_a_part_that_was_not_measured_is_left_out(part: str) -> None:
    report = samples.tails()
    del report[part]

    text = tails_section(report, no_plots)

    heading = {"open_loop": "### Open loop", "disturbances": "### Disturbances", "callbacks": "### Slow callbacks"}
    assert [other for other in heading if heading[other] not in text] == [part]


def test_the_plot_names_the_run_in_the_middle_and_the_slowest() -> None:
    plot = tails_plot(samples.tails()["open_loop"]["runs"])

    assert "Run 1 is in the middle, with p99.9 12.0 ms; run 2 is the slowest, with 36.0 ms." in plot.caption
    svg = plot.svg()
    assert "run 1, in the middle" in svg
    assert "run 2, the slowest" in svg
    assert svg.count("other runs") == 1


def test_one_run_is_both(tmp_path: Path) -> None:
    svg = tails_plot([samples.tail_run(9_000.0)]).svg()

    assert "run 1, in the middle" in svg
    assert "slowest" not in svg.partition("<style>")[2]


def test_the_section_is_on_the_page_where_there_are_figures(tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text(json.dumps(samples.table()))
    without, _ = make_page(tmp_path)
    (tmp_path / "tails.json").write_text(json.dumps(samples.tails()))

    page, plots = make_page(tmp_path)

    assert "## Steady tails" not in without
    assert "## Steady tails" in page
    assert "the median of 3: p50 1.0 ms, p99 4.0 ms, p99.9 12.0 ms, max 24.0 ms; disturbances" in page
    assert "tails" in [plot.name for plot in plots]


def test_the_page_for_a_browser_takes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tails.json"
    path.write_text(json.dumps(samples.tails()))

    (source,) = read_sources([path])

    assert source.scenario == "tails"
