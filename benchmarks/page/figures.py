"""The figures: each takes a part of what a scenario wrote, and gives a chart with units on its axes.

The same JSON gives the same chart. Colours have one meaning throughout: the leader, the followers, the client.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from trimaran.archive.report.theme import (
    INK,
    LINE,
    MUTED,
    REST,
    SERIES,
    Chart,
    add_legend,
    name_axes,
    new_chart,
    new_empty_chart,
    style,
)

from ..profiling.stages import Stage
from ..statistics.report import Report

PARTS: Final = ("leader", "followers", "clients")
_PART_COLORS: Final = dict(zip(PARTS, SERIES, strict=False))
_CURVE_LIMIT: Final = len(SERIES)
_PERCENTILE_TICKS: Final = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)
_STAGE_COLORS: Final = {Stage.KERNEL: SERIES[1], Stage.LOOP: SERIES[2], Stage.GC: SERIES[3], Stage.UNATTRIBUTED: REST}
_COMPARABLE: Final = 5
"""Loads that take more than so many times the least are no bars beside it."""
_WIDE_RANGE: Final = 20
"""From this many times the smallest a linear axis shows the smallest no more."""
_SMALL_STAGE: Final = 0.005
"""Stages with less of a process's time are drawn as one."""


def cost_parts(cpu_seconds_per_100k: Mapping[str, float], leader: str | None) -> dict[str, float]:
    """Microseconds a message by part: the leader, all followers, all clients. Without a name the busiest member led."""
    members = {name: seconds * 10 for name, seconds in cpu_seconds_per_100k.items() if name.startswith("member")}
    clients = [seconds * 10 for name, seconds in cpu_seconds_per_100k.items() if name.startswith("client")]
    if not members:
        return {"leader": 0.0, "followers": 0.0, "clients": sum(clients)}
    led = leader if leader in members else max(members, key=lambda name: members[name])
    followers = sum(us for name, us in members.items() if name != led)
    return {"leader": members[led], "followers": followers, "clients": sum(clients)}


def latencies(curves: Mapping[str, Mapping[str, float]]) -> Chart:
    """Draw latencies in microseconds by percentile, as HdrHistogram does: each further nine takes as much room."""
    with style():
        if not curves:
            return new_empty_chart("percentile", "latency, µs")
        chart, (axes,) = new_chart(3.6)
        for (name, curve), color in zip(list(curves.items())[:_CURVE_LIMIT], SERIES, strict=False):
            _curve(axes, curve, color=color, label=name)
        _percentile_axes(axes)
        chart.legend(loc="outside lower left", ncols=2, fontsize=8, handlelength=1.0)
        return chart


def tail_runs(curves: Sequence[Mapping[str, float]], middle: int, slowest: int) -> Chart:
    """Draw the latencies of runs of one load as `latencies` does: all of them, and two that are named."""
    with style():
        if not curves:
            return new_empty_chart("percentile", "latency, µs")
        chart, (axes,) = new_chart(3.6)
        others = [curve for number, curve in enumerate(curves) if number not in (middle, slowest)]
        for number, curve in enumerate(others):
            _curve(axes, curve, color=REST, linewidth=0.9, label="_" if number else "other runs")
        _curve(axes, curves[middle], color=SERIES[0], label=f"run {middle + 1}, in the middle")
        if slowest != middle:
            _curve(axes, curves[slowest], color=SERIES[1], label=f"run {slowest + 1}, the slowest")
        _percentile_axes(axes)
        chart.legend(loc="outside lower left", ncols=3, fontsize=8, handlelength=1.0)
        return chart


def throughput_by_inflight(points: Sequence[Report]) -> Chart:
    """Draw messages a second, and latencies below, against messages in flight."""
    with style():
        if not points:
            return new_empty_chart("messages in flight", "messages a second")
        chart, (upper, lower) = new_chart(4.6, rows=2)
        x = [point["value"] for point in points]
        upper.plot(x, [point["throughput_msgs_per_s"] for point in points], color=SERIES[0], marker="o", markersize=4)
        upper.set_ylim(bottom=0)
        _count(upper)
        for (figure, name), color in zip(
            {"p50_us": "p50", "p99_us": "p99", "p999_us": "p99.9"}.items(), SERIES, strict=False
        ):
            values = [max(point[figure], 0.1) for point in points]
            lower.plot(x, values, color=color, marker="o", markersize=4, label=name)
        lower.set_yscale("log")
        _plain_log(lower)
        for axes in (upper, lower):
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_locator(FixedLocator(x))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        upper.tick_params(labelbottom=False)
        add_legend(lower)
        name_axes(upper, "", "messages a second")
        name_axes(lower, "messages in flight, logarithmic", "latency, µs, logarithmic")
        return chart


