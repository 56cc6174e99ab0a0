"""Runs the standard analyses over the log of one member or several, and makes a page of the results.

The analyses are those of `analyses`; nothing is counted here. What comes to this process is bounded,
however long the log is: no frame has more than `ROW_LIMIT` rows, and where it would, the page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pandas as pd

from ...service_api.wire.log.layout import NEW_LEADERSHIP_TERM_EVENT, SESSION_CLOSE_EVENT, SESSION_OPEN_EVENT
from ..reading.frame_batches import ReadProblem
from ..reading.frame_columns import HEADER_COLUMNS, MESSAGE_COLUMNS
from ..spark import analyses
from ..spark.analyses.sql import DataFrame, sql
from ..spark.source.options import parse_options
from ..spark.source.partitions import plan_read
from . import sections, words
from .engine.frames import SqlDatabase
from .engine.log_tables import list_problems, read_node_logs, scan_log
from .page import Fact, Page, Section
from .snippets import Snippets
from .theme import Frame
from .traffic_figures import SESSION_LIMIT

ROW_LIMIT: Final = 10_000
"""Rows that one analysis brings to this process."""
INTERVAL_LIMIT: Final = 240
"""Intervals of time that a figure shows."""

_INTERVALS: Final = (
    *((count * 1_000, f"{count} milliseconds") for count in (10, 20, 50, 100, 200, 500)),
    *((count * 1_000_000, f"{count} seconds") for count in (1, 2, 5, 10, 30)),
    *((count * 60_000_000, f"{count} minutes") for count in (1, 2, 5, 10, 30)),
    *((count * 3_600_000_000, f"{count} hours") for count in (1, 3, 6, 12, 24)),
)
_DAY_US: Final = 86_400_000_000


@dataclass(slots=True, frozen=True, kw_only=True)
class ReportRequest:
    """What a report is to be made of."""

    directories: Mapping[str, str]
    """Archives or members' directories, by path or URL, of one cluster, by a name for each; the longest log counts."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the data source `aeron_archive`, such as recordingId and committed; they hold for all directories."""
    node_logs: Sequence[Path] = ()
    """What the members logged, as JSON lines: the reasons of elections come from there."""
    title: str | None = None


@dataclass(slots=True, frozen=True)
class LogReport:
    """A page, and whether it tells of damage."""

    page: Page
    is_damaged: bool


def check_sources(request: ReportRequest) -> None:
    """Look whether there is what the request asks for, so that a mistake is told at once.

    Raises:
        ConfigurationError: an option is wrong, or what it asks for is not there.
        ArchiveError: no such directory or recording.
        OSError: the disk or the store refused.
    """
    for path in request.directories.values():
        plan_read(parse_options({**request.options, "path": path}), ("position",))


def build_report(request: ReportRequest, on_step: Callable[[str], None]) -> LogReport:
    """Run the analyses and make the page; `on_step` is told what begins, about fifteen times.

    What does not fit into memory goes to files of a temporary directory: of a log of many gigabytes a few hundredths.

    Raises:
        ConfigurationError: an option is wrong, or what it asks for is not there.
        ArchiveError: no such directory or recording.
        OSError: the disk or the store refused.
    """
    with open_report_database() as database:
        return _build(database, request, on_step)


@contextmanager
def open_report_database() -> Iterator[SqlDatabase]:
    """Open a database of a page's own, in a temporary directory."""
    with TemporaryDirectory(prefix="trimaran-report-") as directory:
        database = SqlDatabase(Path(directory))
        try:
            yield database
        finally:
            database.close()


def _build(database: SqlDatabase, request: ReportRequest, on_step: Callable[[str], None]) -> LogReport:
    on_step("looking for damage")
    damage = find_damage(request)
    comparison, work = prepare_log(database, request, on_step)
    made, facts, name = work.run(comparison), work.facts, work.name
    page = Page(
        title=request.title or f"The log of {name}",
        sources=_sources(request, name, facts),
        facts=[*sections.facts_of(facts), count_damage(damage)],
        sections=made,
        damage=sections.damage_of(damage) if len(damage) else None,
        remarks=say_what_was_read(request),
    )
    return LogReport(page, is_damaged=len(damage) > 0)


def prepare_log(
    database: SqlDatabase, request: ReportRequest, on_step: Callable[[str], None]
) -> tuple[Frame | None, LogWork]:
    """Read the log that a report is about; with several members, first what a comparison of their logs gives."""
    comparison = None
    if len(request.directories) > 1:
        on_step("comparing the members")
        logs = {name: scan_log(database, path, request.options) for name, path in request.directories.items()}
        comparison = analyses.compare_members(logs).toPandas()
    return comparison, LogWork(database, request, _choose(request, comparison), on_step)


