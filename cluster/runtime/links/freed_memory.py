"""Gives memory back to the system after a flood: what was freed lies between what is still in use, and stays else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

TRIM_BYTES: Final = 32 << 20
"""How much less must be held than before: giving back takes milliseconds."""

AGAIN_AFTER_NS: Final = 15_000_000_000
"""When to give back once more: what connections held that were ended is freed some seconds later."""


class FreedMemory:
    """Notices that much less is held than a while ago, and calls `trim_memory`, then and once more later."""

    def __init__(self, trim_memory: Callable[[], None], monotonic_ns: Callable[[], int]) -> None:
        self._trim_memory = trim_memory
        self._monotonic_ns = monotonic_ns
        self._peak_bytes = 0
        """The most that was held since memory was given back."""
        self._left_bytes = 0
        """Left behind by connections since memory was given back, by estimate."""
        self._again_ns: int | None = None

    def __repr__(self) -> str:
        return f"<FreedMemory peak={self._peak_bytes}>"

    def look(self, peak_bytes: int, held_bytes: int, left_bytes: int = 0) -> None:
        """Take how much is held, and the most that was since the last look; to be called once in a while.

        `left_bytes` is about what connections have left behind since then. It adds up: few in a second leave as
        much behind in an hour as a flood does.
        """
        self._peak_bytes = max(self._peak_bytes, peak_bytes)
        self._left_bytes += left_bytes
        now_ns = self._monotonic_ns()
        if self._peak_bytes - held_bytes >= TRIM_BYTES or self._left_bytes >= TRIM_BYTES:
            self._peak_bytes, self._left_bytes = held_bytes, 0
            self._again_ns = now_ns + AGAIN_AFTER_NS
            self._trim_memory()
        elif self._again_ns is not None and now_ns >= self._again_ns:
            self._again_ns = None
            self._trim_memory()
