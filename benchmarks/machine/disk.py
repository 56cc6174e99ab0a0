"""What the disk itself does: the floor and the ceiling of everything durable."""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median
from typing import Final

from ...archive.files.sync_speed import measure_syncs

_SYNC_COUNT: Final = 400
_SYNC_LIMIT_NS: Final = 60_000_000_000
_STREAM_BYTES: Final = 256 << 20
_STREAM_CHUNK_BYTES: Final = 1 << 20
_STREAM_SYNC_CHUNKS: Final = 4


def settle_disk() -> None:
    """Have written what earlier measurements left in the page cache: later ones are not to share the disk with it."""
    os.sync()


def measure_disk(directory: Path) -> dict[str, float]:
    """Time fdatasync into a file that is written already, and a stream of writes that is synced every 4 MiB."""
    syncs_ns = measure_syncs(
        directory, sync_count=_SYNC_COUNT, limit_ns=_SYNC_LIMIT_NS, monotonic_ns=time.perf_counter_ns
    )
    path = directory / "disk-probe"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        block = os.urandom(_STREAM_CHUNK_BYTES)
        for offset in range(0, _STREAM_BYTES, _STREAM_CHUNK_BYTES):
            os.pwrite(handle, block, offset)
        os.fsync(handle)
        begin_ns = time.perf_counter_ns()
        for number, offset in enumerate(range(0, _STREAM_BYTES, _STREAM_CHUNK_BYTES)):
            os.pwrite(handle, block, offset)
            if number % _STREAM_SYNC_CHUNKS == _STREAM_SYNC_CHUNKS - 1:
                os.fdatasync(handle)
        stream_s = (time.perf_counter_ns() - begin_ns) / 1e9
    finally:
        os.close(handle)
        path.unlink()
    return {
        "fdatasync_4k_p50_us": round(median(syncs_ns) / 1e3, 1),
        "fdatasync_4k_p99_us": round(syncs_ns[len(syncs_ns) * 99 // 100] / 1e3, 1),
        "stream_mb_per_s": round(_STREAM_BYTES / stream_s / 1e6),
    }
