"""Distinct errors: written once, counted, bounded, and read back from a file whose owner is dead."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from trimaran.archive.files.marks import MARK_FILE_ERROR_LOG_LENGTH, MARK_FILE_HEADER_LENGTH
from trimaran.cluster.runtime.files.error_log import DistinctError, ErrorLog, ErrorObservation, read_errors
from trimaran.cluster.runtime.files.mark_file import (
    MARK_FILE_NAME,
    ClusterMarkFile,
)
from trimaran.service_api import ClusterError


def trouble(number: int = 0, *, message: str = "it broke", trace: str = "") -> ErrorObservation:
    return ErrorObservation(
        "error", "service.failed", "ValueError", f"quota.py:{number} Quota.on_timer_event", message, trace
    )


class Times:
    """Epoch times, one later than the other."""

    def __init__(self, now_ms: int = 1000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


def open_mark(directory: Path) -> ClusterMarkFile:
    return ClusterMarkFile.open(directory, member_id=0, now_ms=1)


def test_an_error_is_written_once_and_counted(tmp_path: Path) -> None:
    mark = open_mark(tmp_path)
    log = ErrorLog(mark, Times())

    for _ in range(3):
        log.observe(trouble(31, trace="Traceback ...\nValueError: it broke"))
    log.observe(trouble(32, message="something else"))

    assert read_errors(tmp_path / MARK_FILE_NAME) == [
        DistinctError(3, 1001, 1003, trouble(31, trace="Traceback ...\nValueError: it broke")),
        DistinctError(1, 1004, 1004, trouble(32, message="something else")),
    ]
    assert (log.distinct_count, log.observation_count, log.dropped_count) == (2, 4, 0)
    mark.close()


def test_the_layout_is_the_one_that_aerons_tools_read(tmp_path: Path) -> None:
    """Agrona's DistinctErrorLog: length, count, last, first, text; records at multiples of 8."""
    mark = open_mark(tmp_path)
    log = ErrorLog(mark, Times())
    log.observe(trouble(1))
    log.observe(trouble(1))
    mark.close()

    area = (tmp_path / MARK_FILE_NAME).read_bytes()[MARK_FILE_HEADER_LENGTH:]
    length, count, last, first = struct.unpack_from("<iiqq", area)

    assert (count, last, first) == (2, 1002, 1001)
    assert area[24:length].decode() == "error service.failed ValueError at quota.py:1 Quota.on_timer_event\nit broke"
    assert area[length:] == bytes(MARK_FILE_ERROR_LOG_LENGTH - length)


def test_the_next_run_goes_on_with_the_counts(tmp_path: Path) -> None:
    for start_ms in (1000, 2000):
        mark = open_mark(tmp_path)
        ErrorLog(mark, Times(start_ms)).observe(trouble(1))
        mark.close()

    (error,) = read_errors(tmp_path / MARK_FILE_NAME)
    assert (error.observation_count, error.first_ms, error.last_ms) == (2, 1001, 2001)


def test_a_full_log_takes_nothing_new_and_goes_on_counting(tmp_path: Path) -> None:
    mark = open_mark(tmp_path)
    log = ErrorLog(mark, Times())

    for number in range(200):
        log.observe(trouble(number, trace="x" * 100_000))
    log.observe(trouble(0))

    errors = read_errors(tmp_path / MARK_FILE_NAME)
    assert len(errors) == log.distinct_count == 200 - log.dropped_count
    assert log.dropped_count > 50
    assert errors[-1].trouble.place.startswith("quota.py:0 ")
    assert errors[-1].observation_count == 2
    mark.close()


