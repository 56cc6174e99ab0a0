"""What one run of the benchmark does, and its targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import typer

from ...service_api.errors import ConfigurationError
from ..options import Members
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
    """Parameters of one benchmark.

    Raises:
        ConfigurationError: there is no part of such a name.
    """

    runs: Annotated[int, typer.Option(min=1, help="Open loops, one after another, each on its own cluster.")] = 10
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of each open loop.")] = 30.0
    only: Annotated[tuple[str, ...], typer.Option(help="The parts that are measured.")] = PARTS
    members: Members = 3
    rate: Annotated[
        float | None, typer.Option(min=1, help="Messages a second. Default: half of a peak that is measured first.")
    ] = None
    payload: int = 32
    file_sync_level: int = 1
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
        if not {*self.only} <= {*PARTS}:
            raise ConfigurationError(f"only={','.join(self.only)!r} expected some of {','.join(PARTS)}")
