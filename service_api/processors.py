"""How many processors there are for this process."""

from __future__ import annotations

import os


def count_processors() -> int:
    """Return how many processors this process may use; where the system does not say, how many there are."""
    if hasattr(os, "sched_getaffinity"):  # Linux, and not macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
