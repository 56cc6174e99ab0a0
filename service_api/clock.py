"""Where time comes from. A clock is a parameter, so that tests and the simulator can replace it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """A monotonic clock for durations and an epoch clock for log timestamps."""

    def monotonic_ns(self) -> int:
        """Nanoseconds that only go forwards; meaningful as differences."""

    def epoch_time(self) -> int:
        """Time since the Unix epoch in the cluster's time unit; it may jump, so leaders clamp it to the log."""
