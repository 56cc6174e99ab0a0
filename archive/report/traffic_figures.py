"""Figures of traffic: messages and bytes by session and time, bursts, silent periods, message lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ...service_api.wire.log.layout import MESSAGE_NAMES
from . import words
from .theme import (
    ALARM,
    LINE,
    REST,
    SERIES,
    Chart,
    Column,
    Frame,
    add_legend,
    name_axes,
    new_chart,
    new_empty_chart,
    style,
    to_dates,
    use_time_axis,
)

SESSION_LIMIT: Final = len(SERIES) - 1
"""The sessions with the most messages that have a colour of their own; the others are one."""
OTHERS: Final = "other sessions"
ROW_LIMIT: Final = 16
"""The sessions with the most messages that have a row of their own."""


def session_name(row: Any) -> str:
    """Name whose messages a row of `session_traffic` counts: a session, a service, or the rest if it names none."""
    session, service = row.cluster_session_id, row.service_id
    if pd.notna(session):
        return f"session {int(session)}"
    return OTHERS if pd.isna(service) else f"service {int(service)}"


def throughput(frame: Frame) -> Chart:
    """Draw how many messages came in each second, stacked by session: those with the most, and the rest as one.

    Takes the rows of `analyses.session_traffic` of one recording with an interval: from_timestamp, to_timestamp,
    cluster_session_id, service_id, messages. An interval without a row had no message.
    """
    with style():
        if frame.empty:
            return new_empty_chart("time, UTC", "messages per second")
        stacks, edges, width_s = stack_by_session(frame)
        return draw_stacks(stacks, edges, width_s, OTHERS)


def draw_stacks(stacks: dict[str, np.ndarray], edges: np.ndarray, width_s: float, others: str) -> Chart:
    """Draw messages per second over time, stacked by name, as `stack_by_name` gives them; call it inside `style`."""
    chart, (axes,) = new_chart(2.9)
    bottom = np.zeros(len(edges) - 1)
    for (name, values), color in zip(stacks.items(), [*SERIES[:SESSION_LIMIT], REST], strict=False):
        color = REST if name == others else color
        axes.stairs(bottom + values / width_s, edges, baseline=bottom, fill=True, color=color, label=name)
        bottom = bottom + values / width_s
    if len(stacks) > 1:
        add_legend(axes)
    axes.set_ylim(0, max(bottom.max() * 1.05, 1e-9))
    axes.set_xlim(edges[0], edges[-1])
    _count_y(axes)
    axes.grid(visible=False, axis="x")
    name_axes(axes, "time, UTC", "messages per second")
    use_time_axis(axes)
    return chart


def stack_by_session(frame: Frame) -> tuple[dict[str, np.ndarray], np.ndarray, float]:
    """Lay the rows of `session_traffic` on a grid of all intervals, as `stack_by_name` does.

    The session with the most messages is the first, and the rest the last.
    """
    named = frame.assign(session=[session_name(row) for row in frame.itertuples()])
    totals = named.groupby("session")["messages"].sum().drop(OTHERS, errors="ignore")
    kept = list(totals.sort_values(ascending=False, kind="stable").index[:SESSION_LIMIT])
    return stack_by_name(frame, named["session"].where(named["session"].isin(kept), OTHERS), kept, OTHERS)


def stack_by_name(
    frame: Frame, names: Column, kept: Sequence[str], others: str
) -> tuple[dict[str, np.ndarray], np.ndarray, float]:
    """Lay rows with from_timestamp, to_timestamp and messages on a grid of all intervals.

    `names` has a name for each row, one of `kept` or `others`. Gives the messages in each interval by name, in the
    order of `kept` and the others last; the edges of the intervals as matplotlib's days, one more than there are
    intervals; and the length of an interval in seconds.
    """
    begins, ends = to_dates(frame["from_timestamp"]), to_dates(frame["to_timestamp"])
    width = float(np.median(ends - begins))
    first = begins.min()
    places = np.rint((begins - first) / width).astype(int)
    interval_count = int(places.max()) + 1
    messages = frame["messages"].to_numpy(dtype=float)
    stacks = {
        name: np.bincount(places[names == name], messages[names == name], interval_count)
        for name in [*kept, others]
        if (names == name).any()
    }
    return stacks, first + width * np.arange(interval_count + 1), round(width * 86_400, 6)


def inter_arrival(frame: Frame) -> Chart:
    """Draw the time between messages of a session: median, 99th percentile and maximum, on a logarithmic scale.

    Takes the rows of `analyses.session_traffic` of one recording with interval=None: cluster_session_id, service_id,
    messages, gap_us_p50, gap_us_p99, gap_us_max. Sessions of one message have no time between; of the others the
    `ROW_LIMIT` with the most messages are drawn. What came in the same tick of the clock is drawn at one tick.
    """
    with style():
        shown = frame[frame["gap_us_max"].notna()].nlargest(ROW_LIMIT, "messages")
        if shown.empty:
            return new_empty_chart("time between messages", "session")
        chart, (axes,) = new_chart(0.85 + 0.3 * len(shown))
        places = np.arange(len(shown))
        gaps = shown[["gap_us_p50", "gap_us_p99", "gap_us_max"]].to_numpy(dtype=float)
        tick_us = 1000 if (gaps % 1000 == 0).all() else 1  # of a clock that counts milliseconds, or less
        p50, p99, longest = gaps.clip(min=tick_us).T
        axes.hlines(places, p50, longest, color=REST, linewidth=1.4)
        for values, marker, color, name in (
            (p50, "o", SERIES[0], "median"),
            (p99, "D", SERIES[1], "99th percentile"),
            (longest, "|", SERIES[2], "maximum"),
        ):
            axes.plot(values, places, marker, color=color, markersize=10 if marker == "|" else 6, mew=2, label=name)
        add_legend(axes)
        axes.set_xscale("log")
        axes.set_xlim(p50.min() * 0.8, max(longest.max() * 1.4, p50.min() * 10))
        axes.xaxis.set_major_locator(LogLocator(numticks=12))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words.duration(value)))
        axes.set_yticks(places, [session_name(row) for row in shown.itertuples()])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        name_axes(
            axes, f"time between messages, logarithmic, from {words.duration(tick_us)}, a tick of the clock", "session"
        )
        return chart


def bursts_and_gaps(bursts: Frame, gaps: Frame) -> Chart:
    """Draw the busiest windows of a log above its silent stretches, on one axis of time.

    Takes the rows of `analyses.bursts` (from_timestamp, to_timestamp, messages_per_s) and of `analyses.gaps`
    (from_timestamp, to_timestamp, gap_us, over_terms) of one recording.
    """
    with style():
        if bursts.empty and gaps.empty:
            return new_empty_chart("time, UTC", "messages per second")
        chart, (busy, silent) = new_chart(3.6, rows=2)
        if not bursts.empty:
            begin, end = to_dates(bursts["from_timestamp"]), to_dates(bursts["to_timestamp"])
            rates = bursts["messages_per_s"].to_numpy(dtype=float)
            busy.bar(begin, rates, width=end - begin, align="edge", color=SERIES[0], edgecolor=SERIES[0], linewidth=0.5)
        if not gaps.empty:
            begin, end = to_dates(gaps["from_timestamp"]), to_dates(gaps["to_timestamp"])
            seconds = gaps["gap_us"].to_numpy(dtype=float) / 1e6
            over = gaps.get("over_terms", pd.Series(False, index=gaps.index)).fillna(False).to_numpy(dtype=bool)
            for chosen, color, name in ((~over, REST, "within a term"), (over, ALARM, "at a change of term")):
                if chosen.any():
                    silent.bar(
                        begin[chosen],
                        seconds[chosen],
                        width=(end - begin)[chosen],
                        align="edge",
                        color=color,
                        edgecolor=color,
                        linewidth=1,
                        label=name,
                    )
            add_legend(silent)
        _share_time(busy, silent)
        for axes, name in ((busy, "busiest windows, messages per second"), (silent, "silent periods, seconds")):
            _count_y(axes)
            axes.grid(visible=False, axis="x")
            name_axes(axes, "", name)
        silent.set_xlabel("time, UTC", loc="left")
        return chart


def payload_sizes(frame: Frame) -> Chart:
    """Draw how many messages there are of each length, stacked by kind.

    Takes the rows of `analyses.payload_histogram` of one recording by template_id: from_length, to_length, messages.
    Bins may double, as they do unless told; the axis is then logarithmic.
    """
    with style():
        if frame.empty:
            return new_empty_chart("length of a message, bytes", "messages")
        bins = sorted({(int(a), int(b)) for a, b in zip(frame["from_length"], frame["to_length"], strict=True)})
        place_of = {begin: place for place, (begin, _) in enumerate(bins)}
        kinds = kind_names(frame)
        totals = frame.assign(kind=kinds).groupby("kind")["messages"].sum().sort_values(ascending=False, kind="stable")
        chart, (axes,) = new_chart(2.9)
        bottom = np.zeros(len(bins))
        for kind, color in zip(totals.index, [*SERIES, *[REST] * len(totals)], strict=False):
            chosen = (kinds == kind).to_numpy()
            places = frame["from_length"][chosen].astype(int).map(place_of).to_numpy()
            values = np.bincount(places, frame["messages"].to_numpy(dtype=float)[chosen], len(bins))
            axes.bar(range(len(bins)), values, width=0.92, bottom=bottom, color=color, label=kind)
            bottom += values
        chart.legend(loc="outside lower left", ncols=3, fontsize=8, handlelength=1.0)
        axes.set_xticks(range(len(bins)), [_bin_name(begin, end) for begin, end in bins])
        axes.grid(visible=False, axis="x")
        _count_y(axes)
        name_axes(axes, "length of a message, SBE header included, bytes", "messages")
        return chart


def kind_names(frame: Frame) -> Column:
    """Name the kind of messages that each row of a histogram counts, by its template."""
    return frame["template_id"].map(MESSAGE_NAMES).fillna("other")


def _bin_name(begin: int, end: int) -> str:
    return f"{begin:,}" if end == begin + 1 else f"{begin:,}–{end - 1:,}"


def _share_time(upper: Axes, lower: Axes) -> None:
    """Give two axes above each other one range of time, written below the lower one."""
    for axes in (upper, lower):
        axes.autoscale_view()
    filled = [axes for axes in (upper, lower) if axes.patches]
    limits = [axes.get_xlim() for axes in filled]
    for axes in (upper, lower):
        axes.set_xlim(min(low for low, _ in limits), max(high for _, high in limits))
        use_time_axis(axes)
    upper.tick_params(labelbottom=False)
    upper.xaxis.offsetText.set_visible(False)


def _count_y(axes: Axes) -> None:
    """Write the y axis as numbers with separators, from 0."""
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.axhline(0, color=LINE, linewidth=1)
