"""Slows down a replay while clients' messages are recorded."""

from __future__ import annotations

from typing import Protocol


class ReplayPace(Protocol):
    """The pace of one replay of a recording that grows."""

    def pause_ns(self, length: int, append_position: int, *, begin_ns: int, end_ns: int) -> int:
        """Return how long to wait after a chunk of `length` bytes that took the loop from `begin_ns` to `end_ns`.

        `append_position` is where the recording ends now.
        """
