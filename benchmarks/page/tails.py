"""The section of the page about steady tails: open loops, disturbances, slow callbacks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ...archive.report import words
from ..statistics.report import Report
from ..tails.disturbances import BY_COPY, CALM
from ..tails.moments import HOST, INSIDE, LATE, OTHERS, SHARED
from ..tails.open_loop import FIGURE_NAMES, FIGURES
from ..tails.parameters import SLOW_MS
from .markdown import again, by_name, measured_at, ms, table
from .plots import Plot

_CAUSES: Final = {
    LATE: "the load was sent late, for half of the latency or more",
    HOST: "the host gave the processors to others, for 5 % of their time or more",
    OTHERS: "other processes of this machine, or the kernel's own, had 20 % of the processors or more",
    SHARED: "the loop of a member or of the client was ready to run and did not for 40 % of the time or more",
    INSIDE: "a disk, or what a process itself did",
}
_PERCENTILES: Final = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)


def percentile_plot(name: str, caption: str, curves: Mapping[str, Mapping[str, float]]) -> Plot:
    """Return a plot of latencies by percentile, where each further nine takes as much room."""
    lines = {
        load: [(nines(float(percent)), us) for percent, us in curve.items() if float(percent) < 100]
        for load, curve in curves.items()
    }
    ticks = {round(nines(percent), 9): f"{percent:g} %" for percent in _PERCENTILES}
    return Plot(name, caption, "percentile of messages", "latency, µs", lines, ticks)


def nines(percentile: float) -> float:
    """Return how many nines a percentile has: 0 for 0 %, 1 for 90 %, 2 for 99 %."""
    return -math.log10(1 - percentile / 100)


def say_tails(report: Report) -> str:
    """Say what the open loops found."""
    if "open_loop" not in report:
        return "Disturbances and slow callbacks"
    found, runs = report["open_loop"]["median"], len(report["open_loop"]["runs"])
    figures = ", ".join(f"{name} {found[figure] / 1e3:,.1f} ms" for figure, name in FIGURE_NAMES.items())
    return f"Open loop at half of the peak, the median of {runs}: {figures}; disturbances; slow callbacks"


def write_tails(report: Report) -> Iterable[str | Plot]:
    """Write what was measured of it; parts that were not are left out."""
    parameters = report["parameters"]
    yield (
        f"{parameters['members']} members, {parameters['payload']} bytes, level {parameters['file_sync_level']}, "
        "members and client on the same cores. A latency counts from when a message was due, so a load that comes late "
        f"hides nothing; how late it came is told beside. Measured {measured_at(report['environment'])} before, in "
        f"{report['took_s']:,} s; their host took {report['stolen_percent']:g} % of their time meanwhile. "
        f"{again('tails', 'tails.json')}\n"
    )
    if "open_loop" in report:
        yield from _open_loop(report)
    if "disturbances" in report:
        yield from _disturbances(report)
    if "callbacks" in report:
        yield from _callbacks(report)


def _open_loop(report: Report) -> Iterable[str | Plot]:
    found, runs = report["open_loop"], report["open_loop"]["runs"]
    peak = ""
    if "peak_per_s" in report:
        peak = f", half of a peak of {report['peak_per_s']:,} that was measured right before"
    yield "### Open loop at half of the peak\n"
    yield (
        f"{words.count(len(runs), 'run')} of {report['parameters']['seconds']:g} s at {report['rate_per_s']:,} "
        f"messages a second{peak}, each on a cluster of its own.\n"
    )
    yield table(
        ("figure", "median of the runs", "least to most", "target", "reached"),
        [
            (
                FIGURE_NAMES[goal["figure"]],
                ms(found["median"][goal["figure"]]),
                f"{ms(found['least'][goal['figure']])} to {ms(found['most'][goal['figure']])}",
                goal["target"],
                "yes" if goal["reached"] else "**no**",
            )
            for goal in found["goals"]
        ],
    )
    curves = {f"run {number}": run["latency_percentiles_us"] for number, run in enumerate(runs, start=1)}
    yield percentile_plot("tails", f"A line for each of {words.count(len(runs), 'run')}.", curves)
    yield (
        f"*Sent late* is the load's own part, p99.9 and max. In a slow moment messages took {SLOW_MS:g} ms or longer; "
        "it is judged by what the kernel counted around it, and the first that holds is taken:\n\n"
        + "\n".join(f"- *{cause}*: {meaning}" for cause, meaning in _CAUSES.items())
        + "\n"
    )
    yield table(
        ("run", "p50", "p99", "p99.9", "max", "sent late", "slow for", "held up by"),
        [
            (
                number,
                *map(ms, by_name(run, *FIGURES)),
                ", ".join(map(ms, by_name(run["send_lag"], "p999_us", "max_us"))),
                f"{run['slow']['total_ms']:,.0f} ms",
                _causes(run["slow"]["causes"]),
            )
            for number, run in enumerate(runs, start=1)
        ],
    )
    yield (
        "*Waited* is how long the loop of a process was ready to run and did not, of all the time. *Held* is the "
        "longest that a loop was held by one thing, from 2 ms on, by the members' own tracer, and *sync* the longest "
        "fdatasync of a member: both in buckets of powers of two, so up to twice too long.\n"
    )
    yield table(
        (
            *("run", "host took", "others", "waited: leader", "followers", "client", "held: leader", "followers"),
            *("sync", "client's collector"),
        ),
        [(number, *_held(run)) for number, run in enumerate(runs, start=1)],
    )
    yield from _stages(runs)


def _causes(causes: Mapping[str, Mapping[str, float]]) -> str:
    ordered = sorted(causes.items(), key=lambda item: -item[1]["total_ms"])
    return (
        ", ".join(f"{cause} {total['total_ms']:,.0f} ms ({total['count']:g})" for cause, total in ordered) or "nothing"
    )


def _held(run: Mapping[str, Any]) -> list[str]:
    """Return what waited in a run, and the longest that each process was held up by one thing."""
    waited, seen, leader = run.get("waited_percent", {}), run["seen"], run["leader"]
    followers = [name for name in seen if name != leader]
    syncs = [member["syncs"].get("fdatasync", {}).get("longest_ms", 0.0) for member in seen.values()]
    collected = [spans["longest_ms"] for spans in run["collections"].values()]
    return [
        f"{run.get('stolen_percent', 0):g} %",
        f"{run.get('others_percent', 0):g} %",
        f"{waited.get(leader, 0):g} %",
        ", ".join(f"{waited.get(name, 0):g} %" for name in followers),
        ", ".join(f"{share:g} %" for name, share in waited.items() if name.startswith("client")),
        _longest([seen[leader]["loop"]] if leader in seen else []),
        _longest([seen[name]["loop"] for name in followers]),
        f"{max(syncs, default=0):.1f} ms",
        f"{max(collected):.1f} ms" if collected else "none",
    ]


def _longest(loops: Sequence[Mapping[str, Any]]) -> str:
    """Name what held a loop for longest."""
    spans = [(found["longest_ms"], culprit) for loop in loops for culprit, found in loop.items()]
    return "nothing" if not spans else "{1} {0:.0f} ms".format(*max(spans))


def _stages(runs: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Write where a request's time went on the leader, in the run in the middle by p99.9 and in the slowest."""
    ordered = sorted(runs, key=lambda run: float(run["p999_us"]))
    chosen = {"the run in the middle": ordered[len(runs) // 2], "the slowest run": ordered[-1]}
    stages = [run["seen"].get(run["leader"], {}).get("stages", {}) for run in chosen.values()]
    yield "Where the time of requests went on the leader, by its own metrics, in the same buckets:\n"
    rows = []
    for stage in dict.fromkeys(name for found in stages for name in found):
        cells = []
        for found in stages:
            spans = found.get(stage)
            cells += ["", ""] if spans is None else [f"{spans['p99_ms']:.2f} ms", f"{spans['longest_ms']:.1f} ms"]
        rows.append((stage, *cells))
    yield table(("stage", *(head for name in chosen for head in (f"{name}: p99", "longest"))), rows)


def _disturbances(report: Report) -> Iterable[str]:
    yield "### Disturbances\n"
    yield (
        f"The same load, {report['rate_per_s']:,} messages a second, on a cluster of its own for each: "
        f"{report['parameters']['calm_s']:g} s of calm, then the disturbance and 2 s after it. *Slow until* is how "
        f"long after its beginning the last reply came that took {SLOW_MS:g} ms or longer, within what is looked at. "
        f"*{BY_COPY.capitalize()}*: the service yields its state (`snapshot_messages`), a forked copy of each member's "
        "process writes it, and delivery goes on as soon as there is a copy.\n"
    )
    yield table(
        ("what", "calm p99.9", "calm max", "p99.9", "max", "slow until", "besides"),
        [
            (
                row["what"] + (f", {row['count']} times" if row["count"] > 1 else ""),
                *map(ms, by_name(row[CALM], "p999_us", "max_us")),
                *map(ms, by_name(row["during"], "p999_us", "max_us")),
                f"{row['slow_until_ms']:,.0f} ms",
                _besides(row),
            )
            for row in report["disturbances"]
        ],
    )


def _besides(row: Mapping[str, Any]) -> str:
    said = {
        "delivery_stop_ms": "a member's delivery stood still for {:,} ms",
        "taken_ms": "the last member had it after {:,} ms",
        "returned_ms": "it had all of the log after {:,} ms",
    }
    return ", ".join(text.format(row[name]) for name, text in said.items() if name in row)


def _callbacks(report: Report) -> Iterable[str]:
    yield "### Slow callbacks\n"
    yield (
        "One client's message makes the service wait on every member; other clients' messages wait with it. A "
        "callback holds the loop of its member, so that a follower hears nothing and a leader says nothing: one that "
        f"takes as long as `leader_heartbeat_timeout_ms`, {report['heartbeat_timeout_ms']:,} ms by default, may cost "
        "the leader its term. After two callbacks of 10 ms within ten seconds a leader tells its followers of a commit "
        "before it runs the callback itself, for ten seconds, so that theirs run beside it; before that others may "
        "wait twice as long.\n"
    )
    figures = ("p50_us", "p99_us", "max_us")
    yield table(
        ("callback", "each", "calm p50", "calm p99", "calm max", "p50", "p99", "max", "elections"),
        [
            (
                f"{row['callback_ms']:g} ms",
                f"{row['interval_s']:g} s",
                *(
                    [""] * 6
                    if "during" not in row
                    else [ms(us) for part in (CALM, "during") for us in by_name(row[part], *figures)]
                ),
                row["elections"],
            )
            for row in report["callbacks"]
        ],
    )
