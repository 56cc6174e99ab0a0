"""A row of a table of metrics: what a scrape and a page of documentation are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from trimaran.cluster.runtime.answering.vitals import Vitals
from trimaran.cluster.runtime.watching.sync_timer import DurationHistogram

Source = TypeVar("Source")
Labelled = Iterable[tuple[tuple[str, ...], float]]
"""Values with the values of their labels."""


@dataclass(slots=True, frozen=True)
class SourceRow(Generic[Source]):
    """One metric that is read off a source: a row of its table."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    meaning: str
    read: Callable[[Source], float | Labelled | None]
    """Reads it; None leaves it out. Of a histogram it says nothing."""
    labels: tuple[str, ...] = ()
    aeron: str = ""
    """The type ids of the counters of Aeron that say the same."""
    find_histograms: Callable[[Source], Iterable[tuple[str, DurationHistogram]]] = lambda source: ()
    """Of a histogram: those that there are, each by the value of its label."""

    def family(self, source: Source) -> Metric:
        """Read it as Prometheus has it; without samples where it is left out."""
        make = GaugeMetricFamily if self.kind == "gauge" else CounterMetricFamily
        family = make(self.name, self.meaning, labels=self.labels)
        value = self.read(source)
        if value is None:
            return family
        for labels, number in [((), value)] if isinstance(value, float | int) else value:
            family.add_metric(labels, float(number))
        return family


class MetricRow(SourceRow[Vitals]):
    """One metric of a member."""

    __slots__ = ()


def rows_as_markdown(rows: Sequence[SourceRow[Any]]) -> str:
    """Draw a table of docs/metrics.md, whatever the rows are read off."""
    lines = ["| metric | kind | labels | meaning | Aeron |", "|---|---|---|---|---|"]
    for row in rows:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        lines.append(f"| `{row.name}` | {row.kind} | {labels} | {row.meaning} | {row.aeron} |")
    return "\n".join(lines)
