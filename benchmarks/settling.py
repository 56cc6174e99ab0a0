"""Making the machine ready for a measurement: what earlier ones left is not to be part of its figures."""

from __future__ import annotations

import mmap
import os
import sys
from typing import Final

_STEP_BYTES: Final = 2 << 20
"""A huge page, where there are any."""

USUAL_BYTES: Final = 1 << 30
"""As much as most measurements write."""


def settle(length_bytes: int = USUAL_BYTES) -> None:
    """Have the disk at rest and so much memory at hand."""
    settle_disk()
    bring_memory(length_bytes)


def settle_disk() -> None:
    """Have written what earlier measurements left in the page cache: later ones are not to share the disk with it."""
    os.sync()


def bring_memory(length_bytes: int) -> None:
    """Use so much of the free memory once, half of it at most, so that what is written next finds it there.

    A virtual machine may give memory back to its host that was free for some seconds, and gets it page by page as it is
    touched again: 2 s of a processor for each GiB, where memory that is there takes 0.1 s. A member that copies a log
    into such memory takes half as long again, and nobody who looks at the figures would see why.
    """
    if sys.platform != "linux":
        return
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    length = min(length_bytes, free_bytes // 2) // _STEP_BYTES * _STEP_BYTES
    if not length:
        return
    with mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as room:
        room.madvise(mmap.MADV_HUGEPAGE)
        zeros = bytes(_STEP_BYTES)
        for offset in range(0, length, _STEP_BYTES):
            room[offset : offset + _STEP_BYTES] = zeros
