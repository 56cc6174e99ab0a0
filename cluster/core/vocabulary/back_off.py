"""The pause before what failed is tried again: it doubles with each failure, up to a limit."""

from __future__ import annotations

from typing import Final

_DOUBLING_LIMIT: Final = 20
"""So often a pause is doubled at most: enough for every limit, and a number that stays small."""


def back_off_ns(failure_count: int, *, first_ns: int, limit_ns: int) -> int:
    """Return the pause after `failure_count` failures before this one, in nanoseconds."""
    return min(first_ns << min(failure_count, _DOUBLING_LIMIT), limit_ns)
