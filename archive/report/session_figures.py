"""Figures of sessions and timers: how sessions lived and ended, and when timers fired."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from .theme import (
    ALARM,
    LINE,
    REST,
    SERIES,
    Chart,
    Frame,
    add_legend,
    fit_label,
    name_axes,
    new_chart,
    new_empty_chart,
    style,
    to_dates,
    use_time_axis,
)

LIFE_LIMIT: Final = 30
"""The sessions with the most messages whose lives are drawn."""
TIMER_LIMIT: Final = 16
"""The timers that fired most often that have a row of their own."""
FIRING_LIMIT: Final = 2_000
"""Firings that are drawn; of more, evenly spread ones are taken."""

_DAY_US: Final = 86_400e6
_ENDINGS: Final = {
    "open": ("still open", SERIES[2]),
    "CLIENT_ACTION": ("closed by its client", SERIES[0]),
    "SERVICE_ACTION": ("closed by a service", SERIES[4]),
    "TIMEOUT": ("timed out", ALARM),
}
"""Name and colour of how a session ended, by its close reason."""


def session_lives(frame: Frame) -> Chart:
    """Draw when each session was open, and how it ended: a row for each, the one that was opened first at the top.

    Takes the rows of `analyses.session_lives` of one recording: cluster_session_id, opened_timestamp,
    closed_timestamp, close_reason, lifetime_us, messages, encoded_principal. Of more than `LIFE_LIMIT` sessions those
    with the most messages are drawn. A session that was opened before the log begins has a bar from its beginning on.
    """
    with style():
        if frame.empty:
            return new_empty_chart("time, UTC", "session, principal")
        shown = frame.nlargest(LIFE_LIMIT, "messages").sort_values("cluster_session_id")
        moments = np.concatenate(lives(frame))
        known = moments[~np.isnan(moments)]
        if not len(known):
            return new_empty_chart("time, UTC", "session, principal")  # all were opened before the log, and still are
        begin, end = lives(shown)
        begin, end = np.where(np.isnan(begin), known.min(), begin), np.where(np.isnan(end), known.max(), end)
        endings = [ending_of(row) for row in shown.itertuples()]
        chart, (axes,) = new_chart(0.85 + 0.26 * len(shown))
        colors = [_ENDINGS[ending][1] for ending in endings]
        axes.barh(range(len(shown)), end - begin, left=begin, height=0.6, color=colors, edgecolor=colors, linewidth=1)
        used = [_ENDINGS[ending] for ending in _ENDINGS if ending in endings]
        add_legend(axes, [Patch(color=color, label=name) for name, color in used])
        axes.set_yticks(range(len(shown)), [_life_name(row) for row in shown.itertuples()])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        name_axes(axes, "time, UTC", "session, principal")
        use_time_axis(axes)
        return chart


def lives(frame: Frame) -> tuple[np.ndarray, np.ndarray]:
    """Return when sessions began and ended, as matplotlib's days; NaN for what was before or after the log."""
    begin, closed = to_dates(frame["opened_timestamp"]), to_dates(frame["closed_timestamp"])
    still_open = begin + frame["lifetime_us"].to_numpy(dtype=float) / _DAY_US
    return begin, np.where(np.isnan(closed), still_open, closed)


def ending_of(row: object) -> str:
    """Return how a session of `session_lives` ended: its close reason, or "open"."""
    reason = getattr(row, "close_reason", None)
    return reason if isinstance(reason, str) and reason in _ENDINGS else "open"


def principal_of(row: object) -> str:
    """Write who a session of `session_lives` was opened by, as text where it is text."""
    encoded = getattr(row, "encoded_principal", None)
    return bytes(encoded).decode("utf-8", "backslashreplace") if isinstance(encoded, bytes | bytearray) else ""


