"""The table near the top of docs/performance.md: what is measured, what it says in a line, and where it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..statistics.report import Report
from ..tails.open_loop import FIGURE_NAMES
from . import captions
from .sections import scan_points
from .session_sections import CONNECTIONS

_THOUSAND: Final = 1_000


@dataclass(slots=True, frozen=True)
class SummaryEntry:
    """A part of the page: the file that it is made of, its heading, and what it says in a line."""

    file_name: str
    title: str
    say: Callable[[Report], str]


def _targets(report: Report) -> str:
    return captions.targets(report["rows"])


def _growth(report: Report) -> str:
    """Say what a thousand clients get, which is where many readers begin."""
    said = []
    for dimension, connections in CONNECTIONS.items():
        points = [point for point in scan_points(report, dimension) if point["value"] == _THOUSAND]
        said += [
            f"{point['throughput_msgs_per_s']:,} messages/s with p99 {point['p99_us'] / 1000:,.0f} ms, connections: "
            f"{connections}"
            for point in points
        ]
    return f"**A thousand clients**: {'; '.join(said)}" if said else "From one session to many"


def _openings(report: Report) -> str:
    most = max((case["sessions"] for case in report["cases"]), default=0)
    said = [
        f"{most:,} sessions open in {case['opening']['s']:.1f} s; after the leader was killed all are answered in "
        f"{case['failover']['max_ms'] / 1000:.1f} s"
        for case in report["cases"]
        if case["sessions"] == most and not case["share"] and not case["password"]
    ]
    return said[0] if said else "Opening, holding, and the leader's death"


def _fairness(report: Report) -> str:
    depths, modest = report["parameters"]["depths"], report["parameters"]["sessions"]
    times = max(report[f"beside {depth} in flight,"]["p99_times_alone"] for depth in depths)
    return f"Beside a greedy session the p99 of {modest:,} modest ones is at most {times:g} times as long"


def _groups(report: Report) -> str:
    counts = [int(count) for count in report["runs"]]
    rates = [report[f"{count} groups," if count > 1 else "1 group,"]["messages_per_s"] for count in counts]
    said = ", ".join(f"{count}: {rate:,.0f}/s" for count, rate in zip(counts, rates, strict=True))
    return f"Groups on {report['environment']['cores']} cores: {said}; and a model of more cores"


def _state(report: Report) -> str:
    stops = [f"{way} {row['delivery_stop_max_ms']:,.0f} ms" for way, row in report["ways"].items()]
    return f"{report['parameters']['orders']:,} orders: delivery stands still for {', '.join(stops)}"


def _aeron(report: Report) -> str:
    times = [row["trimaran"]["messages_per_s"] / row["aeron"]["messages_per_s"] for row in report["rows"]]
    return f"{min(times):.2f} to {max(times):.2f} times the rate of Aeron Cluster {report['aeron_version']} in Java"


def _tails(report: Report) -> str:
    if "open_loop" not in report:
        return "Disturbances and slow callbacks"
    found, runs = report["open_loop"]["median"], len(report["open_loop"]["runs"])
    figures = ", ".join(f"{name} {found[figure] / 1e3:,.1f} ms" for figure, name in FIGURE_NAMES.items())
    return f"Open loop at half of the peak, the median of {runs}: {figures}; disturbances; slow callbacks"


def _always(text: str) -> Callable[[Report], str]:
    return lambda report: text


ENTRIES: Final = (
    SummaryEntry("table.json", "Targets", _targets),
    SummaryEntry("sessions.json", "Many sessions", _growth),
    SummaryEntry("openings.json", "Opening sessions and losing the leader", _openings),
    SummaryEntry("fairness.json", "A greedy session beside modest ones", _fairness),
    SummaryEntry("profile-1000.json", "Where each microsecond goes with many sessions", _always("1,000 beside one")),
    SummaryEntry("tails.json", "Steady tails", _tails),
    SummaryEntry("snapshots.json", "Snapshots of a big state", _state),
    SummaryEntry("groups.json", "Groups", _groups),
    SummaryEntry("aeron.json", "Beside Aeron's own Java", _aeron),
    SummaryEntry(
        "compare-sessions.json",
        "Many sessions beside others",
        _always("100 to 10,000 clients with one message in flight each, beside etcd, ZooKeeper, NATS JetStream, Redis"),
    ),
    SummaryEntry("compare.json", "Beside others", _always("etcd, ZooKeeper, NATS JetStream, PySyncObj")),
    SummaryEntry("scan.json", "How cost grows", _always("With payload, messages in flight, members, log length")),
    SummaryEntry("kv.json", "The key-value store beside others", _always("Put and get beside etcd and Redis")),
    SummaryEntry("typed.json", "What classes cost", _always("Messages as classes beside bytes")),
    SummaryEntry("encryption.json", "What TLS costs", _always("Echoes and a catch-up, in plain text and with TLS")),
    SummaryEntry("compiled.json", "What a compiler would bring", _always("Cython and two functions in C")),
    SummaryEntry("failover.json", "What a hand-over costs", _always("`leader transfer` and SIGTERM under load")),
    SummaryEntry("flood.json", "What hostile clients cost others", _always("Floods beside one honest client")),
    SummaryEntry("profile.json", "Where each microsecond goes", _always("One session at peak, by stage")),
)
"""In the order of the page."""


def summary(reports: Mapping[str, Report]) -> str:
    """Write a row for each file that is there, those measured last first; undated ones come last."""
    found = [(entry, reports[entry.file_name]) for entry in ENTRIES if entry.file_name in reports]
    found.sort(key=lambda pair: _date_of(pair[1]), reverse=True)
    lines = ["What is on this page, measured last first:\n", "| what | in a line | measured |", "|---|---|---|"]
    for entry, report in found:
        facts = report.get("environment", report)
        when = _date_of(report) or f"commit {facts['git_commit']}"
        lines.append(f"| [{entry.title}](#{anchor_of(entry.title)}) | {entry.say(report)} | {when} |")
    return "\n".join(lines) + "\n"


def anchor_of(title: str) -> str:
    """Return the anchor that renderers of Markdown give a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _date_of(report: Report) -> str:
    facts: Mapping[str, Any] = report.get("environment", report)
    return str(facts.get("date") or "")
