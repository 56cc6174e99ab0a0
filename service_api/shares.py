"""Shares: the part of a limit for all clients that one client may take, so that the others have the rest."""

from __future__ import annotations

from typing import Final

SHARE_DIVISOR: Final = 4
"""One client may take a limit divided by this."""


def share_of(limit: int, divisor: int = SHARE_DIVISOR) -> int:
    """Return how much of a limit one client may take: at least 1."""
    return max(limit // divisor, 1)
