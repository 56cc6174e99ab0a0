"""Where time comes from. A clock is a parameter, so that tests and the simulator can replace it."""

from __future__ import annotations

import time
from typing import Protocol

from .types import TimeUnit


class Clock(Protocol):
    """A monotonic clock for durations and an epoch clock for log timestamps."""

    def monotonic_ns(self) -> int:
        """Nanoseconds that only go forwards; meaningful as differences."""

    def epoch_time(self) -> int:
        """Time since the Unix epoch in the cluster's time unit; it may jump, so leaders clamp it to the log."""


class SystemClock:
    """The operating system's clocks. Epoch time in milliseconds unless another unit is asked for."""

    def __init__(self, time_unit: TimeUnit = TimeUnit.MILLIS) -> None:
        self._divisor = {TimeUnit.MILLIS: 1_000_000, TimeUnit.MICROS: 1_000, TimeUnit.NANOS: 1}[time_unit]

    def monotonic_ns(self) -> int:
        """Nanoseconds since some point in the past."""
        return time.monotonic_ns()

    def epoch_time(self) -> int:
        """Time since the Unix epoch, in the unit asked for."""
        return time.time_ns() // self._divisor