def timers(frame: Frame) -> Chart:
    """Draw when timers fired: how late each was where deadlines are known, or else a row for each timer.

    Takes the rows of `analyses.timers` of one recording: correlation_id, fired_timestamp, and late_us if the analysis
    was given what the service scheduled. Of more than `FIRING_LIMIT` firings evenly spread ones are drawn, the latest
    one among them.
    """
    with style():
        fired = frame[frame["fired_timestamp"].notna()]
        is_late = "late_us" in frame
        name = "late by, milliseconds" if is_late else "timer, correlation id"
        if fired.empty:
            return new_empty_chart("fired at, UTC", name)
        if is_late:
            return _lateness(fired[fired["late_us"].notna()], name)
        counts = fired["correlation_id"].value_counts()
        kept = sorted(counts.index[:TIMER_LIMIT])
        chart, (axes,) = new_chart(0.75 + 0.26 * len(kept))
        drawn: Frame = thin(fired[fired["correlation_id"].isin(kept)], FIRING_LIMIT)
        rows = [kept.index(timer) for timer in drawn["correlation_id"]]
        axes.plot(to_dates(drawn["fired_timestamp"]), rows, "|", color=SERIES[0], markersize=11, markeredgewidth=1.2)
        axes.set_yticks(range(len(kept)), [str(timer) for timer in kept])
        axes.set_ylim(len(kept) - 0.5, -0.5)
        axes.grid(color=LINE, axis="y")
        name_axes(axes, "fired at, UTC", name)
        use_time_axis(axes)
        return chart


def _lateness(fired: Frame, name: str) -> Chart:
    if fired.empty:
        return new_empty_chart("fired at, UTC", name)
    chart, (axes,) = new_chart(2.7)
    latest = fired.nlargest(1, "late_us")
    drawn: Frame = pd.concat([thin(fired, FIRING_LIMIT), latest]).drop_duplicates(["correlation_id", "fired_timestamp"])
    late_ms = drawn["late_us"].to_numpy(dtype=float) / 1000
    axes.plot(to_dates(drawn["fired_timestamp"]), late_ms, "o", color=SERIES[0], markersize=4, alpha=0.7)
    axes.axhline(0, color=REST, linewidth=1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    name_axes(axes, "fired at, UTC", name)
    use_time_axis(axes)
    return chart


def divergence(frame: Frame) -> Chart:
    """Draw for each pair of logs up to which position they are identical, and what follows.

    Takes the rows of `analyses.compare_members`: member_a, member_b, start_position, stop_position, stop_a, stop_b,
    identical_to, diverges_at; or the row of `analyses.divergence`, which names no members.
    """
    with style():
        if frame.empty:
            return new_empty_chart("position in the log, bytes", "compared")
        chart, (axes,) = new_chart(0.85 + 0.4 * len(frame))
        for place, row in enumerate(frame.itertuples()):
            _draw_pair(axes, place, row)
        axes.set_yticks(range(len(frame)), [_pair_name(row) for row in frame.itertuples()])
        axes.set_ylim(len(frame) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        add_legend(axes)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        name_axes(axes, "position in the log, bytes", "compared")
        return chart


def _draw_pair(axes: Axes, place: int, row: object) -> None:
    start, stop, stop_a, stop_b, identical_to, diverges_at = (
        getattr(row, name)
        for name in ("start_position", "stop_position", "stop_a", "stop_b", "identical_to", "diverges_at")
    )
    if not pd.isna(start):
        axes.barh(place, identical_to - start, left=start, height=0.55, color=SERIES[0], label="identical")
        if not pd.isna(diverges_at):
            axes.barh(
                place,
                stop - diverges_at,
                left=diverges_at,
                height=0.55,
                color=SERIES[1],
                label="from the difference on",
            )
            axes.plot([diverges_at], [place], "|", color=ALARM, markersize=22, markeredgewidth=2)
    ends = [end for end in (stop_a, stop_b) if not pd.isna(end)]
    if ends and not pd.isna(stop) and max(ends) > stop:
        axes.barh(place, max(ends) - stop, left=stop, height=0.55, color=REST, label="only one has it")


def thin(frame: Frame, limit: int) -> Frame:
    """Take at most `limit` rows, evenly spread, the first and the last among them."""
    if len(frame) <= limit:
        return frame
    return frame.iloc[np.unique(np.linspace(0, len(frame) - 1, limit).astype(int))]


def _pair_name(row: object) -> str:
    a, b = (fit_label(getattr(row, name, name[-1])) for name in ("member_a", "member_b"))
    return f"{a} and {b}"


def _life_name(row: object) -> str:
    session = int(getattr(row, "cluster_session_id"))  # noqa: B009 - a row of pandas has the attributes of its columns
    principal = fit_label(principal_of(row), 18)
    return f"{session}, {principal}" if principal else str(session)
