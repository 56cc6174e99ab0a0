"""The part of docs/performance.md about big states: how long a cluster stands still for a snapshot of many orders."""

from __future__ import annotations

from typing import Final

from trimaran.archive.report import words

from ..scenarios.snapshots import LOAD_TARGET_S, STOP_TARGETS_MS, TARGET_ORDERS
from ..statistics.report import Report
from .measured import measured_at, reached_words

_WAYS: Final = {
    "message": "each order a message of its own, encoded in Python",
    "pieces": "`encode_pieces` in `on_take_snapshot`",
    "copy": "`encode_pieces` in `snapshot_messages`: a copy of the process writes",
}
_HELPED: Final = ("pieces", "copy")
"""The ways that the target of loading is for."""


def state_section(report: Report) -> str:
    """Write a row for each way in which the service writes its orders."""
    parameters = report["parameters"]
    lines = [
        f"A service with {parameters['orders']:,} orders on 3 members takes snapshots under a steady load of 1,000 "
        f"messages a second; of {words.count(parameters['runs'], 'snapshot')} the worst counts. In the end a follower "
        f"is killed and loads its snapshot. All members share the cores, so they encode at once on the same ones; "
        f"{measured_at(report['environment'])}. Again: `python -m trimaran.benchmarks snapshots --json "
        "benchmarks/results/snapshots.json`.\n",
        "| how the service writes | delivery stands still | target | longest wait for a reply | and without a snapshot "
        "| until every member has it | loading | target |",
        "|" + "---|" * 8,
    ]
    is_target_state = parameters["orders"] >= TARGET_ORDERS
    for way, row in report["ways"].items():
        limit_ms = STOP_TARGETS_MS.get(way) if is_target_state else None
        stop_ms, load_s = row["delivery_stop_max_ms"], row["load_s"]
        cells = [
            _WAYS.get(way, way),
            f"{stop_ms:,.0f} ms",
            "" if limit_ms is None else reached_words(f"{limit_ms:,.0f} ms", stop_ms <= limit_ms),
            f"{row['reply_stop_max_ms']:,.0f} ms",
            f"{row['reply_stop_steady_max_ms']:,.0f} ms",
            f"{row['snapshot_max_ms'] / 1000:.1f} s",
            f"{load_s:.1f} s",
            reached_words(f"{LOAD_TARGET_S:g} s", load_s <= LOAD_TARGET_S)
            if is_target_state and way in _HELPED
            else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [f"\nNot measured: {_WAYS.get(way, way)}: {reason}." for way, reason in report["failures"].items()]
    return "\n".join(lines) + "\n"
