"""The section "Many sessions beside others": rates by the number of sessions, and a table for each number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from trimaran.archive.report.theme import SERIES, Chart, name_axes, new_chart, new_empty_chart, style

from ..scenarios.compare_sessions import figure_cells
from ..statistics.report import Report
from . import captions
from .plots import Plot

_OURS: Final = "Trimaran"
_OUR_LINES: Final = ("-", "--", "-.", ":", (0, (1, 3)))
_RATIOS: Final = {"etcd": 3.0, "NATS JetStream R3": 1.5}
"""How many times as fast we mean to be with `_RATIO_SESSIONS` sessions."""
_RATIO_SESSIONS: Final = 1_000
EFFICIENCY_TARGETS: Final = {1_000: 60.0, 10_000: 40.0}
"""Requests per processor second of so many sessions, in percent of those of one with 1,000 in flight, at least."""

_METHOD: Final = """\
One message is in flight on each connection: a client that has its answer sends the next message. Opening the
connections is not measured. Whether the load limits a system, its processor time beside that of the servers shows. The
loads in Python are raw sockets on epoll that send bytes that are made before; the three others of Trimaran are the
client that applications use. *Servers* and *client* are microseconds of processor time for a message, user and system,
of all processes of each kind; *x* is how many times faster Trimaran at level 1 is with the raw load.
"""


def many_sessions_text(report: Report) -> str:
    """Say how it was measured, and what came of it."""
    parameters, environment = report["parameters"], report["environment"]
    peers = {name: peer for name, peer in report["peers"].items() if "missing" not in peer}
    lines = [
        f"{_METHOD}\n{parameters['payload']} bytes, {captions.comparison_rounds(report)}, {parameters['seconds']:g} s "
        f"of each load, every system started again in each; loads in Python from {parameters['processes']} processes. "
        f"Medians at commit {environment['git_commit']}, with a load average of {environment['load_average'][0]:g} on "
        f"{environment['cores']} cores before, which servers and load share. Again: `python -m trimaran.benchmarks "
        f"compare --sessions {','.join(map(str, parameters['sessions']))}`.\n",
        *_targets(report),
        *captions.compared_systems(report, "an acknowledged message"),
    ]
    for load, label in report["loads"].items():
        lines += [
            "",
            f"| {label} | messages a second | x | p50 ms | p99 ms | servers µs | client µs |",
            "|---|---|---|---|---|---|---|",
        ]
        for name, peer in peers.items():
            figures = peer["depths"].get(load)
            cells = ("failed", *[""] * 5) if figures is None else figure_cells(figures)
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [f"\n{failure}" for failure in captions.comparison_failures(report)]
    missing = [name for name in report["peers"] if name not in peers]
    lines += [f"\nNot installed: {', '.join(missing)}."] * bool(missing)
    return "\n".join(lines) + "\n"


def many_sessions_plot(report: Report) -> Plot:
    """Rates by the number of sessions."""
    curves = _curves(report)
    most = max((sessions for curve in curves.values() for sessions, _ in curve), default=0)
    ends = sorted(((curve[-1][1], name) for name, curve in curves.items() if curve[-1][0] == most), reverse=True)
    said = [f"{name} {rate:,} a second" for rate, name in ends]
    caption = f"One message in flight on each connection. With {most:,}: {', '.join(said)}."
    return Plot("many-sessions", caption, curves, partial(many_sessions_chart, curves))


def many_sessions_chart(curves: Mapping[str, Sequence[tuple[int, int]]]) -> Chart:
    """Draw messages a second against the number of sessions, a line for each system; both axes are logarithmic."""
    with style():
        if not curves:
            return new_empty_chart("connections", "messages a second")
        chart, (axes,) = new_chart(4.4)
        lines, colors = iter(_OUR_LINES), iter(SERIES[1:])
        for name, curve in curves.items():
            is_ours = name.startswith(_OURS)
            axes.plot(
                [sessions for sessions, _ in curve],
                [rate for _, rate in curve],
                color=SERIES[0] if is_ours else next(colors),
                linestyle=next(lines) if is_ours else "-",
                marker="o",
                markersize=4,
                label=name,
            )
        for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
            scale("log")
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
            axis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_locator(
            FixedLocator(sorted({sessions for curve in curves.values() for sessions, _ in curve}))
        )
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        name_axes(axes, "connections, one message in flight on each, logarithmic", "messages a second, logarithmic")
        chart.legend(loc="outside lower left", ncols=2, fontsize=8, handlelength=2.4)
        return chart


def _curves(report: Report) -> dict[str, list[tuple[int, int]]]:
    """Sessions and rates of each system that was measured, without that of one session, which is no system."""
    found: dict[str, list[tuple[int, int]]] = {}
    for name, peer in report["peers"].items():
        loads = zip(report["parameters"]["sessions"], report["loads"], strict=True)
        depths = peer.get("depths", {})
        curve = [(sessions, depths[load]["messages_per_s"]) for sessions, load in loads if load in depths]
        if curve and "one session" not in name:
            found[name] = sorted(curve)
    return found


def _targets(report: Report) -> list[str]:
    """A row for each target that was measured."""
    rows = []
    for sessions, load in zip(report["parameters"]["sessions"], report["loads"], strict=True):
        for name, target in _RATIOS.items() if sessions == _RATIO_SESSIONS else ():
            figures = _figures(report, name, load)
            times = figures.get("trimaran_is_times_faster")
            if times is not None:
                rows.append((f"times {name}, {sessions:,} sessions", f"{times:g} x", f"{target:g} x", times >= target))
        share = EFFICIENCY_TARGETS.get(sessions)
        for name, percent in report["percent_of_one_session"].get(load, {}).items() if share is not None else ():
            for whose, what in (("members", "the members"), ("all", "members and clients")):
                rows.append(
                    (
                        f"requests per processor second of {what}, {sessions:,} sessions beside one: {name}",
                        f"{percent[whose]:g} %",
                        f"{share:g} %",
                        percent[whose] >= share,
                    )
                )
    if not rows:
        return []
    lines = [
        f"| {what} | {measured} | >= {target} | {'yes' if is_reached else '**no**'} |"
        for what, measured, target, is_reached in rows
    ]
    return ["| what | measured | target | reached |", "|---|---|---|---|", *lines, ""]


def _figures(report: Report, name: str, load: str) -> dict[str, Any]:
    found: dict[str, Any] = report["peers"].get(name, {}).get("depths", {}).get(load, {})
    return found
