"""Detects that processors are short, so that a leader makes fewer and longer batches.

The problem: a batch costs each member and the client a few wake-ups and system calls, however short it is. A leader
that sends whatever it has in each pass of its loop makes many short ones, which is quickest where every process has a
processor to itself. Where members share a machine they wait for each other's turns instead: at half of the load that
such a cluster could carry all its processors were busy already, and a message waited for several turns.

The idea: Linux counts how long a thread was ready to run and did not (`/proc/thread-self/schedstat`, the second number,
in nanoseconds). Where that is more than a little of the time, a batch waits for the one before it.

Measured: three members and a client on two cores, 32 bytes, file sync level 1, an open loop at half of the peak,
medians of 14 interleaved runs: p50 4.0 -> 2.9 ms, p99 13.7 -> 9.2 ms, the members' processor time a tenth less; closed
loops as before, as one of depth 1 has no second batch, and one of 1,024 fills a batch anyway.

Rejected: the load average, which knows nothing of this process; taking what a `sched_yield` takes for the same, which
needs the loop to be idle first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

LOOK_INTERVAL_NS: Final = 50_000_000
"""How often the kernel is asked, at most: that takes 9 us."""

SHORT_PERCENT: Final = 10
"""So much of the time a thread waits at least where processors are short.

Seen: 25 to 38 in the members of a busy cluster of three that shares two cores with its client, 9 to 21 with 64 messages
in flight; 0 in a busy process beside an idle core.
"""

_SCHEDULE_STATISTICS: Final = Path("/proc/thread-self/schedstat")

ReadWait = Callable[[], int]
"""Gives how long the calling thread has waited for a processor so far, in nanoseconds; 0 where nobody counts."""


def read_wait_ns(path: Path = _SCHEDULE_STATISTICS) -> int:
    """Ask the kernel how long this thread has waited for a processor so far; 0 where it does not say."""
    try:
        return int(path.read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        return 0


class ProcessorPressure:
    """Whether the thread of one event loop waits for its processor. All calls in that thread."""

    def __init__(self, read_wait: ReadWait, monotonic_ns: Callable[[], int]) -> None:
        self._read_wait = read_wait
        self._monotonic_ns = monotonic_ns
        self._looked_ns = monotonic_ns()
        self._wait_ns = read_wait()
        self._is_short = False

    def __repr__(self) -> str:
        return f"<ProcessorPressure is_short={self._is_short}>"

    def is_short(self) -> bool:
        """Whether processors were short of late: between the last two looks, the first of which may be long ago."""
        now_ns = self._monotonic_ns()
        passed_ns = now_ns - self._looked_ns
        if passed_ns >= LOOK_INTERVAL_NS:
            wait_ns = self._read_wait()
            self._is_short = (wait_ns - self._wait_ns) * 100 >= passed_ns * SHORT_PERCENT
            self._looked_ns, self._wait_ns = now_ns, wait_ns
        return self._is_short
