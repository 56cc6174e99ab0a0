"""Who ran, by the kernel's own counts."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from trimaran.benchmarks.machine.schedule import ProcessorTimes, ThreadTimes, thread_times


def test_threads_of_this_process_are_read_and_run() -> None:
    before = {times.thread_id: times.ran_ns for times in thread_times(os.getpid())}
    deadline_s = time.process_time() + 0.02
    while time.process_time() < deadline_s:
        pass

    after = {times.thread_id: times.ran_ns for times in thread_times(os.getpid())}

    assert after[threading.get_native_id()] > before[threading.get_native_id()]


def test_a_process_that_is_gone_has_no_threads_and_one_that_ends_meanwhile_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "7" / "task" / "8").mkdir(parents=True)
    (tmp_path / "7" / "task" / "9").mkdir()
    (tmp_path / "7" / "task" / "9" / "schedstat").write_text("100 20 3\n")

    assert thread_times(6, tmp_path) == []
    assert thread_times(7, tmp_path) == [ThreadTimes(9, 100, 20)]


def test_processors_are_busy_idle_or_stolen(tmp_path: Path) -> None:
    path = tmp_path / "stat"
    path.write_text("cpu  10 1 2 100 4 1 2 5 3 0\ncpu0 1 2 3\n")
    before = ProcessorTimes.read(path)
    path.write_text("cpu  20 1 7 160 9 1 2 25 3 0\n")

    passed = ProcessorTimes.read(path) - before

    step_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert passed == ProcessorTimes(100 * step_ns, 15 * step_ns, 20 * step_ns)


@pytest.mark.parametrize("content", ["", "cpu 1 2 3\n", "cpu none\n"])
def test_kernel_that_does_not_count_says_nothing(content: str, tmp_path: Path) -> None:
    path = tmp_path / "stat"
    path.write_text(content)

    assert ProcessorTimes.read(path) == ProcessorTimes()
