"""Tables of metrics, whatever they are read off: a row, the page that Prometheus fetches, the table in the docs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from ..watching.sync_timer import DurationHistogram

_NS_PER_S: Final = 1_000_000_000

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
    """The histograms of the metric, each with the value of its label; none if it is no histogram."""

    def family(self, source: Source) -> Metric:
        """Read it as Prometheus has it; without samples where it is left out."""
        if self.kind == "histogram":
            return self._histogram(source)
        make = GaugeMetricFamily if self.kind == "gauge" else CounterMetricFamily
        family = make(self.name, self.meaning, labels=self.labels)
        value = self.read(source)
        if value is None:
            return family
        for labels, number in [((), value)] if isinstance(value, float | int) else value:
            family.add_metric(labels, float(number))
        return family

    def _histogram(self, source: Source) -> Metric:
        family = HistogramMetricFamily(self.name, self.meaning, labels=self.labels)
        for label, durations in self.find_histograms(source):
            buckets: Sequence[tuple[str, float]] = [
                ("+Inf" if bound == float("inf") else repr(bound), float(count))
                for bound, count in durations.cumulative()
            ]
            family.add_metric([label], buckets, durations.total_ns / _NS_PER_S)
        return family


class RowsPage(Collector, Generic[Source]):
    """A page that Prometheus fetches: every row of a table, read at each scrape. It has a registry of its own."""

    def __init__(self, rows: Sequence[SourceRow[Source]], find_source: Callable[[], Source | None]) -> None:
        """Make it; while there is no source the page has only the metrics of the process."""
        self._rows, self._find_source = rows, find_source
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} rows={len(self._rows)}>"

    def collect(self) -> Iterator[Metric]:
        """Read all rows."""
        source = self._find_source()
        if source is None:
            return
        for row in self._rows:
            family = row.family(source)
            if family.samples:
                yield family

    def render(self) -> bytes:
        """Read everything and write it in Prometheus' text format."""
        return generate_latest(self._registry)


def rows_as_markdown(rows: Sequence[SourceRow[Any]]) -> str:
    """Draw a table of docs/metrics.md, whatever the rows are read off."""
    lines = ["| metric | kind | labels | meaning | Aeron |", "|---|---|---|---|---|"]
    for row in rows:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        lines.append(f"| `{row.name}` | {row.kind} | {labels} | {row.meaning} | {row.aeron} |")
    return "\n".join(lines)
