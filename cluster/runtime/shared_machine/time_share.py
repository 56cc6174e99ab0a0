"""Limits the time that a replay takes on the loop, for the clients whose messages are recorded beside it.

The problem: a replay reads and checks as fast as its reader takes it, and a member that copies a log takes whatever it
gets. Where both run at full speed every message waits for them, on the loop that serves the replay and for a processor
on machines that have few. The idea: for as long as the recording grows, somebody is being served, and a replay waits
after each chunk until what it has taken of the loop's time is its share of what has passed. Time and not bytes are
shared: whatever a byte costs on a machine, and while others hold up the loop, too, the rest is theirs.

A replay has to come to the end: one that gets no further than twice as fast as the recording grows waits for nobody.
Where nothing is appended for a moment nothing is waited for: a copy on a cluster at rest goes as fast as it can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

GROWING_NS: Final = 100_000_000
"""A recording to which nothing was appended for so long does not grow."""

LEAST_TIMES_GROWTH: Final = 2
"""A replay whose chunk is shorter than so many times what was appended meanwhile does not wait."""

LONGEST_PAUSE_NS: Final = 100_000_000
"""A chunk that took long, on a disk that stood still, is not made up for: who copies would take it for silence."""

CREDIT_NS: Final = 2_000_000
"""What a replay may be behind its share and make up for: a loop's timers are exact to a millisecond."""


class TimeShare:
    """How long one replay waits after each of its chunks.

    `on_shared` is told up to when the replay counts as under way, whenever it waits.
    """

    def __init__(
        self, share: float, append_position: int, *, on_shared: Callable[[int], None] = lambda until_ns: None
    ) -> None:
        self._share = share
        self._append_position = append_position
        self._on_shared = on_shared
        self._grown_ns: int | None = None
        """When the recording was last seen to have grown."""
        self._paid_until_ns = 0
        """When what was done so far has taken its share of the time."""

    def __repr__(self) -> str:
        return f"<TimeShare share={self._share:g} append_position={self._append_position}>"

    def pause_ns(self, length: int, append_position: int, *, begin_ns: int, end_ns: int) -> int:
        """How long to wait after a chunk of `length` bytes that took the loop from `begin_ns` to `end_ns`.

        `append_position` is where the recording ends now.
        """
        grown_bytes = append_position - self._append_position
        self._append_position = append_position
        if grown_bytes:
            self._grown_ns = end_ns
        is_growing = self._grown_ns is not None and end_ns - self._grown_ns < GROWING_NS
        if not is_growing or length < LEAST_TIMES_GROWTH * grown_bytes:
            self._paid_until_ns = end_ns
            return 0
        since_ns = max(self._paid_until_ns, begin_ns - CREDIT_NS)
        paid_until_ns = since_ns + round((end_ns - begin_ns) / self._share)
        self._paid_until_ns = min(paid_until_ns, end_ns + LONGEST_PAUSE_NS)
        pause_ns = max(0, self._paid_until_ns - end_ns)
        if pause_ns:
            self._on_shared(end_ns + pause_ns + GROWING_NS)
        return pause_ns
