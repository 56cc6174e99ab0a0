"""The operating system's clocks: the only place where a running member reads the time."""

from __future__ import annotations

import time

from ....service_api.types import TimeUnit


class SystemClock:
    """The operating system's clocks. Epoch time in milliseconds unless another unit is asked for."""

    def __init__(self, time_unit: TimeUnit = TimeUnit.MILLIS) -> None:
        self._divisor = {TimeUnit.MILLIS: 1_000_000, TimeUnit.MICROS: 1_000, TimeUnit.NANOS: 1}[time_unit]

    monotonic_ns = staticmethod(time.monotonic_ns)
    """Nanoseconds since some point in the past: the system's call itself, which is made several times a message."""

    def epoch_time(self) -> int:
        """Time since the Unix epoch, in the unit asked for."""
        return time.time_ns() // self._divisor
