"""Profilers beside processes that are measured: started and stopped with the measurement, their files read.

`perf` samples what runs on a processor and counts system calls; `py-spy` reads the Python stack of the thread that
holds the interpreter's lock. Both look from outside: nothing in the processes is changed.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...service_api.errors import ConfigurationError
from ..rig.meter import Meter
from ..rig.processes import ClusterProcesses, ManagedProcess, ProcessError, ProcessGroup
from .stages import StackFrame

PERF_RATE_HZ: Final = 997
PYTHON_RATE_HZ: Final = 250
COUNTED_CALLS: Final = (
    "read",
    "write",
    "writev",
    "recvfrom",
    "sendmsg",
    "epoll_pwait",
    "pwrite64",
    "fdatasync",
    "futex",
)
"""System calls that are counted by name, besides all of them."""

FIRST_CLIENT: Final = "client-0"

_ALL_CALLS: Final = "raw_syscalls:sys_enter"
_START_LIMIT_S: Final = 10.0
_SETTLING_S: Final = 0.3
_STOP_LIMIT_S: Final = 30.0
_HINT: Final = "pip install '.[bench]' in the checkout and apt install linux-perf"


@dataclass(slots=True, frozen=True)
class Tools:
    """Where the profilers are."""

    perf: str
    py_spy: str


def find_tools() -> Tools:
    """Look for the profilers.

    Raises:
        ConfigurationError: one is missing, or may not look at processes; says how to install them.
    """
    beside = Path(sys.executable).with_name("py-spy")
    py_spy = str(beside) if beside.exists() else shutil.which("py-spy")
    perf = shutil.which("perf")
    if py_spy is None or perf is None:
        missing = " and ".join(name for name, path in (("perf", perf), ("py-spy", py_spy)) if path is None)
        raise ConfigurationError(f"the profile needs {missing}, which is not installed: {_HINT}")
    command = (perf, "record", "-q", "-e", "cpu-clock", "-o", "/dev/null", "--", "true")
    done = subprocess.run(command, capture_output=True, text=True, timeout=_START_LIMIT_S, check=False)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise ConfigurationError(f"perf cannot sample here: {why} (it needs root, or kernel.perf_event_paranoid <= 1)")
    return Tools(perf, py_spy)


class ProfilerMeter(Meter):
    """A meter that runs profilers between its two readings."""

    def __init__(self, cluster: ClusterProcesses, clients: ProcessGroup, directory: Path) -> None:
        super().__init__(cluster)
        self._profiled = cluster
        self._clients = clients
        self._directory = directory
        self._group = ProcessGroup()

    def processes(self) -> dict[str, ManagedProcess]:
        """Members and clients by name."""
        clients = {process.name: process for process in self._clients.processes if process.is_running}
        return {**{member.name: member for member in self._profiled.members.values()}, **clients}

    async def begin(self) -> None:
        """Start the profilers, wait until they look, and read what was used so far."""
        started = self._start()
        await asyncio.to_thread(self._wait_until_ready, started)
        await super().begin()

    async def end(self) -> None:
        """Read what was used, and let the profilers write what they have seen."""
        await super().end()
        await asyncio.to_thread(self._stop)

    def _start(self) -> list[ManagedProcess]:
        """Start the profilers; those whose log says "Sampling" once they look are given."""
        raise NotImplementedError

    def _spawn(self, name: str, command: Sequence[str]) -> ManagedProcess:
        return self._group.spawn(name, command, log_path=self._directory / f"{name}.log")

    def _wait_until_ready(self, started: list[ManagedProcess]) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        while not all("Sampling" in process.log_tail() for process in started):
            self._group.check_running()
            if time.monotonic() > deadline:
                raise ProcessError(f"{started[0].name} does not begin: {started[0].log_tail()}")
            time.sleep(_SETTLING_S / 10)
        time.sleep(_SETTLING_S)
        self._group.check_running()

    def _stop(self) -> None:
        for process in self._group.processes:
            process.signal(signal.SIGINT)
        for process in self._group.processes:
            try:
                process.popen.wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired as error:
                self._group.stop()
                raise ProcessError(f"{process.name} does not end: {process.log_tail()}") from error


class PerfMeter(ProfilerMeter):
    """Samples what every process has on a processor."""

    def __init__(self, tools: Tools, cluster: ClusterProcesses, clients: ProcessGroup, directory: Path) -> None:
        super().__init__(cluster, clients, directory)
        self._tools = tools
        self._pids: dict[int, str] = {}

    def _start(self) -> list[ManagedProcess]:
        self._pids = {process.pid: name for name, process in self.processes().items()}
        all_pids = ",".join(map(str, self._pids))
        record = (self._tools.perf, "record", "-q", "-g", "-e", "cpu-clock", "-F", str(PERF_RATE_HZ))
        self._spawn("perf-record", (*record, "-p", all_pids, "-o", str(self._samples_path)))
        return []

    @property
    def _samples_path(self) -> Path:
        return self._directory / "perf.data"

    def samples(self) -> Iterator[tuple[str, list[StackFrame]]]:
        """Give the process and the frames, innermost first, of every sample.

        Raises:
            ProcessError: perf cannot read its file.
        """
        command = (self._tools.perf, "script", "-i", str(self._samples_path), "-F", "pid,ip,sym,dso")
        done = subprocess.run(command, capture_output=True, text=True, timeout=_STOP_LIMIT_S * 4, check=False)
        if done.returncode:
            raise ProcessError(f"perf script failed: {done.stderr.strip()[-500:]}")
        for pid, frames in parse_perf_script(done.stdout):
            if pid in self._pids:
                yield self._pids[pid], frames


class CallMeter(ProfilerMeter):
    """Counts the system calls of every process; each takes longer meanwhile, so nothing else is learnt from the run."""

    def __init__(self, tools: Tools, cluster: ClusterProcesses, clients: ProcessGroup, directory: Path) -> None:
        super().__init__(cluster, clients, directory)
        self._tools = tools
        self._names: list[str] = []

    def _start(self) -> list[ManagedProcess]:
        events = ",".join((_ALL_CALLS, *(f"syscalls:sys_enter_{name}" for name in COUNTED_CALLS)))
        stat = (self._tools.perf, "stat", "-x", ",", "-e", events)
        for name, process in self.processes().items():
            self._names.append(name)
            self._spawn(f"perf-stat-{name}", (*stat, "-p", str(process.pid), "-o", str(self._path(name))))
        return []

    def _path(self, name: str) -> Path:
        return self._directory / f"calls-{name}.csv"

    def system_calls(self) -> dict[str, dict[str, int]]:
        """Counts by process and call, "all" among them; empty where the kernel does not let them be counted."""
        return {name: parse_perf_stat(self._path(name).read_text()) for name in self._names}


class PythonMeter(ProfilerMeter):
    """Samples the Python stacks of the members and of the first client."""

    def __init__(self, tools: Tools, cluster: ClusterProcesses, clients: ProcessGroup, directory: Path) -> None:
        super().__init__(cluster, clients, directory)
        self._tools = tools

    def _start(self) -> list[ManagedProcess]:
        processes = self.processes()
        # Stopping a process to look at it would find it at its system calls more often than it is there: in a virtual
        # machine the stop comes microseconds late, and a call on the way is where it takes effect.
        options = (
            "--nonblocking",
            "--gil",
            "--format",
            "raw",
            "--nolineno",
            "--full-filenames",
            "--rate",
            str(PYTHON_RATE_HZ),
        )
        return [
            self._spawn(
                f"py-spy-{name}",
                (self._tools.py_spy, "record", *options, "-p", str(processes[name].pid), "-o", str(self._path(name))),
            )
            for name in processes
            if name == FIRST_CLIENT or not name.startswith("client")  # which member leads shows afterwards
        ]

    def _path(self, name: str) -> Path:
        return self._directory / f"stacks-{name}.txt"

    def error_count(self, name: str) -> int:
        """How many stacks could not be read, because they changed meanwhile."""
        found = re.findall(r"Errors: (\d+)", (self._directory / f"py-spy-{name}.log").read_text(errors="replace"))
        return int(found[-1]) if found else 0

    def stacks(self, name: str) -> Counter[tuple[StackFrame, ...]]:
        """How often each stack of a process was seen, outermost frame first."""
        return parse_stacks(self._path(name).read_text())


def parse_perf_script(text: str) -> Iterator[tuple[int, list[StackFrame]]]:
    """Read what `perf script -F pid,ip,sym,dso` prints: a line with the process, then one for each frame."""
    pid, frames = None, list[StackFrame]()
    for line in [*text.splitlines(), ""]:
        if not line.strip():
            if pid is not None:
                yield pid, frames
            pid, frames = None, []
        elif pid is None:
            fields = line.split()
            pid = int(fields[0])
            if len(fields) > 1:  # a sample without a chain stands in its first line
                frames.append(_perf_frame(" ".join(fields[1:])))
        else:
            frames.append(_perf_frame(line.strip()))


def _perf_frame(text: str) -> StackFrame:
    """Read "address symbol (library)"."""
    _, _, rest = text.partition(" ")
    symbol, _, library = rest.rpartition(" (")
    return StackFrame(symbol.strip(), library.removesuffix(")"))


def parse_perf_stat(text: str) -> dict[str, int]:
    """Read what `perf stat -x ,` writes: counts by system call; what is not supported is left out."""
    counts = {}
    for line in text.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[0].isdigit():
            event = fields[2]
            counts["all" if event == _ALL_CALLS else event.partition("sys_enter_")[2]] = int(fields[0])
    return counts


def parse_stacks(text: str) -> Counter[tuple[StackFrame, ...]]:
    """Read py-spy's raw format: frames with semicolons, then how often."""
    stacks: Counter[tuple[StackFrame, ...]] = Counter()
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        if count.isdigit():
            stacks[tuple(StackFrame.parse(frame) for frame in frames.split(";"))] += int(count)
    return stacks