def growth(points: Sequence[Report], unit: str, *, start_up: bool = False) -> Chart:
    """Draw what a message costs each part, and the rate below it, for each value of what was varied.

    With `start_up` the lower axes show how long the member took to start instead.
    """
    with style():
        if not points:
            return new_empty_chart(unit, "CPU µs a message")
        chart, (upper, lower) = new_chart(4.6, rows=2)
        parts = [cost_parts(point["cpu_seconds_per_100k"], point.get("leader")) for point in points]
        totals = [sum(part.values()) for part in parts]
        is_wide = max(totals) > _WIDE_RANGE * min(totals)
        (_lines if is_wide else _stack)(upper, parts)
        figure = "start_s" if start_up else "throughput_msgs_per_s"
        values = [float(point[figure]) for point in points]
        lower.bar(range(len(points)), values, width=0.6, color=SERIES[5])
        for place, value in enumerate(values):
            text = f"{value:.2f}" if start_up else f"{value:,.0f}"
            lower.annotate(text, (place, value), ha="center", va="bottom", color=INK, fontsize=8)
        lower.margins(y=0.2)
        _count(lower)
        for axes in (upper, lower):
            axes.set_xticks(range(len(points)), [f"{point['value']:,}" for point in points])
            axes.set_xlim(-0.6, max(len(points), 3) - 0.4)
            axes.grid(visible=False, axis="x")
        upper.tick_params(labelbottom=False)
        add_legend(upper)
        name_axes(upper, "", f"CPU µs a message{', logarithmic' if is_wide else ', all processes'}")
        name_axes(lower, unit, "start until in service, seconds" if start_up else "messages a second")
        return chart


def session_growth(kinds: Mapping[str, Sequence[Mapping[str, float]]]) -> Chart:
    """Draw rate, processor time, p99 and memory by number of sessions: a colour for each kind of connections."""
    with style():
        if not any(kinds.values()):
            return new_empty_chart("client sessions", "messages a second")
        chart, (rate, cost, latency, memory) = new_chart(8.4, rows=4)
        for (name, points), color in zip(kinds.items(), SERIES, strict=False):
            x = [point["sessions"] for point in points]
            for axes, figure in ((rate, "messages_per_s"), (cost, "cpu_us"), (latency, "p99_ms")):
                values = [point[figure] for point in points]
                axes.plot(x, values, color=color, marker="o", markersize=4, label=f"connections: {name}")
            for part, look in (("leader", "-"), ("follower", ":"), ("clients", "--")):
                values = [point[part] for point in points]
                label = f"{part}, {name}"
                memory.plot(x, values, color=color, linestyle=look, marker="o", markersize=3, label=label)
        for axes, what in (
            (rate, "messages a second"),
            (cost, "CPU µs a message, all processes"),
            (latency, "p99, ms, logarithmic"),
            (memory, "memory of leader, a follower, all clients, MiB"),
        ):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            axes.xaxis.set_minor_locator(NullLocator())
            name_axes(axes, "client sessions, logarithmic" if axes is memory else "", what)
            add_legend(axes)
        latency.set_yscale("log")
        _plain_log(latency, (1.0,))
        for axes in (rate, cost, memory):
            _count(axes)
        return chart


def costs(rows: Mapping[str, Mapping[str, float]]) -> Chart:
    """Draw what a message costs the leader, the followers and the clients, for each of several loads.

    A load under which it costs many times what it does under another is left out: it would hide all others.
    """
    with style():
        if not rows:
            return new_empty_chart("CPU µs a message", "")
        least = min(sum(parts.values()) for parts in rows.values())
        names = [name for name, parts in rows.items() if sum(parts.values()) <= _COMPARABLE * least]
        chart, (axes,) = new_chart(1.0 + 0.34 * len(names))
        left = [0.0] * len(names)
        for part in PARTS:
            values = [rows[name][part] for name in names]
            axes.barh(names, values, left=left, height=0.62, color=_PART_COLORS[part], label=part)
            left = [begin + value for begin, value in zip(left, values, strict=True)]
        _end_labels(axes, left, [f"{total:,.1f}" for total in left])
        add_legend(axes)
        name_axes(axes, "CPU µs a message, user and system, all processes of each part", "")
        return chart


def comparison(peers: Mapping[str, Any], depth: str) -> Chart:
    """Draw messages a second of every system at one depth, with what its acknowledgement promises beside its name."""
    with style():
        found = {name: peer for name, peer in peers.items() if depth in peer.get("depths", {})}
        if not found:
            return new_empty_chart("messages a second", "")
        ordered = sorted(found, key=lambda name: -found[name]["depths"][depth]["messages_per_s"])
        chart, (axes,) = new_chart(0.8 + 0.52 * len(ordered))
        rates = [found[name]["depths"][depth]["messages_per_s"] for name in ordered]
        labels = [f"{name}\n{found[name]['durability']}" for name in ordered]
        colors = [SERIES[0] if name.startswith("Trimaran") else REST for name in ordered]
        axes.barh(labels, rates, height=0.62, color=colors)
        texts = []
        for name, rate in zip(ordered, rates, strict=True):
            ratio = found[name]["depths"][depth].get("trimaran_is_times_faster")
            texts.append(f"{rate:,.0f}" + ("" if ratio in (None, 1.0) else f"  ({ratio:g}x)"))
        _end_labels(axes, rates, texts)
        axes.tick_params(axis="y", labelsize=8)
        name_axes(axes, f"messages a second, {int(depth):,} in flight", "")
        return chart


