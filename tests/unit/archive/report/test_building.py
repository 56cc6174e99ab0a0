"""What is known of a report's sources before Spark starts."""

from __future__ import annotations

from pathlib import Path

from tests.unit.archive.spark.written_logs import Entry, write_log
from trimaran.archive.report.building import ReportRequest, measure_sources


def test_the_length_of_a_reports_logs_is_known_without_spark(tmp_path: Path) -> None:
    logs = [write_log(tmp_path / name, [Entry(bytes(100))] * 50) for name in ("one", "two")]

    found = measure_sources(ReportRequest(directories={name: str(tmp_path / name) for name in ("one", "two")}))

    assert found == sum(log.stop_position or 0 for log in logs) > 0
