"""How long syncs take in a directory: of a file that is written already, as a segment of a log is when it is used."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..disk.file_system import FileSystem, OsFileSystem, write_fully

PROBE_FILE_NAME: Final = "trimaran-sync-probe.tmp"
"""The file that is written, and removed at the end; one that a killed process left is replaced."""

BLOCK_BYTES: Final = 4096
"""Bytes written before each sync: a small batch of messages."""

_PROBE_BYTES: Final = 16 << 20
_STEP_BYTES: Final = 1 << 20


def measure_syncs(
    directory: Path,
    *,
    sync_count: int,
    limit_ns: int,
    monotonic_ns: Callable[[], int],
    on_synced: Callable[[int], None] = lambda length_bytes: None,
    file_system: FileSystem | None = None,
) -> list[int]:
    """Write and sync blocks in a directory; return how long each sync took in nanoseconds, the shortest first.

    It ends after `sync_count` syncs, or with the first one that ends `limit_ns` after the first began, so there is at
    least one. `on_synced` is told how many bytes each sync was of. The file has 16 MiB, and is gone at the end.

    Raises:
        OSError: the disk refused.
    """
    disk = OsFileSystem() if file_system is None else file_system
    path = directory / PROBE_FILE_NAME
    with suppress(FileNotFoundError):
        disk.remove(path)
    handle = disk.open_file(path, create=True)
    try:
        zeros = memoryview(bytes(_STEP_BYTES))
        for offset in range(0, _PROBE_BYTES, _STEP_BYTES):
            write_fully(disk, handle, zeros, offset)
        disk.sync_file(handle)
        block, durations_ns, end_ns = b"\x5a" * BLOCK_BYTES, list[int](), monotonic_ns() + limit_ns
        while True:
            write_fully(disk, handle, block, len(durations_ns) * BLOCK_BYTES % _PROBE_BYTES)
            begin_ns = monotonic_ns()
            disk.sync_data(handle)
            now_ns = monotonic_ns()
            durations_ns.append(now_ns - begin_ns)
            on_synced(BLOCK_BYTES)
            if len(durations_ns) >= sync_count or now_ns >= end_ns:
                return sorted(durations_ns)
    finally:
        disk.close_file(handle)
        with suppress(FileNotFoundError):  # another process that measures here has replaced it
            disk.remove(path)
