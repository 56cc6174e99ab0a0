"""A row of the table of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from .vitals import Vitals

Labelled = Iterable[tuple[tuple[str, ...], float]]
"""Values with the values of their labels."""


@dataclass(slots=True, frozen=True)
class MetricRow:
    """One metric: a row of the table."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    meaning: str
    read: Callable[[Vitals], float | Labelled | None]
    """Reads it; None leaves it out. Of a histogram it says nothing: that is read by its name."""
    labels: tuple[str, ...] = ()
    aeron: str = ""
    """The type ids of the counters of Aeron that say the same."""
