"""`trimaran errors`: of whom, in which form, and what it says when there is nothing."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.unit.archive.streams import extract_sample
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.runtime.files.error_log import ErrorLog, ErrorObservation
from trimaran.cluster.runtime.files.mark_file import MARK_FILE_NAME, ClusterMarkFile
from trimaran.service_api import ClusterError, ConfigurationError

FAILED = ErrorObservation(
    "error", "service.failed", "ValueError", "quota.py:31 Quota.on_timer_event", "log_position=96", "Traceback\n  x"
)
STALLED = ErrorObservation(
    "warning", "loop.stalled", "gc2", "runtime/stall_tracker.py:140 _on_stall", "duration_ms=250"
)


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(build_app(["errors"]), ["errors", *arguments])


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Path]:
    """A member that runs: its mark file is locked."""
    (tmp_path / "cluster").mkdir()
    times = iter((1_700_000_000_000, 1_700_000_060_500, 1_700_000_120_000))
    mark = ClusterMarkFile.open(tmp_path / "cluster", member_id=0, now_ms=1)
    log = ErrorLog(mark, lambda: next(times))
    for trouble in (FAILED, STALLED, FAILED):
        log.observe(trouble)
    yield tmp_path
    mark.close()


def test_json_has_everything_with_the_last_seen_last(member: Path) -> None:
    stalled, failed = json.loads(run(str(member), "-o", "json").stdout)

    assert failed == {
        "count": 2,
        "first": "2023-11-14T22:13:20.000Z",
        "last": "2023-11-14T22:15:20.000Z",
        "level": "error",
        "event": "service.failed",
        "kind": "ValueError",
        "place": "quota.py:31 Quota.on_timer_event",
        "message": "log_position=96",
        "trace": "Traceback\n  x",
    }
    assert (stalled["count"], stalled["last"]) == (1, "2023-11-14T22:14:20.500Z")


def test_jsonl_is_one_line_each(member: Path) -> None:
    lines = run(str(member), "-o", "jsonl").stdout.splitlines()

    assert [json.loads(line)["event"] for line in lines] == ["loop.stalled", "service.failed"]


def test_the_table_has_traces_when_they_are_wanted(member: Path) -> None:
    plain, full = run(str(member)).stdout, run(str(member), "--traces").stdout

    assert "service.failed ValueError at quota.py:31 Quota.on_timer_event" in plain
    assert "Traceback" not in plain
    assert "Traceback" in full


@pytest.mark.parametrize("part", ["", "cluster", f"cluster/{MARK_FILE_NAME}"])
def test_the_directory_may_be_named_in_three_ways(member: Path, part: str) -> None:
    assert run(str(member / part)).exit_code == 0


def test_a_member_without_errors_says_so(tmp_path: Path) -> None:
    ClusterMarkFile.open(tmp_path, member_id=0, now_ms=1).close()

    assert run(str(tmp_path)).stdout == "no errors\n"
    assert run(str(tmp_path), "-o", "json").stdout == "[]\n"
    assert run(str(tmp_path), "-o", "jsonl").stdout == ""


def test_a_place_where_no_member_ran_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("nothing")

    assert isinstance(run(str(tmp_path)).exception, ConfigurationError)
    assert isinstance(run(str(tmp_path / "other")).exception, ClusterError)


def test_the_errors_of_an_archive_are_shown_too(tmp_path: Path) -> None:
    """Source: Agrona `DistinctErrorLog`; two records written by hand into the mark file of a real Aeron archive."""
    archive = extract_sample("archive-only", tmp_path) / "node0" / "archive"
    assert run(str(archive)).stdout == "no errors\n"
    log = b""
    for count, first_ms, last_ms, text in (
        (3, 1795234949000, 1795234950000, b"io.aeron.SomeError: late\n\tat X.y\n\tat Z"),
        (1, 1795234949500, 1795234949500, b"early\x1b"),
    ):
        length = 24 + len(text)
        log += struct.pack("<iiqq", length, count, last_ms, first_ms) + text + bytes(-length % 8)
    with (archive / "archive-mark.dat").open("r+b") as mark:
        mark.seek(8192)
        mark.write(log)

    of_member, of_archive = (json.loads(run(str(path), "-o", "json").stdout) for path in (archive.parent, archive))

    assert of_member == of_archive
    assert [(row["count"], row["last"], row["message"], row["trace"]) for row in of_archive] == [
        (1, "2026-11-21T04:22:29.500Z", "early?", ""),
        (3, "2026-11-21T04:22:30.000Z", "io.aeron.SomeError: late", "\tat X.y\n\tat Z"),
    ]


def test_errors_in_a_directory_are_chosen_by_time_and_level(member: Path) -> None:
    newer = run(str(member), "--since", "2023-11-14T22:15:00Z", "-o", "jsonl").stdout
    worse = run(str(member), "--level", "error", "-o", "jsonl").stdout

    assert [json.loads(line)["event"] for line in newer.splitlines()] == ["service.failed"]
    assert worse == newer
