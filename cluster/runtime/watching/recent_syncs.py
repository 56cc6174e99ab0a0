"""How long the syncs of a member's disk take now: the newest of them, those that still run, and which were slow.

A histogram since the start of a process shows for hours that a disk was quick. So this keeps the newest syncs, and
looks at those of the last minute (`describe`) or of the last seconds (`find_typical_ns`). A sync that still runs counts
with the time it has taken so far, once that is slow: a disk that does not answer ends no sync.

Syncs run in several threads, so every method takes a lock.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RECENT_LIMIT: Final = 1_000
"""Syncs that are kept; the oldest is forgotten."""

DESCRIBED_NS: Final = 60_000_000_000
_TYPICAL_NS: Final = 10_000_000_000
_TYPICAL_COUNT: Final = 5
"""Syncs from which on there is a typical one: a cluster without load syncs next to nothing."""

_LINE_INTERVAL_NS: Final = 10_000_000_000
"""Between two lines about slow syncs: a disk that is always slow would fill itself with them."""


@dataclass(slots=True, frozen=True)
class SlowSync:
    """A sync that took long."""

    file: Path
    duration_ns: int
    is_running: bool = False
    """True if it has not ended yet; `duration_ns` is the time it has taken so far."""


@dataclass(slots=True, frozen=True)
class SyncSummary:
    """The newest syncs of the last minute, at most `RECENT_LIMIT`."""

    count: int
    slow_count: int
    """Those of them that took at least the limit."""
    p99_ns: int
    max_ns: int


class RecentSyncs:
    """The newest syncs of one disk. A sync is slow that takes `slow_ns` or longer."""

    def __init__(self, slow_ns: int) -> None:
        self.slow_ns: Final = slow_ns
        self._lock = threading.Lock()
        self._ended: deque[tuple[int, int]] = deque(maxlen=RECENT_LIMIT)
        """When each ended, and how long it took."""
        self._running: dict[int, tuple[int, Path]] = {}
        """By handle: when it began, and of which file it is."""
        self._worst: SlowSync | None = None
        """The longest slow one since the last line."""
        self._untold_count = 0
        self._next_line_ns = 0

    def __repr__(self) -> str:
        return f"<RecentSyncs count={len(self._ended)} running={len(self._running)} untold={self._untold_count}>"

    def begin(self, handle: int, file: Path, now_ns: int) -> None:
        """Note that a sync begins."""
        with self._lock:
            self._running[handle] = now_ns, file

    def end(self, handle: int, file: Path, begin_ns: int, duration_ns: int) -> None:
        """Note that a sync has ended, well or not."""
        with self._lock:
            self._running.pop(handle, None)
            self._ended.append((begin_ns + duration_ns, duration_ns))
            if duration_ns >= self.slow_ns:
                self._untold_count += 1
                if self._worst is None or duration_ns > self._worst.duration_ns:
                    self._worst = SlowSync(file, duration_ns)

    def describe(self, now_ns: int) -> SyncSummary | None:
        """Return how long the syncs of the last minute took; None without any."""
        durations = self._durations(now_ns, DESCRIBED_NS)
        if not durations:
            return None
        slow_count = sum(duration_ns >= self.slow_ns for duration_ns in durations)
        return SyncSummary(len(durations), slow_count, durations[(99 * len(durations) - 1) // 100], durations[-1])

    def find_typical_ns(self, now_ns: int) -> int | None:
        """Return how long half of the syncs of the last ten seconds took at most; None with few of them."""
        durations = self._durations(now_ns, _TYPICAL_NS)
        return durations[len(durations) // 2] if len(durations) >= _TYPICAL_COUNT else None

    def take_slow(self, now_ns: int) -> tuple[SlowSync, int] | None:
        """Return the longest slow sync that is to be logged now, and how many there were since the last line.

        None if there is nothing to log, or the last line is not 10 s old.
        """
        with self._lock:
            if now_ns < self._next_line_ns:
                return None
            worst, count = self._worst, self._untold_count
            for begin_ns, file in self._running.values():
                if now_ns - begin_ns >= max(self.slow_ns, 0 if worst is None else worst.duration_ns):
                    worst = SlowSync(file, now_ns - begin_ns, is_running=True)
            if worst is None:
                return None
            self._worst, self._untold_count = None, 0
            self._next_line_ns = now_ns + _LINE_INTERVAL_NS
            return worst, count + worst.is_running

    def _durations(self, now_ns: int, window_ns: int) -> list[int]:
        """Return how long the syncs of a while took, the shortest first."""
        with self._lock:
            durations = [duration_ns for end_ns, duration_ns in self._ended if now_ns - end_ns <= window_ns]
            running = [now_ns - begin_ns for begin_ns, _ in self._running.values()]
        return sorted(durations + [duration_ns for duration_ns in running if duration_ns >= self.slow_ns])
