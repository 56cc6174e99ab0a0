"""A line of the log that cannot be written is counted, and never an error or a wait of the process."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import patient
from trimaran.service_api.log_lines import LogLineWriter


class Reports(list[tuple[str, dict[str, object]]]):
    """What was reported, in order."""

    def __call__(self, event: str, **fields: object) -> None:
        self.append((event, fields))


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe that holds a page."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    yield read, write
    for descriptor in (read, write):
        try:
            os.close(descriptor)
        except OSError:
            assert descriptor == read  # a test has closed it


def test_lines_of_any_length_arrive_whole_and_in_order(tmp_path: Path, reports: Reports) -> None:
    path = tmp_path / "log"
    lines = ["short", "long " * 5000, "umlaut ü, and half a surrogate \ud800", "last"]

    with path.open("wb") as file:
        writer = LogLineWriter(file.fileno(), reports)
        for line in lines:
            writer.msg(line)

    assert path.read_text(encoding="utf-8") == "".join(f"{line}\n" for line in lines).replace("\ud800", "\\ud800")
    assert writer.lost_count == 0


def test_a_reader_that_is_gone_is_told_once(pipe: tuple[int, int], reports: Reports) -> None:
    read, write = pipe
    os.close(read)
    writer = LogLineWriter(write, reports)

    for _ in range(3):
        writer.msg("line")

    assert writer.lost_count == 3
    assert [event for event, _ in reports] == ["log.write_failed"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_raises_nothing(reports: Reports) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        LogLineWriter(full.fileno(), reports).msg("line")

    assert "No space left" in str(reports[0][1]["error"])


def test_a_pipe_that_nobody_reads_is_waited_for_once_and_used_again(pipe: tuple[int, int], reports: Reports) -> None:
    read, write = pipe
    writer = LogLineWriter(write, reports)

    for _ in range(200):
        writer.msg("x" * 99)
    first = os.read(read, 4096)
    writer.msg("after")

    lost = 200 - first.count(b"\n")
    assert lost > 0
    assert os.read(read, 4096) == b"after\n"
    assert [event for event, _ in reports] == ["log.write_failed", "log.lines_lost"]
    assert reports[1][1] == {"line_count": lost}
    assert writer.lost_count == 0


def test_a_line_after_half_a_line_begins_anew(pipe: tuple[int, int], reports: Reports) -> None:
    read, write = pipe
    writer = LogLineWriter(write, reports)

    writer.msg("x" * 5000)
    os.read(read, 4096)
    writer.msg("after")

    assert os.read(read, 4096) == b"\nafter\n"


def test_the_notice_that_lines_are_lost_is_no_endless_loop(pipe: tuple[int, int]) -> None:
    """It is a line of the log itself."""
    read, write = pipe
    os.close(read)
    seen: list[str] = []

    def report(event: str, **fields: object) -> None:
        seen.append(event)
        writer.msg(event)

    writer = LogLineWriter(write, report)
    writer.msg("node.started")

    assert seen == ["log.write_failed"]
    assert writer.lost_count == 2


def test_a_thread_that_stands_still_within_a_line_keeps_no_other_line(tmp_path: Path, reports: Reports) -> None:
    """The last line of a member that hangs comes from another thread."""
    path = tmp_path / "log"
    with path.open("wb") as file:
        writer = LogLineWriter(file.fileno(), reports)
        with writer._lock:
            thread = threading.Thread(target=writer.msg, args=("node.hung",))
            thread.start()
            thread.join(patient(10.0))

    assert path.read_text() == "node.hung\n"