class LogWork:
    """One run of the analyses over one log, that of the member `name`."""

    def __init__(
        self, database: SqlDatabase, request: ReportRequest, name: str, on_step: Callable[[str], None]
    ) -> None:
        self._database = database
        self._request = request
        self._on_step = on_step
        self.name = name
        self.path = request.directories[name]
        on_step("reading the log")
        # The few messages of which the analyses need more than their first fields, with payloads.
        events = f"template_id IN ({NEW_LEADERSHIP_TERM_EVENT}, {SESSION_OPEN_EVENT}, {SESSION_CLOSE_EVENT})"
        self.events = scan_log(database, self.path, {**request.options, "where": events}).persist()
        # Without payloads, which are most of a log: read once, and kept for all analyses.
        columns = ",".join((*HEADER_COLUMNS, *MESSAGE_COLUMNS))
        self.log = scan_log(database, self.path, {**request.options, "columns": columns}).persist()
        summary = analyses.summary(self.log).toPandas()
        self.facts: Frame = summary.iloc[0] if len(summary) else None

    def run(self, comparison: Frame | None) -> list[Section]:
        """Run the analyses one after the other."""
        snippet = Snippets(self.path, self._request.options)
        made = [*self._leadership(snippet), *self._traffic(snippet), *self._lives(snippet)]
        if comparison is not None:
            made.append(sections.comparison(comparison, snippet.comparison(self._request.directories)))
        return made

    def _leadership(self, snippet: Snippets) -> list[Section]:
        self._on_step("leaders and terms")
        terms, note = self._bounded(analyses.term_timeline(self.log, events=self.events), "the oldest terms")
        made = [sections.leaders(terms, snippet.of("term_timeline"), note)]
        self._on_step("elections")
        logs = [str(path) for path in self._request.node_logs]
        node_logs = read_node_logs(self._database, self._request.node_logs) if logs else None
        changes = analyses.elections(self.log, node_logs, events=self.events)
        frame, note = self._bounded(changes, "the oldest changes")
        made.append(sections.elections(frame, snippet.elections(logs), note))
        if node_logs is not None:
            self._on_step("states of elections")
            states = sql(
                "SELECT * FROM states ORDER BY entered_at DESC, member_id", states=analyses.election_states(node_logs)
            )
            frame, note = self._bounded(states, "the newest states")
            made.append(sections.election_states(frame, snippet.election_states(logs), note))
        return made

    def _traffic(self, snippet: Snippets) -> list[Section]:
        self._on_step("traffic of sessions")
        whole = sql(
            "SELECT * FROM traffic ORDER BY messages DESC, cluster_session_id, service_id",
            traffic=analyses.session_traffic(self.log, interval=None),
        )
        totals, note = self._bounded(whole, "the sessions with the most messages")
        interval_us, interval = self._interval()
        self._on_step("throughput")
        by_interval = _sum_rest(analyses.session_traffic(self.log, interval=interval), totals).toPandas()
        self._on_step("bursts and gaps")
        bursts = analyses.bursts(self.log, window=interval).toPandas()
        gaps = analyses.gaps(self.log, longer_than_us=interval_us).limit(ROW_LIMIT).toPandas()
        self._on_step("lengths of messages")
        histogram = analyses.payload_histogram(self.log).toPandas()
        sizes = analyses.payload_sizes(self.log).toPandas()
        return [
            sections.throughput(by_interval, totals, snippet.throughput(interval), note),
            sections.inter_arrival(totals, snippet.inter_arrival(), note),
            sections.bursts_and_gaps(bursts, gaps, snippet.bursts_and_gaps(interval, interval_us)),
            sections.payload_sizes(histogram, sizes, snippet.payload_sizes()),
        ]

    def _lives(self, snippet: Snippets) -> list[Section]:
        self._on_step("lives of sessions")
        lives = sql(
            "SELECT * FROM lives ORDER BY messages DESC, cluster_session_id",
            lives=analyses.session_lives(self.log, events=self.events),
        )
        frame, note = self._bounded(lives, "the sessions with the most messages")
        made = [sections.session_lives(frame, snippet.session_lives(), note)]
        self._on_step("timers")
        frame, note = self._sampled(analyses.timers(self.log))
        made.append(sections.timers(frame, snippet.timers(), note))
        return made

    def _bounded(self, rows: DataFrame, which: str) -> tuple[Frame, str | None]:
        """Bring at most `ROW_LIMIT` rows here; the note says so where there are more."""
        frame = rows.limit(ROW_LIMIT + 1).toPandas()
        if len(frame) <= ROW_LIMIT:
            return frame, None
        return frame.iloc[:ROW_LIMIT], f"This is of {which}, {words.count(ROW_LIMIT)} of them; the log has more."

    def _sampled(self, rows: DataFrame) -> tuple[Frame, str | None]:
        """Bring at most about `ROW_LIMIT` timer events here, taken evenly by a hash of their position."""
        fired = 0 if self.facts is None else int(self.facts["timers_fired"])
        step = -(-fired // ROW_LIMIT)
        if step <= 1:
            return rows.toPandas(), None
        text = f"SELECT * FROM timers WHERE xxhash64(position) % {step} = 0 ORDER BY recording_id, position"
        taken = sql(text, timers=rows).toPandas()
        return taken, f"This is of one timer event in {step}; the log has {words.count(fired)}."

    def _interval(self) -> tuple[int, str]:
        is_timed = self.facts is not None and pd.notna(self.facts["duration_us"])
        return choose_interval(int(self.facts["duration_us"]) if is_timed else 0)


def choose_interval(duration_us: int) -> tuple[int, str]:
    """Return the shortest interval of which at most `INTERVAL_LIMIT` cover so much: microseconds, Spark's words."""
    for interval_us, text in _INTERVALS:
        if duration_us <= INTERVAL_LIMIT * interval_us:
            return interval_us, text
    days = -(-duration_us // (INTERVAL_LIMIT * _DAY_US))
    return days * _DAY_US, f"{days} days"


def _sum_rest(traffic: DataFrame, totals: Frame) -> DataFrame:
    """Add up the sessions that have no colour of their own: their rows name neither a session nor a service."""
    head = totals.head(SESSION_LIMIT)
    sessions = [int(session) for session in head["cluster_session_id"].dropna()]
    services = [int(service) for service in head["service_id"].dropna()]
    return sql(
        f"""
        SELECT recording_id, from_timestamp, to_timestamp, {_kept("cluster_session_id", sessions)},
            {_kept("service_id", services)}, sum(messages) AS messages, sum(application_bytes) AS application_bytes
        FROM traffic
        GROUP BY 1, 2, 3, 4, 5
        ORDER BY from_timestamp, 4, 5
        """,
        traffic=traffic,
    )


def _kept(name: str, values: Sequence[int]) -> str:
    """A column with only these values, and NULL for the others."""
    is_kept = f"{name} IN ({', '.join(map(str, values))})" if values else "FALSE"
    return f"CASE WHEN {is_kept} THEN {name} END AS {name}"


def find_damage(request: ReportRequest) -> list[tuple[str, int | None, int | None, str]]:
    """Directory, recording, position and reason of what cannot be read."""
    found: list[tuple[str, int | None, int | None, str]] = []
    for name, path in request.directories.items():
        problems = sorted(list_problems(path, request.options), key=_place)
        found += [(name, problem.recording_id, problem.position, problem.reason) for problem in problems]
    return found[:ROW_LIMIT]


def _place(problem: ReadProblem) -> tuple[int, int]:
    """Where a problem stands in the list: what is of no recording comes first."""
    return (
        -1 if problem.recording_id is None else problem.recording_id,
        -1 if problem.position is None else problem.position,
    )


def _choose(request: ReportRequest, comparison: Frame | None) -> str:
    """The directory whose log goes on longest, the first of several."""
    names = list(request.directories)
    if comparison is None:
        return names[0]
    stops = dict.fromkeys(names, -1)
    for row in comparison.itertuples():
        for name, stop in ((row.member_a, row.stop_a), (row.member_b, row.stop_b)):
            stops[name] = max(stops[name], -1 if pd.isna(stop) else int(stop))
    return max(names, key=lambda name: stops[name])


def _sources(request: ReportRequest, name: str, facts: Frame) -> list[tuple[str, str]]:
    lines = [("Directory", request.directories[name])]
    others = [path for other, path in request.directories.items() if other != name]
    if others:
        lines.append(("Compared to", ", ".join(others)))
    if facts is not None:
        start, stop = (words.count(facts[key]) for key in ("start_position", "stop_position"))
        lines.append(("Log", f"recording {facts['recording_id']}, positions {start} to {stop}"))
        if pd.notna(facts["duration_us"]):
            first, last = (words.moment(facts[key]) for key in ("first_timestamp", "last_timestamp"))
            lines.append(("Time", f"{first} to {last} UTC"))
    if request.node_logs:
        lines.append(("Node logs", ", ".join(path.name for path in request.node_logs)))
    return lines


def count_damage(damage: Sequence[object]) -> Fact:
    """Make the fact at the top of the page that says how much cannot be read."""
    return Fact("problem" if len(damage) == 1 else "problems", words.count(len(damage)), len(damage) > 0)


def say_what_was_read(request: ReportRequest) -> list[str]:
    """Say at the end of the page how it was made."""
    committed = request.options.get("committed", "false")
    which = {
        "false": "Entries at the end of the log may not be committed; --committed leaves them out.",
        "true": "Only entries that the member's recording log shows to be committed were read.",
    }.get(committed, f"Only the log before position {committed} was read.")
    size = f"Tables show the first {sections.TABLE_LIMIT} rows, figures what their legend and axes name."
    clock = "Times are those of the cluster's own clock, as the log holds them, in UTC. Positions are bytes of the log."
    return [clock, which, f"{size} The Python below each figure gives the complete data."]
