"""The sections of the page: what each kind of report gives, in the order of the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from trimaran.archive.report import words
from trimaran.archive.report.page import PageTable, Section

from ..scenarios.scan import UNITS, Dimension
from ..scenarios.table import alone_words, measured_words
from ..statistics.report import Report
from . import captions, figures
from .files import ResultSource

_COMMAND: Final = "How to measure it"
_DRAWN: Final = ("table", "echo", "request", "scan", "compare", "profile")
_LEFT_OUT: Final = (
    *("scenario", "parameters", "environment", "runs", "usage", "latency_percentiles_us", "leader", "reports"),
)
_ROW_LIMIT: Final = 60
"""Figures of a scenario that has no section of its own."""
_CURVE: Final = "latency_percentiles_us"
_CURVE_LIMIT: Final = 6
_PEAK_ROWS: Final = (
    *(
        "1 in flight, level 1",
        "64 in flight, level 1",
        "1,024 in flight, level 1",
        "open loop at half of peak, level 1",
    ),
)
_DEPTHS: Final = ("1", "64", "1024")


def all_sections(sources: Sequence[ResultSource]) -> list[Section]:
    """Return the sections of all reports: those that sources say nothing about are left out."""
    echoes = _loads(sources)
    made = [targets(report) for report in _of(sources, "table")]
    made += latency(echoes)
    for report in _of(sources, "scan"):
        made += scan(report)
    made += costs(echoes)
    compared = [*_of(sources, "compare"), *_compared(_of(sources, "table"))]
    if compared:
        made += comparison(compared[0])
    for report in _of(sources, "profile"):
        made += profile(report)
    for source in sources:
        if source.scenario not in _DRAWN:
            made.append(other(source))
    made.append(environment(sources))
    return _with_own_anchors(made)


def targets(report: Report) -> Section:
    """Every row of the targets."""
    reached = {True: "yes", False: "no", None: ""}
    rows = [
        (row["what"], measured_words(row, report["rounds"]), row["target"], reached[row["reached"]])
        for row in report["rows"]
    ]
    return Section(
        anchor="targets",
        title="Targets",
        caption=captions.targets(report["rows"]),
        table=PageTable(
            name="Targets",
            headings=("what", "measured", "target", "reached"),
            rows=rows,
            numbers=frozenset({"measured", "target"}),
            note=f"Medians of {words.count(report['parameters']['rounds'], 'round')}, then the least and the most. "
            f"{alone_words(report)}",
        ),
        snippet="python -m trimaran.benchmarks table --json table.json",
        snippet_name=_COMMAND,
    )


def latency(loads: Mapping[str, Report]) -> list[Section]:
    """The distribution of latencies of every load that has it."""
    curves = {name: load[_CURVE] for name, load in loads.items() if _CURVE in load}
    chosen = _chosen(curves)
    if not chosen:
        return []
    rows = [
        (name, *(f"{loads[name][figure]:,.0f}" for figure in ("p50_us", "p90_us", "p99_us", "p999_us", "max_us")))
        for name in curves
    ]
    headings = ("load", "p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "max µs")
    return [
        Section(
            anchor="latencies",
            title="Latencies",
            caption=captions.latencies(chosen),
            chart=figures.latencies(chosen),
            table=PageTable(
                name="Latencies", headings=headings, rows=rows, numbers=frozenset(headings[1:]), note=_load_note()
            ),
            snippet="python -m trimaran.benchmarks echo --inflight 64 --json echo.json\n"
            "python -m trimaran.benchmarks echo --rate 100000 --json open-loop.json",
            snippet_name=_COMMAND,
        )
    ]


def peak_curves(table: Report) -> dict[str, Mapping[str, float]]:
    """Latencies by percentile of the loads of a table that are drawn, by row."""
    loads = _loads([ResultSource("table.json", table)])
    return _chosen({name: load[_CURVE] for name, load in loads.items() if _CURVE in load})


def _chosen(curves: Mapping[str, Mapping[str, float]]) -> dict[str, Mapping[str, float]]:
    """The few that are drawn, where there are many."""
    peaks: dict[str, Mapping[str, float]] = {name: curves[name] for name in _PEAK_ROWS if name in curves}
    return peaks or dict(list(curves.items())[:_CURVE_LIMIT])


def scan(report: Report) -> list[Section]:
    """A section for each thing that was varied, and one of what could not be measured."""
    made = []
    for dimension in Dimension:
        points = scan_points(report, dimension)
        failures = [failure for failure in report["failures"] if failure["dimension"] == dimension]
        if not points and not failures:
            continue
        if dimension is Dimension.INFLIGHT and points:
            made.append(_inflight(points))
        made.append(_growth(dimension, points, failures))
    return made


def scan_points(report: Report, dimension: Dimension) -> list[Report]:
    """The points of one dimension, by value."""
    found = [point for point in report["points"] if point["dimension"] == dimension]
    return sorted(found, key=lambda point: int(point["value"]))


def _inflight(points: Sequence[Report]) -> Section:
    return Section(
        anchor="inflight-throughput",
        title="Throughput against messages in flight",
        caption=captions.throughput_by_inflight(points),
        chart=figures.throughput_by_inflight(points),
        snippet="python -m trimaran.benchmarks scan --only inflight --json scan.json",
        snippet_name=_COMMAND,
    )


def _growth(dimension: Dimension, points: Sequence[Report], failures: Sequence[Report]) -> Section:
    unit = UNITS[dimension]
    headings = (dimension, "msg/s", "p50 µs", "p99 µs", *figures.PARTS, "disk B/msg", "msg/sync")
    rows = [_point_row(point) for point in points]
    notes = [f"{failure['value']:,} could not be measured: {failure['reason']}." for failure in failures]
    notes.append(
        "leader, followers, clients: CPU µs a message. disk B/msg: pages made dirty by a member, the zeros of prepared "
        "segments too. msg/sync: the leader's."
    )
    return Section(
        anchor=f"growth-{dimension}",
        title=f"How cost grows with {_DIMENSION_NAMES[dimension]}",
        caption=captions.growth(dimension, points) if points else "No point could be measured.",
        chart=figures.growth(points, unit, start_up=dimension is Dimension.LOG),
        table=PageTable(
            name=f"Cost by {unit}", headings=headings, rows=rows, numbers=frozenset(headings), note=" ".join(notes)
        ),
        snippet=f"python -m trimaran.benchmarks scan --only {dimension} --json scan.json",
        snippet_name=_COMMAND,
    )


_DIMENSION_NAMES: Final = {
    Dimension.PAYLOAD: "payload",
    Dimension.INFLIGHT: "messages in flight",
    Dimension.MEMBERS: "members",
    Dimension.SESSIONS: "client sessions",
    Dimension.LOG: "the length of the log",
}


def _point_row(point: Report) -> tuple[str, ...]:
    parts = figures.cost_parts(point["cpu_seconds_per_100k"], point.get("leader"))
    syncs = point.get("messages_per_sync")
    return (
        f"{point['value']:,}",
        f"{point['throughput_msgs_per_s']:,}",
        f"{point['p50_us']:,.0f}",
        f"{point['p99_us']:,.0f}",
        *(f"{parts[part]:.2f}" for part in figures.PARTS),
        f"{point.get('written_bytes_per_message', 0):,.0f}",
        "–" if syncs is None else f"{syncs:,.0f}",
    )


def costs(loads: Mapping[str, Report]) -> list[Section]:
    """What a message costs each process under each load."""
    rows = {
        name: figures.cost_parts(load["cpu_seconds_per_100k"], load.get("leader"))
        for name, load in loads.items()
        if load.get("cpu_seconds_per_100k")
    }
    if not rows:
        return []
    return [
        Section(
            anchor="costs",
            title="What a message costs each process",
            caption=captions.costs(rows),
            chart=figures.costs(rows),
            table=PageTable(
                name="CPU µs a message",
                headings=("load", *figures.PARTS, "all"),
                rows=[
                    (name, *(f"{parts[part]:,.2f}" for part in figures.PARTS), f"{sum(parts.values()):,.2f}")
                    for name, parts in rows.items()
                ],
                numbers=frozenset({*figures.PARTS, "all"}),
                note=f"CPU µs a message. {_load_note()}",
            ),
            snippet="python -m trimaran.benchmarks echo --json echo.json",
            snippet_name=_COMMAND,
        )
    ]


def comparison(report: Report) -> list[Section]:
    """Everybody under the same load, a section for each depth."""
    depths = [depth for depth in _DEPTHS if any(depth in peer.get("depths", {}) for peer in report["peers"].values())]
    clients = [f"{name}: {peer['client']}." for name, peer in report["peers"].items() if "missing" not in peer]
    clients.insert(0, "client µs: CPU of the load's process for a message. Clients:")
    absent = [f"{name}: {peer['missing']}." for name, peer in report["peers"].items() if "missing" in peer]
    absent += [f"{name}: {reason}." for name, reason in report["not_measurable"].items()]
    made = []
    for depth in reversed(depths):
        headings = ("system", "an acknowledged message is", "msg/s", "p50 µs", "p99 µs", "client µs", "times")
        rows = [
            _peer_row(name, peer, depth) for name, peer in report["peers"].items() if depth in peer.get("depths", {})
        ]
        made.append(
            Section(
                anchor=f"peers-{depth}",
                title=f"Beside others, {int(depth):,} in flight",
                caption=captions.comparison(report["peers"], depth),
                chart=figures.comparison(report["peers"], depth),
                table=PageTable(
                    name=f"Peers at {depth} in flight",
                    headings=headings,
                    rows=rows,
                    numbers=frozenset(headings[2:]),
                    note=" ".join(
                        [
                            f"{captions.comparison_rounds(report)}, medians.",
                            *captions.comparison_failures(report),
                            *clients,
                            *absent,
                        ]
                    ),
                ),
                snippet="make peers\npython -m trimaran.benchmarks compare --rounds 5 --json compare.json",
                snippet_name=_COMMAND,
            )
        )
    return made


def _peer_row(name: str, peer: Mapping[str, Any], depth: str) -> tuple[str, ...]:
    found = peer["depths"][depth]
    latencies = ("–" if found[figure] is None else f"{found[figure]:,.0f}" for figure in ("p50_us", "p99_us"))
    ratio = found.get("trimaran_is_times_faster")
    client = "–" if found.get("client_cpu_us") is None else f"{found['client_cpu_us']:.2f}"
    times = "–" if ratio is None else f"{ratio:g}"
    return (name, peer["durability"], f"{found['messages_per_s']:,}", *latencies, client, times)


def profile(report: Report) -> list[Section]:
    """Where each microsecond of leader, follower and client goes."""
    made = []
    for role, process in report["processes"].items():
        headings = ("function", "stage", "µs a message")
        rows = [(row["function"], row["stage"], f"{row['us']:.3f}") for row in process["functions"]]
        calls = report["system_calls_per_1000_messages"].get(role, {})
        made.append(
            Section(
                anchor=f"profile-{role}",
                title=f"Where each microsecond of the {role} goes",
                caption=captions.stages(role, process),
                chart=figures.stages(role, process),
                table=PageTable(
                    name=f"Functions of the {role}", headings=headings, rows=rows, numbers=frozenset(headings[2:])
                ),
                note=f"{captions.bound(report)} {calls_words(role, calls)}",
                snippet="python -m trimaran.benchmarks profile --json profile.json",
                snippet_name=_COMMAND,
            )
        )
    return made


def calls_words(role: str, calls: Mapping[str, float]) -> str:
    """Say which system calls a process makes; nothing where they were not counted."""
    named = [f"{name} {count:g}" for name, count in calls.items() if name != "all" and count]
    return f"The {role}'s for 1,000 messages: {calls['all']:g}, of which {', '.join(named)}." if named else ""


def other(source: ResultSource) -> Section:
    """A scenario without figures of its own: its numbers as a table."""
    rows = list(_flat(source.report))
    note = f"The file has {len(rows) - _ROW_LIMIT} more." if len(rows) > _ROW_LIMIT else None
    return Section(
        anchor=f"scenario-{source.scenario}",
        title=source.scenario,
        caption=f"What {source.name} says.",
        table=PageTable(
            name=source.scenario,
            headings=("figure", "value"),
            rows=rows[:_ROW_LIMIT],
            numbers=frozenset({"value"}),
            note=note,
        ),
        snippet=f"python -m trimaran.benchmarks {source.scenario} --json {source.name}",
        snippet_name=_COMMAND,
    )


def environment(sources: Sequence[ResultSource]) -> Section:
    """Where each file was measured."""
    found = [(source, source.report.get("environment", {})) for source in sources]
    names = dict.fromkeys(name for _, facts in found for name in facts)
    rows = []
    for name in names:
        values = {str(facts[name]) for _, facts in found if name in facts}
        if len(values) == 1:
            rows.append(("all", name, values.pop()))
        else:
            rows += [(source.name, name, str(facts[name])) for source, facts in found if name in facts]
    return Section(
        anchor="environment",
        title="Where it was measured",
        caption="Members, clients and harness share the cores of one machine; figures of another are others.",
        table=PageTable(name="Environment", headings=("file", "fact", "value"), rows=rows),
        snippet="python -m trimaran.benchmarks report FILES... -o report.html",
        snippet_name="How to make this page",
    )


def _loads(sources: Sequence[ResultSource]) -> dict[str, Report]:
    """Every echo and request load by name: of the table the round with the median rate."""
    loads: dict[str, Report] = {}
    for report in _of(sources, "table"):
        for name, reports in report["reports"].items():
            rounds = [found for found in reports if found.get("scenario") in ("echo", "request")]
            if rounds:
                loads[name] = sorted(rounds, key=_rate)[len(rounds) // 2]
    for source in sources:
        if source.scenario in ("echo", "request"):
            loads[f"{source.scenario} ({source.name})"] = source.report
    return loads


def _rate(load: Report) -> float:
    rate: float = load["throughput_msgs_per_s"] if load["scenario"] == "echo" else load["requests_per_s"]
    return rate


def _load_note() -> str:
    return "Of the rows of the targets the round with the median rate is shown."


def _of(sources: Iterable[ResultSource], scenario: str) -> list[Report]:
    return [source.report for source in sources if source.scenario == scenario]


def _compared(tables: Iterable[Report]) -> list[Report]:
    """The comparisons that are part of tables."""
    return [report for table in tables for report in table["reports"].get("compare", [])]


def _flat(value: object, path: str = "") -> Iterable[tuple[str, str]]:
    """Every number and text of a report, by its path."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            if path or name not in _LEFT_OUT:
                yield from _flat(part, f"{path} {name}".strip())
    elif isinstance(value, bool) or value is None or isinstance(value, str):
        yield path, str(value)
    elif isinstance(value, int | float):
        yield path, f"{value:,}"


def _with_own_anchors(sections: Sequence[Section]) -> list[Section]:
    """Two files of one scenario give sections of one name, which need anchors of their own."""
    seen: dict[str, int] = {}
    made = []
    for section in sections:
        seen[section.anchor] = count = seen.get(section.anchor, 0) + 1
        if count > 1:
            section = replace(section, anchor=f"{section.anchor}-{count}", title=f"{section.title} ({count})")
        made.append(section)
    return made
