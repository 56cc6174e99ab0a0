"""When a leader says that processors are short."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import patient
from trimaran.cluster.runtime.shared_machine.processor_pressure import (
    LOOK_INTERVAL_NS,
    SHORT_PERCENT,
    ProcessorPressure,
    read_wait_ns,
)


class Thread:
    """What the kernel counts of a thread, and the time."""

    def __init__(self) -> None:
        self.now_ns = 1 << 40
        self.wait_ns = 77
        self.looks = 0
        self.pressure = ProcessorPressure(self.read_wait, lambda: self.now_ns)

    def read_wait(self) -> int:
        self.looks += 1
        return self.wait_ns

    def go_on(self, passed_ns: int, *, waited_ns: int) -> bool:
        self.now_ns += passed_ns
        self.wait_ns += waited_ns
        return self.pressure.is_short()


LEAST_WAIT_NS = LOOK_INTERVAL_NS * SHORT_PERCENT // 100


@pytest.mark.parametrize(("waited_ns", "expected"), [(0, False), (LEAST_WAIT_NS - 1, False), (LEAST_WAIT_NS, True)])
def test_processors_are_short_where_the_thread_waits_for_a_tenth_of_the_time(waited_ns: int, expected: bool) -> None:
    assert Thread().go_on(LOOK_INTERVAL_NS, waited_ns=waited_ns) is expected


def test_what_was_waited_before_is_forgotten_with_the_next_look() -> None:
    thread = Thread()
    assert thread.go_on(LOOK_INTERVAL_NS, waited_ns=LOOK_INTERVAL_NS)
    assert not thread.go_on(LOOK_INTERVAL_NS, waited_ns=0)


def test_a_moment_of_waiting_after_a_long_rest_does_not_count() -> None:
    assert not Thread().go_on(100 * LOOK_INTERVAL_NS, waited_ns=LOOK_INTERVAL_NS)


def test_the_kernel_is_asked_once_in_a_while_only() -> None:
    thread = Thread()
    for _ in range(1000):
        thread.go_on(LOOK_INTERVAL_NS // 100, waited_ns=LOOK_INTERVAL_NS // 100)
    assert thread.looks == 1 + 10
    assert thread.pressure.is_short()


def test_kernel_that_counts_nothing_has_no_waits(tmp_path: Path) -> None:
    assert read_wait_ns(tmp_path / "missing") == 0
    for content in ("", "12\n", "12 nothing 3\n"):
        (tmp_path / "schedstat").write_text(content)
        assert read_wait_ns(tmp_path / "schedstat") == 0
    (tmp_path / "schedstat").write_text("1000 2345 17\n")
    assert read_wait_ns(tmp_path / "schedstat") == 2345


SHARE_ONE_PROCESSOR = """
import os, subprocess, sys, time
from trimaran.cluster.runtime.shared_machine.processor_pressure import read_wait_ns
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
try:
    end_s = time.monotonic() + 20
    begin_ns = read_wait_ns()
    while read_wait_ns() - begin_ns < 10_000_000 and time.monotonic() < end_s:
        pass
    print(read_wait_ns() - begin_ns >= 10_000_000)
finally:
    other.kill()
    other.wait()
"""


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="a kernel that does not count this")
def test_kernel_counts_the_time_for_which_another_process_has_the_only_processor() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHARE_ONE_PROCESSOR], capture_output=True, text=True, timeout=patient(60)
    )
    assert done.stdout.strip() == "True", done.stderr
