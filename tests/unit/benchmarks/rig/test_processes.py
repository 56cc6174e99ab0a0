"""Child processes end with the group, whatever they do; ports are free."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from trimaran.benchmarks.rig.processes import PORTS_PER_MEMBER, ProcessError, ProcessGroup, find_base_ports

PRINT_AND_WAIT = "import time; print('up', flush=True); time.sleep(600)"
IGNORE_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + PRINT_AND_WAIT


def spawn(group: ProcessGroup, code: str, log_path: Path) -> subprocess.Popen[bytes]:
    process = group.spawn("child", (sys.executable, "-c", code), log_path=log_path, stdout=subprocess.PIPE).popen
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def test_leaving_the_group_ends_its_processes(tmp_path: Path) -> None:
    with ProcessGroup() as group:
        process = spawn(group, PRINT_AND_WAIT, tmp_path / "log")

    assert process.returncode == -signal.SIGTERM


def test_a_process_that_ignores_sigterm_is_killed_at_the_time_limit(tmp_path: Path) -> None:
    with ProcessGroup(stop_timeout_s=0.1) as group:
        process = spawn(group, IGNORE_SIGTERM, tmp_path / "log")

    assert process.returncode == -signal.SIGKILL


def test_a_stopped_process_is_ended_too(tmp_path: Path) -> None:
    with ProcessGroup() as group:
        process = spawn(group, PRINT_AND_WAIT, tmp_path / "log")
        process.send_signal(signal.SIGSTOP)

    assert process.returncode == -signal.SIGTERM


def test_an_error_in_the_block_ends_them_too(tmp_path: Path) -> None:
    group = ProcessGroup()

    def fail_with_a_child() -> None:
        with group:
            spawn(group, PRINT_AND_WAIT, tmp_path / "log")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_with_a_child()

    (process,) = (child.popen for child in group.processes)
    assert process.returncode == -signal.SIGTERM


def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from trimaran.benchmarks.rig.processes import ProcessGroup\n"
        f"group = ProcessGroup(); child = group.spawn('child', (sys.executable, '-c', {PRINT_AND_WAIT!r}),"
        " log_path=Path(sys.argv[1]))\n"
        "print(child.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        (sys.executable, "-c", code, str(tmp_path / "log")), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child_pid = int(parent.stdout.readline())
    child = os.pidfd_open(child_pid)

    parent.kill()
    parent.communicate()

    # The kernel tells of the child's end through its pidfd.
    poller = select.poll()
    poller.register(child, select.POLLIN)
    readable = poller.poll(30_000)
    os.close(child)
    assert readable


def test_a_process_that_ended_is_told_with_its_last_lines(tmp_path: Path) -> None:
    with ProcessGroup() as group:
        code = "import sys; print('trimaran: port in use', file=sys.stderr); sys.exit(2)"
        process = group.spawn("member-0", (sys.executable, "-c", code), log_path=tmp_path / "log")
        process.popen.wait()

        with pytest.raises(ProcessError, match=r"member-0 ended: exit_status=2 .*\ntrimaran: port in use"):
            group.check_running()


def test_cpu_time_of_a_process_is_counted(tmp_path: Path) -> None:
    code = "import time\nwhile time.process_time() < 0.1: pass\n" + PRINT_AND_WAIT
    with ProcessGroup() as group:
        spawn(group, code, tmp_path / "log")
        (process,) = group.processes

        assert process.cpu_seconds() >= 0.05
    assert process.cpu_seconds() == 0


def test_base_ports_leave_room_for_every_member_and_skip_ports_in_use() -> None:
    with socket.socket() as taken:
        (base_port,) = find_base_ports(1)
        taken.bind(("127.0.0.1", base_port + 1))
        taken.listen()

        base_ports = find_base_ports(20)

    assert base_port not in base_ports
    assert all(after - before >= PORTS_PER_MEMBER for before, after in pairwise(base_ports))
