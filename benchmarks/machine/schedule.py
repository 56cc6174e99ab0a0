"""What the kernel says of who ran: the threads of a process, and all processors together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_PROCESSES: Final = Path("/proc")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_IDLE: Final = (3, 4)
"""Which of the times of all processors are idle, and waiting for a disk. Source: proc_stat(5)."""
_STOLEN: Final = 7
_GUEST: Final = 8
"""From here on times follow that are in others already."""


@dataclass(slots=True, frozen=True)
class ThreadTimes:
    """How long a thread ran, and how long it was ready to run and did not, since it began. Nanoseconds."""

    thread_id: int
    ran_ns: int
    waited_ns: int


def thread_times(pid: int, processes: Path = _PROCESSES) -> list[ThreadTimes]:
    """Read the times of every thread of a process; nothing when it is gone, or where the kernel does not count."""
    found = []
    try:
        directories = [*(processes / str(pid) / "task").iterdir()]
    except OSError:
        return []
    for directory in directories:
        try:
            ran_ns, waited_ns, _ = (directory / "schedstat").read_bytes().split()
        except (OSError, ValueError):
            continue  # a thread that has ended meanwhile
        found.append(ThreadTimes(int(directory.name), int(ran_ns), int(waited_ns)))
    return found


@dataclass(slots=True, frozen=True)
class ProcessorTimes:
    """The time of all processors so far, in steps of 10 ms. Nanoseconds."""

    total_ns: int = 0
    busy_ns: int = 0
    """Work of any process, or of the kernel."""
    stolen_ns: int = 0
    """What the hypervisor gave to others."""

    @classmethod
    def read(cls, path: Path = _PROCESSES / "stat") -> Self:
        """Read them; 0 where nobody counts."""
        try:
            fields = [int(field) for field in path.read_text().splitlines()[0].split()[1:]]
        except (OSError, IndexError, ValueError):
            return cls()
        if len(fields) <= _STOLEN:
            return cls()
        step_ns = 1_000_000_000 // _TICKS_PER_S
        total, stolen = sum(fields[:_GUEST]), fields[_STOLEN]
        busy = total - stolen - sum(fields[number] for number in _IDLE)
        return cls(total * step_ns, busy * step_ns, stolen * step_ns)

    def __sub__(self, before: ProcessorTimes) -> ProcessorTimes:
        """What passed since `before`."""
        return ProcessorTimes(
            self.total_ns - before.total_ns, self.busy_ns - before.busy_ns, self.stolen_ns - before.stolen_ns
        )
