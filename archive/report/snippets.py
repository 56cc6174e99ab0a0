"""The Python code that computes each section of the page, for a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final


class Snippets:
    """The Python that gives what a section shows."""

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        given = "".join(f".option({name!r}, {value!r})" for name, value in options.items())
        self._load = f'spark.read.format("aeron_archive"){given}.load({{}})'
        self._path = path

    def of(self, name: str, call: str = "(log)", *, figure: str | None = None, before: Sequence[str] = ()) -> str:
        """Return the lines for an analysis of this name, and for the figure, where that has another name."""
        shown = figure or name
        frame = f"frame = analyses.{name}{call}.toPandas()"
        return self._lines([*before, frame, f"print(captions.{shown}(frame))", f"figures.{shown}(frame)"])

    def elections(self, node_logs: Sequence[str]) -> str:
        """Return the lines for `analyses.elections`."""
        if not node_logs:
            return self.of("elections")
        return self.of("elections", "(log, logs)", before=[_read_logs(node_logs)])

    def election_states(self, node_logs: Sequence[str]) -> str:
        """Return the lines for `analyses.election_states`."""
        return self.of("election_states", "(logs)", before=[_read_logs(node_logs)])

    def throughput(self, interval: str) -> str:
        """Return the lines for `analyses.session_traffic` over time."""
        return self.of("session_traffic", f"(log, interval={interval!r})", figure="throughput")

    def group_throughput(self, interval: str) -> str:
        """Return the lines for `analyses.group_traffic`, of a directory with groups."""
        return self.of("group_traffic", f"(log, interval={interval!r})", figure="group_throughput")

    def inter_arrival(self) -> str:
        """Return the lines for `analyses.session_traffic` over the whole log."""
        return self.of("session_traffic", "(log, interval=None)", figure="inter_arrival")

    def bursts_and_gaps(self, interval: str, interval_us: int) -> str:
        """Return the lines for `analyses.bursts` and `analyses.gaps`."""
        bursts = f"bursts = analyses.bursts(log, window={interval!r}).toPandas()"
        gaps = f"gaps = analyses.gaps(log, longer_than_us={interval_us}).toPandas()"
        shown = ["print(captions.bursts_and_gaps(bursts, gaps))", "figures.bursts_and_gaps(bursts, gaps)"]
        return self._lines([bursts, gaps, *shown])

    def payload_sizes(self) -> str:
        """Return the lines for `analyses.payload_histogram`."""
        return self.of("payload_histogram", figure="payload_sizes")

    def session_lives(self) -> str:
        """Return the lines for `analyses.session_lives`."""
        return self.of("session_lives")

    def timers(self) -> str:
        """Return the lines for `analyses.timers`."""
        return self.of("timers")

    def comparison(self, paths: Mapping[str, str]) -> str:
        """Return the lines for `analyses.compare_members`."""
        logs = [f"    {name!r}: {self._load.format(repr(path))}," for name, path in paths.items()]
        frame = "frame = analyses.compare_members(logs).toPandas()"
        shown = ["print(captions.divergence(frame))", "figures.divergence(frame)"]
        return "\n".join([*_HEAD, "logs = {", *logs, "}", frame, *shown])

    def _lines(self, lines: Sequence[str]) -> str:
        return "\n".join([*_HEAD, f"log = {self._load.format(repr(self._path))}", *lines])


_HEAD: Final = (
    "from trimaran.archive.report import captions, figures",
    "from trimaran.archive.spark import analyses, create_session, register",
    "",
    "spark = create_session()",
    "register(spark)",
)


def _read_logs(node_logs: Sequence[str]) -> str:
    return f"logs = analyses.read_node_logs(spark, {list(node_logs)!r})"