def test_a_start_keeps_the_newer_half_of_a_log_that_is_full(tmp_path: Path) -> None:
    mark = open_mark(tmp_path)
    log = ErrorLog(mark, Times())
    for number in range(200):
        log.observe(trouble(number, trace="x" * 100_000))
    before = read_errors(tmp_path / MARK_FILE_NAME)
    mark.close()

    mark = open_mark(tmp_path)
    again = ErrorLog(mark, Times(5000))
    again.observe(trouble(999))

    after = read_errors(tmp_path / MARK_FILE_NAME)
    assert after[:-1] == before[-(len(after) - 1) :]
    assert len(before) // 3 < len(after) < len(before)
    assert after[-1].trouble == trouble(999)
    mark.close()


@pytest.mark.parametrize("cut", [2, 30, 120])
def test_a_torn_log_is_read_as_far_as_it_goes(tmp_path: Path, cut: int) -> None:
    mark = open_mark(tmp_path)
    log = ErrorLog(mark, Times())
    log.observe(trouble(1))
    log.observe(trouble(2))
    mark.close()
    path = tmp_path / MARK_FILE_NAME
    data = bytearray(path.read_bytes())
    data[MARK_FILE_HEADER_LENGTH + cut : MARK_FILE_HEADER_LENGTH + cut + 4] = b"\xff" * 4
    path.write_bytes(data)

    errors = read_errors(path)
    mark = open_mark(tmp_path)
    ErrorLog(mark, Times(5000)).observe(trouble(3))
    mark.close()

    assert len(errors) <= 2
    assert read_errors(path)[-1].trouble == trouble(3)


def test_noise_in_the_error_area_is_no_reason_to_fail(tmp_path: Path) -> None:
    open_mark(tmp_path).close()
    path = tmp_path / MARK_FILE_NAME
    data = bytearray(path.read_bytes())
    record = struct.pack("<iiqq", 64, 1, 5, 5) + b"\x1b[2J\xff not ours".ljust(40)
    data[MARK_FILE_HEADER_LENGTH : MARK_FILE_HEADER_LENGTH + 64] = record
    path.write_bytes(data)

    (error,) = read_errors(path)

    assert error.trouble.message == "?[2J� not ours".ljust(len(error.trouble.message))


def test_what_is_no_mark_file_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / MARK_FILE_NAME
    path.write_bytes(b"nothing")

    with pytest.raises(ClusterError, match="damaged mark file"):
        read_errors(path)


class FailingArea:
    """A disk that refuses."""

    write_count = 0

    def read_error_area(self) -> bytes:
        return bytes(MARK_FILE_ERROR_LOG_LENGTH)

    def write_error_area(self, data: bytes, offset: int) -> None:
        self.write_count += 1
        raise OSError("no space left")


def test_a_disk_that_refuses_is_not_asked_again_and_harms_nobody() -> None:
    area = FailingArea()
    log = ErrorLog(area, Times())

    for _ in range(3):
        log.observe(trouble(1))

    assert (area.write_count, log.observation_count, log.dropped_count) == (1, 3, 3)


def test_a_place_of_any_length_stays_one_error(tmp_path: Path) -> None:
    mark = open_mark(tmp_path)
    log = ErrorLog(mark, Times())
    long = ErrorObservation("warning", "a.b", "", "p" * 10_000, "m\n" * 10_000)

    log.observe(long)
    log.observe(long)
    mark.close()
    mark = open_mark(tmp_path)
    ErrorLog(mark, Times()).observe(long)
    mark.close()

    (error,) = read_errors(tmp_path / MARK_FILE_NAME)
    assert error.observation_count == 3


def test_a_disk_that_is_full_has_room_for_the_error_that_says_so(tmp_path: Path) -> None:
    """The file was sparse: the error that ended a member was not in its error log."""
    mark_file = ClusterMarkFile.open(tmp_path, member_id=0, now_ms=0)
    mark_file.close()

    found = (tmp_path / MARK_FILE_NAME).stat()

    assert found.st_size == MARK_FILE_HEADER_LENGTH + MARK_FILE_ERROR_LOG_LENGTH
    assert found.st_blocks * 512 >= found.st_size
