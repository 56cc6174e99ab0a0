"""What one run of the benchmark does, and its targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trimaran.service_api.errors import ConfigurationError

from ..scenarios.table import Goal

PARTS: Final = ("open-loop", "disturbances", "callbacks")

SLOW_MS: Final = 5.0
"""A message that took this long counts as slow: the target of p99."""

_ROW: Final = "open loop at half of peak"
GOALS: Final = (
    Goal(_ROW, "p99_us", "us", 5_000, False),
    Goal(_ROW, "p999_us", "us", 10_000, False),
    Goal(_ROW, "max_us", "us", 50_000, False),
)
"""Of the median of the runs."""


@dataclass(slots=True, frozen=True, kw_only=True)
class TailsParameters:
    """What one benchmark does.

    Raises:
        ConfigurationError: values that make no run.
    """

    runs: int = 10
    """Open loops, one after another, each on a cluster of its own."""
    seconds: float = 30.0
    """Of each open loop."""
    only: tuple[str, ...] = PARTS
    """The parts that are measured."""
    members: int = 3
    payload: int = 32
    file_sync_level: int = 1
    rate: float | None = None
    """Messages a second of all open loops; None: half of a peak that is measured first."""
    calm_s: float = 4.0
    """Of traffic before a disturbance."""
    snapshots_mib: tuple[int, ...] = (10, 100, 500)
    """States of which snapshots are taken, while delivery stands still."""
    copied_mib: tuple[int, ...] = (100, 500)
    """States of which a copy of each member's process writes the snapshot."""
    callbacks_ms: tuple[float, ...] = (1.0, 10.0, 100.0, 1000.0)
    """How long slow callbacks of the service take."""
    callback_count: int = 4
    """How many of each length there are."""

    def __post_init__(self) -> None:
        if self.runs < 1 or self.members < 1 or self.seconds <= 0:
            raise ConfigurationError(
                f"runs={self.runs} members={self.members} seconds={self.seconds:g} expected at least 1, 1 and more "
                "than 0"
            )
        if not self.only or not {*self.only} <= {*PARTS}:
            raise ConfigurationError(f"only={','.join(self.only)!r} expected some of {','.join(PARTS)}")
        if self.rate is not None and self.rate <= 0:
            raise ConfigurationError(f"rate={self.rate:g} expected more than 0")
        if self.calm_s <= 0:
            raise ConfigurationError(f"calm_s={self.calm_s:g} expected more than 0")
        if self.callback_count < 1:
            raise ConfigurationError(f"callback_count={self.callback_count} expected at least 1")
        if min((*self.snapshots_mib, *self.copied_mib, 1)) < 1 or min((*self.callbacks_ms, 1.0)) <= 0:
            raise ConfigurationError(
                f"snapshots_mib={self.snapshots_mib} copied_mib={self.copied_mib} callbacks_ms={self.callbacks_ms} "
                "expected more than 0 each"
            )
