"""The part of docs/performance.md about Aeron's own Java, from a file that is written by hand.

`benchmarks/results/aeron.json` holds what a rig outside this project measured, so no command of ours makes it:

    {"scenario": "aeron", "aeron_version": "1.52.2", "git_commit": "...", "date": "2026-01-31", "cores": 2,
     "cpu_model": "...", "load_average": [0.4, 0.5, 0.5], "rounds": 5, "payload": 32,
     "rows": [{"file_sync_level": 1, "inflight": 64,
               "trimaran": {"messages_per_s": 60000, "p50_us": 900},
               "aeron": {"messages_per_s": 40000, "p50_us": 1300}}]}

`git_commit` is ours; `p50_us` may be null where it was not measured.
"""

from __future__ import annotations

from trimaran.archive.report import words

from ..statistics.report import Report
from .measured import measured_at, reached_words

RATIO_TARGET = 1.0
"""Of Aeron's rate, at every depth and level."""


def aeron_section(report: Report) -> str:
    """Write a row for each level and depth: both rates, both medians, and how they compare."""
    lines = [
        f"Aeron Cluster {report['aeron_version']} as it is, in Java, with one thread for each member, and Trimaran at "
        f"level 0 and 1: 3 members on one machine of {report['cores']} cores ({report['cpu_model']}), the same echoes "
        f"of {report['payload']} bytes from one client, CRC-32 of every frame in both, "
        f"{words.count(report['rounds'], 'interleaved round')}, medians; {measured_at(report)}. **A rig outside this "
        "project made both figures, by hand: no command of the project repeats them.** *Times* above 1: Trimaran does "
        "more.\n",
        "| level | in flight | Trimaran: messages/s | p50 | Aeron: messages/s | p50 | times | target |",
        "|" + "---|" * 8,
    ]
    for row in report["rows"]:
        ours, theirs = row["trimaran"], row["aeron"]
        times = ours["messages_per_s"] / theirs["messages_per_s"]
        cells = [
            f"{row['file_sync_level']}",
            f"{row['inflight']:,}",
            f"{ours['messages_per_s']:,}",
            _p50_words(ours["p50_us"]),
            f"{theirs['messages_per_s']:,}",
            _p50_words(theirs["p50_us"]),
            f"{times:.2f}",
            reached_words(f"{RATIO_TARGET:g}", times >= RATIO_TARGET),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _p50_words(p50_us: float | None) -> str:
    return "not measured" if p50_us is None else f"{p50_us:,.0f} µs"