def stages(role: str, process: Report) -> Chart:
    """Draw where the processor time of one process goes, stage by stage, with the error of counting samples."""
    with style():
        rows = _grouped(process["stages"], process["cpu_us"])
        if not rows:
            return new_empty_chart("CPU µs a message", role)
        chart, (axes,) = new_chart(0.9 + 0.27 * len(rows))
        names = [_stage_name(row) for row in rows]
        values = [row["us"] for row in rows]
        colors = [_STAGE_COLORS.get(row["stage"], SERIES[0]) for row in rows]
        errors = [row["error_us"] for row in rows]
        axes.barh(names, values, height=0.66, color=colors, xerr=errors, ecolor=MUTED, error_kw={"elinewidth": 1})
        ends = [value + error for value, error in zip(values, errors, strict=True)]
        _end_labels(axes, ends, [f"{row['us']:.3f}" for row in rows])
        name_axes(axes, f"CPU µs a message of the {role}, {process['cpu_us']:g} in all", "")
        return chart


def _grouped(rows: Sequence[Report], cpu_us: float) -> list[Report]:
    """Leave out what is too small to be seen, as one row at the end."""
    large = [row for row in rows if row["us"] >= _SMALL_STAGE * cpu_us]
    small = [row for row in rows if row["us"] < _SMALL_STAGE * cpu_us]
    if not small:
        return large
    error_us = math.hypot(*(row["error_us"] for row in small))
    rest = {"stage": f"{len(small)} smaller ones", "detail": "", "us": sum(row["us"] for row in small)}
    return [*large, {**rest, "error_us": error_us}]


def _stage_name(row: Report) -> str:
    return f"{row['stage']}: {row['detail']}" if row["detail"] else str(row["stage"])


def _stack(axes: Axes, rows: Sequence[Mapping[str, float]]) -> None:
    bottom = [0.0] * len(rows)
    for part in PARTS:
        values = [row[part] for row in rows]
        axes.bar(range(len(rows)), values, width=0.6, bottom=bottom, color=_PART_COLORS[part], label=part)
        bottom = [begin + value for begin, value in zip(bottom, values, strict=True)]
    for place, total in enumerate(bottom):
        axes.annotate(f"{total:,.1f}", (place, total), ha="center", va="bottom", color=INK, fontsize=8)
    axes.margins(y=0.2)
    _count(axes)


def _lines(axes: Axes, rows: Sequence[Mapping[str, float]]) -> None:
    """What a stack cannot show, where the largest is many times the smallest: a line for each part, logarithmic."""
    for part in PARTS:
        values = [row[part] or math.nan for row in rows]
        axes.plot(range(len(rows)), values, color=_PART_COLORS[part], marker="o", markersize=4, label=part)
    axes.set_yscale("log")
    _plain_log(axes, (1.0,))


def _end_labels(axes: Axes, ends: Sequence[float], texts: Sequence[str]) -> None:
    """Write a text behind the end of each horizontal bar; the first bar is the uppermost."""
    axes.set_ylim(len(ends) - 0.5, -0.5)
    for place, (end, text) in enumerate(zip(ends, texts, strict=True)):
        axes.annotate(text, (end, place), xytext=(4, 0), textcoords="offset points", va="center", color=INK, fontsize=8)
    axes.set_xlim(0, max(ends) * 1.18 or 1)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.axvline(0, color=LINE, linewidth=1)


def _curve(axes: Axes, curve: Mapping[str, float], **look: Any) -> None:  # of `plot`
    """Draw microseconds by percentile; the largest has no place on such an axis."""
    points = sorted((float(percentile), us) for percentile, us in curve.items() if float(percentile) < 100)
    axes.plot([_nines(p) for p, _ in points], [max(us, 0.1) for _, us in points], **look)


def _percentile_axes(axes: Axes) -> None:
    """Each further nine takes as much room."""
    axes.set_yscale("log")
    _plain_log(axes)
    axes.xaxis.set_major_locator(FixedLocator([_nines(percentile) for percentile in _PERCENTILE_TICKS]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 - 100 / 10**x:.7g} %"))
    name_axes(axes, "percentile of messages", "latency, µs, logarithmic")


def _count(axes: Axes) -> None:
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def _plain_log(axes: Axes, labelled: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Write a logarithmic y axis as plain numbers, at these multiples of powers of ten."""
    axes.yaxis.set_major_locator(LogLocator(subs=labelled))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())


def _nines(percentile: float) -> float:
    """How many nines a percentile has: 0 for 0 %, 1 for 90 %, 2 for 99 %."""
    return -math.log10(1 - percentile / 100)
