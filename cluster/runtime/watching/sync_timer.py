"""Measures how long syncs take: a disk that times `sync_data` and `sync_file`.

Durations are counted in powers of two: the bucket of a duration is the number of its bits, so counting takes one index
and no search. Reads and writes are the disk's own methods, without a layer.

Measured (Python 3.11, processor time): 1.5 us per sync with `RecentSyncs`, of which one takes 80 us at best.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from ....archive.disk.file_system import FileSystem
from .recent_syncs import RecentSyncs

_BUCKET_COUNT: Final = 64
_NS_PER_S: Final = 1_000_000_000

_SHOWN_BITS: Final = range(14, 34)
"""The buckets that are shown, from 16 us to 8.6 s; what is shorter or longer is in the first or in +Inf."""


class DurationHistogram:
    """Counts durations by the number of bits of their nanoseconds. One thread at a time adds to it."""

    __slots__ = ("_counts", "max_ns", "total_ns")

    def __init__(self) -> None:
        self._counts = [0] * _BUCKET_COUNT
        self.max_ns = 0
        self.total_ns = 0

    def __repr__(self) -> str:
        return f"<DurationHistogram count={self.count} max_ns={self.max_ns}>"

    @property
    def count(self) -> int:
        """How many durations there were."""
        return sum(self._counts)

    def add(self, duration_ns: int) -> None:
        """Count a duration."""
        self._counts[duration_ns.bit_length()] += 1
        self.total_ns += duration_ns
        if duration_ns > self.max_ns:
            self.max_ns = duration_ns

    def cumulative(self) -> list[tuple[float, int]]:
        """Return upper bounds in seconds, ascending, each with the count below it; the last bound is infinite."""
        counts = self._counts
        shown = [((1 << bits) / _NS_PER_S, sum(counts[: bits + 1])) for bits in _SHOWN_BITS]
        return [*shown, (float("inf"), sum(counts))]


class TimedFileSystem:
    """A disk whose syncs are timed; one that takes `slow_ns` or longer is slow."""

    def __init__(self, disk: FileSystem, monotonic_ns: Callable[[], int], *, slow_ns: int) -> None:
        self.data_syncs = DurationHistogram()
        self.file_syncs = DurationHistogram()
        self.recent: Final = RecentSyncs(slow_ns)
        self._disk = disk
        self._paths: dict[int, Path] = {}
        """The path of each open file, by handle."""
        self._clock = monotonic_ns
        self.sync_data: Final = self._timed(disk.sync_data, self.data_syncs)
        self.sync_file: Final = self._timed(disk.sync_file, self.file_syncs)
        self.pread: Final = disk.pread
        self.pread_into: Final = disk.pread_into
        self.pwrite: Final = disk.pwrite
        self.file_length: Final = disk.file_length
        self.set_length: Final = disk.set_length
        self.evict: Final = disk.evict
        self.sync_directory: Final = disk.sync_directory
        self.make_directory: Final = disk.make_directory
        self.list_directory: Final = disk.list_directory
        self.remove: Final = disk.remove
        self.disk_space: Final = disk.disk_space
        self.mark_used: Final = disk.mark_used
        self.list_used: Final = disk.list_used
        self.restrict_access: Final = disk.restrict_access
        self.try_lock: Final = disk.try_lock

    def __repr__(self) -> str:
        return f"<TimedFileSystem {self._disk!r}>"

    def open_file(self, path: Path, *, create: bool = False, writable: bool = True) -> int:
        """Open a file, as the disk does."""
        handle = self._disk.open_file(path, create=create, writable=writable)
        self._paths[handle] = path
        return handle

    def close_file(self, handle: int) -> None:
        """Close a file, as the disk does."""
        self._paths.pop(handle, None)  # first: another thread may be given the same number
        self._disk.close_file(handle)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, as the disk does."""
        self._disk.rename(source, target)
        for handle in [handle for handle, path in self._paths.copy().items() if path == source]:
            self._paths[handle] = target

    def _timed(self, sync: Callable[[int], None], histogram: DurationHistogram) -> Callable[[int], None]:
        """Put a stop-watch on a sync; a closure, which costs half of what a method does."""
        add, begin, end, clock, paths = histogram.add, self.recent.begin, self.recent.end, self._clock, self._paths

        def timed_sync(handle: int) -> None:
            begin_ns = clock()
            begin(handle, paths[handle], begin_ns)
            try:
                sync(handle)
            finally:
                duration_ns = clock() - begin_ns
                end(handle, paths[handle], begin_ns, duration_ns)
            add(duration_ns)

        return timed_sync
