"""What there is to see in each figure, as a sentence made of the figures themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trimaran.archive.report import words

from ..profiling.stages import Stage
from ..scenarios.compare import failure_words, rounds_done
from ..scenarios.scan import Dimension
from ..statistics.report import Report
from .figures import cost_parts

_DURABLE: Final = re.compile("on disk.*majority")
_SAME: Final = 1.15
"""Figures that differ by less than this factor count as equal: noise is of this order."""


def latencies(curves: Mapping[str, Mapping[str, float]]) -> str:
    """Say what each load's curve looks like at its median and at its end."""
    said = [f"{name}: p50 {_us(curve['50'])}, longest {_us(curve['100'])}" for name, curve in curves.items()]
    return (
        f"The flatter a line, the more equal the latencies; each nine to the right takes as much room. {_list(said)}."
    )


def throughput_by_inflight(points: Sequence[Report]) -> str:
    """Say how much batching gives, and what it costs in latency."""
    first, last = points[0], points[-1]
    best = max(points, key=lambda point: point["throughput_msgs_per_s"])
    return (
        f"With {best['value']:,} messages in flight the cluster does {best['throughput_msgs_per_s']:,} a second, "
        f"{best['throughput_msgs_per_s'] / first['throughput_msgs_per_s']:,.0f} times as many as with "
        f"{first['value']:,}; the median latency goes from {_us(first['p50_us'])} to {_us(last['p50_us'])}."
    )


def growth(dimension: Dimension, points: Sequence[Report]) -> str:
    """Say how the cost of a message at the largest value compares to that at the smallest."""
    first, last = points[0], points[-1]
    before, after = (_total(point) for point in (first, last))
    what = {
        Dimension.PAYLOAD: "bytes in a message",
        Dimension.INFLIGHT: "messages in flight",
        Dimension.MEMBERS: "members",
        Dimension.SESSIONS: "client sessions",
        Dimension.SHARED: "client sessions on shared connections",
        Dimension.LOG: "MiB of log behind the member",
    }[dimension]
    said = f"With {last['value']:,} {what} a message takes {after:,.1f} µs of processor time of all processes"
    if first is not last:
        said += f", {_times(before, after)} the {before:,.1f} µs with {first['value']:,}"
    said += "."
    if dimension is Dimension.PAYLOAD:
        megabytes = max(point["throughput_msgs_per_s"] * point["value"] / 1e6 for point in points)
        said += f" At best {megabytes:,.0f} MB of payload a second go through."
    if dimension is Dimension.LOG and first is not last:
        said += f" To start on it takes {last['start_s']:.1f} s, {first['start_s']:.1f} s with {first['value']:,}."
    return said


def costs(rows: Mapping[str, Mapping[str, float]]) -> str:
    """Say which part takes most under the load that takes least."""
    name = min(rows, key=lambda row: sum(rows[row].values()))
    parts = rows[name]
    return (
        "The processors are the limit at peak: the shorter a bar, the more messages a second the same cores carry. "
        "Loads that keep few messages in flight share their turns among few, and are in the table only where they take "
        f"many times as much. Least takes {name}: {_list([f'{part} {us:.1f} µs' for part, us in parts.items() if us])}."
    )


def comparison(peers: Mapping[str, Any], depth: str) -> str:
    """Say how fast the fastest of the others is beside us, and what to look out for."""
    found = {name: peer for name, peer in peers.items() if depth in peer.get("depths", {})}
    comparable = {
        name: peer["depths"][depth]["messages_per_s"]
        for name, peer in found.items()
        if _DURABLE.search(peer["durability"]) and not name.startswith("Trimaran")
    }
    said = (
        f"{int(depth):,} in flight, with what an acknowledged message is below each name: like is to be compared with "
        "like. In brackets: how many times faster Trimaran at level 1 is."
    )
    if comparable:
        best = max(comparable, key=lambda name: comparable[name])
        said += f" Of the others on a majority's disks the fastest is {best} with {comparable[best]:,} a second."
    return said


def comparison_rounds(compared: Report) -> str:
    """Say of how many rounds the medians are."""
    done, asked = rounds_done(compared), compared["parameters"]["rounds"]
    return words.count(done, "interleaved round") + ("" if done == asked else f" of {asked} that were asked for")


def compared_systems(compared: Report, promised: str) -> list[str]:
    """Write a table of who was measured: what an acknowledgement promises, and who makes the load."""
    rows = [f"| system | {promised} is | client |", "|---|---|---|"]
    for name, peer in compared["peers"].items():
        if "missing" not in peer:
            rows.append(f"| {name} ({peer['version'].splitlines()[0]}) | {peer['durability']} | {peer['client']} |")
    return rows


def comparison_failures(compared: Report) -> list[str]:
    """Say who failed, in which rounds, and why: the medians are of the rounds that worked."""
    return [
        f"{name} failed in {failure_words(failure)}."
        for name, peer in compared["peers"].items()
        for failure in peer.get("failures", ())
    ]


def stages(role: str, process: Report) -> str:
    """Say what most of the time of a process is, and how far to trust it."""
    rows = process["stages"]
    kernel = sum(row["share"] for row in rows if row["stage"] == Stage.KERNEL)
    unknown = sum(row["share"] for row in rows if row["stage"] == Stage.UNATTRIBUTED)
    ours = [row for row in rows if row["stage"] not in (Stage.KERNEL, Stage.UNATTRIBUTED, Stage.LOOP, Stage.GC)]
    largest = _list([f"{row['stage']} ({row['share']:.0%})" for row in ours[:3]])
    samples = process["samples"]
    return (
        f"Most of the {role}'s {process['cpu_us']:g} µs: {largest}. The kernel takes {kernel:.0%}, "
        f"{unknown:.1%} is not attributed. Whiskers are the error of {samples['perf']:,} samples on a processor and "
        f"{samples['py_spy']:,} of Python."
    )


def bound(report: Report) -> str:
    """Say what rate the processor time allows, and how many system calls there are."""
    found = report["bound"]
    calls = report["system_calls_per_1000_messages"]["all processes"].get("all")
    said = (
        f"All processes together take {found['cpu_us_per_message']:.2f} µs of processor time a message, so "
        f"{found['cores']} cores would do {found['msgs_per_s_at_100_percent']:,} messages a second at 100 % use; "
        f"{report['throughput_msgs_per_s']:,} were measured, {found['share_of_bound']:.0%} of that."
    )
    return said if calls is None else f"{said} They make {calls:,.0f} system calls for 1,000 messages."


def targets(rows: Sequence[Report]) -> str:
    """Say how many targets are reached."""
    measured = [row for row in rows if row["reached"] is not None]
    reached = sum(1 for row in measured if row["reached"])
    missed = [str(row["what"]) for row in measured if not row["reached"]]
    said = f"{reached} of {len(measured)} targets that were measured are reached."
    return f"{said} Not reached: {_list(missed)}." if missed else said


def _times(before: float, after: float) -> str:
    if max(before, after) <= _SAME * min(before, after):
        return "about as much as"
    return f"{after / before:,.1f} times" if after > before else f"1/{before / after:,.3g} of"


def _total(point: Report) -> float:
    return sum(cost_parts(point["cpu_seconds_per_100k"], point.get("leader")).values())


def _us(value: float) -> str:
    return f"{value:,.0f} µs" if value < 10_000 else f"{value / 1000:,.0f} ms"


def _list(texts: Sequence[str]) -> str:
    return "; ".join(texts)
