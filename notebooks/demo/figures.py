"""Figures of the web requests of the demo, in the look of `report`. Each takes a small pandas frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from trimaran.archive.report.theme import (
    ALARM,
    MUTED,
    SERIES,
    Chart,
    fit_label,
    name_axes,
    new_chart,
    style,
    to_dates,
    use_time_axis,
)

SECONDS_A_DAY = 86_400
SESSION_MESSAGE = 1
HOUR_AXIS = "hour of the morning of 1 August 1995, in Florida"


def requests_by_hour(frame: pd.DataFrame) -> Chart:
    """Draw the web requests of each hour: allowed, and refused on top. Takes hour, allowed, denied."""
    with style():
        chart, (axes,) = new_chart(2.9)
        axes.bar(frame["hour"], frame["allowed"], width=0.9, color=SERIES[0], label="allowed")
        axes.bar(frame["hour"], frame["denied"], width=0.9, bottom=frame["allowed"], color=ALARM, label="refused")
        _finish_hours(axes, "web requests in the hour")
        return chart


def hosts(frame: pd.DataFrame) -> Chart:
    """Draw the requests of some hosts, a row each: allowed, then refused. Takes host, allowed, denied."""
    with style():
        chart, (axes,) = new_chart(0.9 + 0.26 * len(frame))
        rows = np.arange(len(frame))
        axes.barh(rows, frame["allowed"], color=SERIES[0], label="allowed")
        axes.barh(rows, frame["denied"], left=frame["allowed"], color=ALARM, label="refused")
        axes.set_yticks(rows, [fit_label(host, 40) for host in frame["host"]])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        _put_legend_above(axes)
        name_axes(axes, "web requests", "host")
        return chart


def refusals_by_hour(refused: Mapping[str, pd.DataFrame]) -> Chart:
    """Draw the refusals in each hour under several rules. Takes, by the name of a rule, hour and count."""
    with style():
        chart, (axes,) = new_chart(2.9)
        width = 0.9 / len(refused)
        for place, (name, by_hour) in enumerate(refused.items()):
            left = by_hour["hour"] - 0.45 + width * (place + 0.5)
            axes.bar(left, by_hour["count"], width=width, color=SERIES[place], label=name)
        _finish_hours(axes, "requests refused in the hour")
        return chart


def state_over_log(frame: pd.DataFrame) -> Chart:
    """Draw two numbers of a service's state along the log. Takes position (bytes), hosts, refused."""
    with style():
        chart, panels = new_chart(3.8, rows=2)
        names = {"hosts": "hosts that the service knows", "refused": "requests refused so far"}
        for axes, (column, name), color in zip(panels, names.items(), SERIES, strict=False):
            axes.plot(frame["position"] / 1e6, frame[column], "o-", color=color, markersize=4)
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            name_axes(axes, "log position, MB", name)
        return chart


def arrivals(messages: pd.DataFrame, killed_at: datetime, *, interval_s: float) -> Chart:
    """Draw the messages of clients that a query got, by their time, and when a leader was killed.

    Takes template_id and timestamp.
    """
    with style():
        chart, (axes,) = new_chart(2.9)
        times = to_dates(_of_clients(messages)["timestamp"])
        width = interval_s / SECONDS_A_DAY
        counts, edges = np.histogram(times, bins=np.arange(times.min(), times.max() + width, width))
        axes.stairs(counts / interval_s, edges, fill=True, color=SERIES[0])
        (moment,) = to_dates(pd.Series([killed_at]))
        axes.axvline(moment, color=ALARM)
        axes.annotate(
            "leader killed", (moment, 1), (0, 2), ("data", "axes fraction"), "offset points", color=ALARM, ha="center"
        )
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.grid(visible=False, axis="x")
        name_axes(axes, "cluster time, UTC", "messages per second")
        use_time_axis(axes)
        return chart


def lags(batches: Sequence[tuple[datetime, pd.DataFrame]]) -> Chart:
    """Draw for each batch of a query how old its newest message of a client was: when each came, and its rows.

    Takes of the rows template_id and timestamp.
    """
    with style():
        chart, (axes,) = new_chart(2.6)
        newest = [(came_at, _of_clients(rows)["timestamp"].max()) for came_at, rows in batches]
        came, last = zip(*((came_at, time) for came_at, time in newest if not pd.isna(time)), strict=True)
        came_days = to_dates(pd.Series(came))
        axes.plot(
            came_days, (came_days - to_dates(pd.Series(last))) * SECONDS_A_DAY, "o", color=SERIES[2], markersize=4
        )
        axes.set_ylim(bottom=0)
        name_axes(axes, "when the batch came, UTC", "age of its newest message, seconds")
        use_time_axis(axes)
        return chart


def stock_over_log(damaged: pd.DataFrame, restored: pd.DataFrame, wrong_position: int) -> Chart:
    """Draw a shop's stock along the log, and along that of a restored cluster. Each takes position (bytes), pieces."""
    with style():
        chart, (axes,) = new_chart(2.9)
        axes.plot(damaged["position"] / 1e3, damaged["pieces"], color=ALARM, label="as it went")
        axes.plot(restored["position"] / 1e3, restored["pieces"], color=SERIES[0], label="restored")
        axes.axvline(wrong_position / 1e3, color=MUTED, linestyle=":")
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        _put_legend_above(axes)
        name_axes(axes, "log position, kB", "pieces in the shop")
        return chart


def stocks(frame: pd.DataFrame) -> Chart:
    """Draw the stock of each article, a bar for each column. Takes the article as the index."""
    with style():
        chart, (axes,) = new_chart(2.9)
        width, places = 0.9 / len(frame.columns), np.arange(len(frame))
        for number, (name, color) in enumerate(zip(frame.columns, (MUTED, ALARM, SERIES[0]), strict=True)):
            axes.bar(places - 0.45 + width * (number + 0.5), frame[name], width=width, color=color, label=name)
        axes.set_xticks(places, [*frame.index])
        axes.grid(visible=False, axis="x")
        _put_legend_above(axes)
        name_axes(axes, "article", "pieces in the shop")
        return chart


def _of_clients(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out what the cluster itself writes."""
    return rows[rows["template_id"] == SESSION_MESSAGE]


def _finish_hours(axes: Axes, name: str) -> None:
    axes.set_xticks(range(13))
    axes.grid(visible=False, axis="x")
    axes.tick_params(axis="x", colors=MUTED)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    _put_legend_above(axes)
    name_axes(axes, HOUR_AXIS, name)


def _put_legend_above(axes: Axes) -> None:
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, borderaxespad=0.1, handlelength=1)
