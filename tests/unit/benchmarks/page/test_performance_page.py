"""docs/performance.md and its plots say what the stored results say."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.unit.benchmarks.page import samples
from trimaran.benchmarks.page.performance_page import IMAGES, PAGE, RESULTS, make_page, write_page
from trimaran.benchmarks.page.plots import digest_in
from trimaran.service_api import ConfigurationError


def test_every_figure_comes_from_the_results(tmp_path: Path) -> None:
    for name, report in samples.everything().items():
        (tmp_path / name).write_text(json.dumps(report))

    page, plots = make_page(tmp_path)

    assert "| a row | 217,123 msg/s | >= 250,000 msg/s | **no** |" in page
    assert "| a row | p99.9 1,500 us | <= 9 us | yes |" in page
    assert "| a row | 1 | 2 | 3 | 4 | 2.50 | 2.00 | 2.00 |" in page
    assert "fdatasync of 4 KiB into a file that is written already 90 µs" in page
    assert "3 interleaved rounds of 5 that were asked for" in page
    assert "| etcd (3.4) | on disk | h2load; 3.46 µs | 21,000/s, 20,000 to 23,000/s, p50 48,000 µs, 10.3x |" in page
    assert "etcd failed in round 2, 1024 in flight: h2load said no." in page
    assert "| broken (1) | none | none | failed |" in page
    assert "broken failed in round 3, at start: no leader." in page
    assert "| absent | not installed |" in page
    assert (
        "| echo, 1,024 in flight | plain text 200/s (100 to 300), p50 1,000 µs, CPU 5.00 µs "
        "| TLS 150/s (150 to 150), p50 1,200 µs, CPU 6.50 µs | 75.0% of the rate | at least 70% of the rate: reached |"
    ) in page
    assert "| half-handshake | 10,000 | 2.0 ms | 4.0 ms | 2.0 x (1.5 to 2.5) | 80 MB | 124 MB | 0 of 30 |" in page
    assert "raftos is not among them: because." in page
    assert "Not measured: sessions 10,000: not enough open files." in page
    assert "| `core/log_publisher.py:_stamp` | append: stamp and place | 1.100 |" in page
    assert "2 cores would do 307,692 messages a second at 100 % use" in page
    assert [plot.name for plot in plots] == [
        *("latencies", "growth-payload", "throughput", "growth-inflight", "growth-members", "growth-sessions"),
        *("growth-log", "peers-1024", "profile-leader", "profile-follower", "profile-client"),
    ]
    for plot in plots:
        assert f"({IMAGES}/{plot.file_name})" in page
        assert plot.caption in page


def test_another_run_has_a_table_of_its_own_with_its_own_ratios(tmp_path: Path) -> None:
    other = tmp_path / "quick"
    other.mkdir()
    (tmp_path / "left-over").mkdir()
    (tmp_path / "table.json").write_text(json.dumps(samples.table()))
    environment = {**samples.ENVIRONMENT, "cpu_model": "another processor"}
    ratio = {"what": "times etcd, 1,024 in flight, level 1", "figure": "ratio", "unit": "x", "value": 1.0}
    rows = [{**ratio, "target": ">= 10 x", "reached": False}]
    (other / "table.json").write_text(json.dumps(samples.table() | {"environment": environment, "rows": rows}))
    (other / "compare.json").write_text(json.dumps(samples.everything()["compare.json"]))

    page, plots = make_page(tmp_path)

    here, elsewhere = page.split("## Targets in another run, quick")
    assert "another processor" not in here
    assert "another processor" in elsewhere
    assert "| times etcd, 1,024 in flight, level 1 (3 rounds at commit abc) | 10.30 x | >= 10 x | yes |" in elsewhere
    assert "left-over" not in page
    assert [plot.name for plot in plots] == ["latencies"]


def test_plots_are_files_of_their_own_and_old_ones_go(tmp_path: Path) -> None:
    results, page = tmp_path / "results", tmp_path / "docs" / "page.md"
    results.mkdir()
    (results / "table.json").write_text(json.dumps(samples.table()))
    images = page.parent / IMAGES
    images.mkdir(parents=True)
    (images / "performance-old.svg").touch()

    write_page(results, page)

    assert [path.name for path in images.iterdir()] == ["performance-latencies.svg"]
    svg = (images / "performance-latencies.svg").read_text()
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in svg
    assert digest_in(images / "performance-latencies.svg") == make_page(results)[1][0].digest


def test_without_results_there_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"table\.json"):
        make_page(tmp_path)


def test_the_page_in_docs_is_the_one_that_the_stored_results_make() -> None:
    """Both are there, or neither: no figure is typed by hand."""
    if not (RESULTS / "table.json").exists():
        assert not PAGE.exists()
        return
    page, plots = make_page(RESULTS)
    assert PAGE.read_text(encoding="utf-8") == page
    for plot in plots:
        assert digest_in(PAGE.parent / IMAGES / plot.file_name) == plot.digest, plot.file_name


def test_the_store_typed_messages_and_a_compiler_have_sections_once_they_were_measured(tmp_path: Path) -> None:
    point = {"messages_per_s": 9_000, "p50_us": 700.0, "p99_us": 900.0, "client_cpu_us": 5.0, "rounds": [8_000, 9_500]}
    store = {
        "scenario": "compare-kv",
        "peers": {
            "Trimaran kv": {"version": "1", "durability": "on disk", "client": "ours", "depths": {"put 1": point}},
            "etcd": {"version": "3.4", "durability": "on disk", "client": "h2load", "depths": {}},
            "Redis": {"missing": "why"},
        },
        "loads": {"put 1": "put, 1 in flight"},
        "parameters": {"rounds": 2, "payload": 32, "depths": [1]},
        "environment": {**samples.ENVIRONMENT, "load_average": [7.5, 1.0, 1.0]},
    }
    typed = {
        "scenario": "typed",
        "requests_per_s": {"bytes": 100_000, "typed": 65_000, "doubled": 20_000},
        "percent_of_bytes": {"bytes": 100.0, "typed": 65.0, "doubled": 20.0},
        "p50_us": {"bytes": 5_000, "typed": 8_000, "doubled": 30_000},
        "rounds": 3,
        "runs": {
            "bytes": [90_000, 100_000, 110_000],
            "typed": [60_000, 65_000, 70_000],
            "doubled": [19_000, 20_000, 21_000],
        },
        "parameters": {"members": 3, "file_sync_level": 1, "inflight": 1024},
        "environment": {**samples.ENVIRONMENT, "load_average": [0.5, 1.0, 1.0]},
    }
    compiled = {
        "scenario": "compiled",
        "path_ns": {"ingest_ns": {"python": 190.0, "modules": 170.0, "functions": 189.0}},
        "messages_per_s": {"python": 250_000, "modules": 260_000, "functions": 270_000},
        "cpu_us_per_message": {"python": 6.0, "modules": 5.9, "functions": 5.5},
        "times_python": {"python": 1.0, "modules": 1.02, "functions": 1.09},
        "parameters": {"rounds": 5, "messages": 300_000},
        "environment": {**samples.ENVIRONMENT, "load_average": [0.5, 1.0, 1.0]},
    }
    written = {"table.json": samples.table(), "kv.json": store, "typed.json": typed, "compiled.json": compiled}
    for name, report in written.items():
        (tmp_path / name).write_text(json.dumps(report))

    page, _ = make_page(tmp_path)

    assert "| Trimaran kv (1) | on disk | ours |" in page
    assert "| put, 1 in flight | 9,000/s, 8,000 to 9,500/s, p50 700 µs | failed |" in page
    assert "a load average of 7.5 on" in page
    assert "Not installed: Redis." in page
    assert "| classes | 65,000 | 60,000 to 70,000 | 8,000 µs | 65 % |" in page
    assert "| classes, double execution | 20,000 | 19,000 to 21,000 | 30,000 µs | 20 % |" in page
    assert "| Python, with the two hottest functions in C | 5.5 µs | 1.09 | 270,000 |" in page
    assert "| ingest | 190 | 170 | 189 |" in page
    assert "so **no compiled part is taken in**" in page
