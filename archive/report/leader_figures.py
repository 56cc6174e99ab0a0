"""Figures of leaders: terms, changes of leadership, and the members' election states."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from . import words
from .theme import (
    ALARM,
    INK,
    PAPER,
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

ELECTION_LIMIT: Final = 6
"""The newest elections whose states are drawn; the older ones are left out."""
CHANGE_LIMIT: Final = 20
"""The longest gaps at changes of leadership term that are drawn."""

PHASES: Final = {
    "init": INK,
    "canvass": SERIES[5],
    "nominate": SERIES[4],
    "candidate ballot": SERIES[1],
    "follower ballot": SERIES[3],
    "log replication or catch-up": REST,
    "replay": SERIES[0],
    "ready": SERIES[2],
}
"""Colours by what members do in an election; several of its 18 states are one of these."""

_DAY_US: Final = 86_400e6
_BAR: Final = 0.62
_SECONDS_FROM_US: Final = 2e6
"""From this length on seconds are easier to read than milliseconds."""


def term_timeline(frame: Frame) -> Chart:
    """Draw who led when: a row for each member, a bar for each leadership term, and the hand-overs between terms.

    Takes the rows of `analyses.term_timeline` of one recording: leadership_term_id, leader_member_id, first_timestamp,
    last_timestamp, hand_over_us. A term of which no entry has a time is left out.
    """
    with style():
        frame = frame[frame["first_timestamp"].notna()]
        if frame.empty:
            return new_empty_chart("time, UTC", "leader")
        members = sorted(frame["leader_member_id"].dropna().astype(int).unique())
        rows = [f"member {member}" for member in members]
        if frame["leader_member_id"].isna().any():
            rows.append("not known")
        is_handed_over = bool((frame["hand_over_us"] > 0).any())
        if is_handed_over:
            rows.append("hand-over")
        chart, (axes,) = new_chart(0.75 + 0.42 * len(rows))
        begin, end = to_dates(frame["first_timestamp"]), to_dates(frame["last_timestamp"])
        row_of = [members.index(int(m)) if pd.notna(m) else len(members) for m in frame["leader_member_id"]]
        axes.barh(row_of, end - begin, left=begin, height=_BAR, color=SERIES[0], edgecolor=SERIES[0], linewidth=1)
        if is_handed_over:
            gaps = frame["hand_over_us"].fillna(0).clip(lower=0).to_numpy() / _DAY_US
            shown = gaps > 0
            axes.barh(
                len(rows) - 1, gaps[shown], left=end[shown], height=_BAR, color=ALARM, edgecolor=ALARM, linewidth=1
            )
        _name_rows(axes, rows)
        _write_terms(axes, frame, begin, end, row_of)
        name_axes(axes, "time, UTC", "leader")
        use_time_axis(axes)
        return chart


def elections(frame: Frame) -> Chart:
    """Draw how long nothing was appended at each change of leadership term, with the reason where one is known.

    Takes the rows of `analyses.elections` of one recording: leadership_term_id, leader_before, leader_after, gap_us,
    and start_reason and election_us if node logs were read. The first term, which nothing went before, is left out.
    """
    with style():
        changes = frame[frame["gap_us"].notna()]
        if changes.empty:
            return new_empty_chart("nothing appended for, milliseconds", "change of leadership term")
        changes = changes.nlargest(CHANGE_LIMIT, "gap_us").sort_values("leadership_term_id")
        chart, (axes,) = new_chart(0.75 + 0.36 * len(changes))
        places = np.arange(len(changes))
        in_seconds = changes["gap_us"].max() >= _SECONDS_FROM_US
        unit_us, unit = (1e6, "seconds") if in_seconds else (1e3, "milliseconds")
        gaps = changes["gap_us"].clip(lower=0).to_numpy(dtype=float) / unit_us
        axes.barh(places, gaps, height=_BAR, color=SERIES[0], label="nothing appended")
        if "election_us" in changes:
            elected = changes["election_us"].to_numpy(dtype=float) / unit_us
            axes.barh(places, elected, height=_BAR / 2.5, color=SERIES[4], label="election")
            if not np.isnan(elected).all():
                add_legend(axes)
        rows = list(changes.itertuples())
        _name_rows(axes, [f"term {row.leadership_term_id}: {_leader_change(row)}" for row in rows])
        for place, (gap, row) in enumerate(zip(gaps, rows, strict=True)):
            reason = getattr(row, "start_reason", None)
            note = words.duration(row.gap_us) + (f", {_phrase(reason)}" if isinstance(reason, str) else "")
            is_far_right = gap > gaps.max() * 0.55
            axes.annotate(
                note,
                (gap, place),
                xytext=(-6 if is_far_right else 6, 0),
                textcoords="offset points",
                ha="right" if is_far_right else "left",
                va="center",
                color=PAPER if is_far_right else INK,
            )
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        name_axes(axes, f"nothing appended for, {unit}", "change of leadership term")
        return chart


def election_states(frame: Frame) -> Chart:
    """Draw what members went through in elections: for each election a row of bars for each member.

    Takes the rows of `analyses.election_states`: member_id, leadership_term_id, state, entered_at, left_at. Elections
    that led to one term are drawn together, from when the first member began; those that never closed are left out, and
    all but the newest `ELECTION_LIMIT`.
    """
    with style():
        closed = frame[frame["leadership_term_id"].notna() & frame["left_at"].notna()]
        if closed.empty:
            return new_empty_chart("since the election began, milliseconds", "member")
        terms = sorted(closed["leadership_term_id"].astype(int).unique())[-ELECTION_LIMIT:]
        members = sorted(closed["member_id"].astype(int).unique())
        chart, panels = new_chart(0.5 + len(terms) * (0.62 + 0.28 * len(members)), rows=len(terms))
        for axes, term in zip(panels, terms, strict=True):
            _draw_states(axes, closed[closed["leadership_term_id"] == term], members)
            name_axes(axes, "", f"term {term}")
        panels[-1].set_xlabel("since the election began, milliseconds", loc="left")
        seen = {phase_of(state) for state in closed["state"]}
        chart.legend(
            handles=[Patch(color=color, label=name) for name, color in PHASES.items() if name in seen],
            loc="outside lower left",
            ncols=4,
            fontsize=8,
            handlelength=1.0,
        )
        return chart


def _draw_states(axes: Axes, rows: Frame, members: list[int]) -> None:
    begin, end = to_dates(rows["entered_at"]), to_dates(rows["left_at"])
    start = begin.min()
    places = [members.index(int(member)) for member in rows["member_id"]]
    days_ms = _DAY_US / 1000
    axes.barh(
        places,
        (end - begin) * days_ms,
        left=(begin - start) * days_ms,
        height=0.7,
        color=[PHASES[phase_of(state)] for state in rows["state"]],
        edgecolor=PAPER,
        linewidth=0.5,
    )
    _name_rows(axes, [f"member {member}" for member in members])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def phase_of(state: str) -> str:
    """Name the phase that a state of an election belongs to, one of `PHASES`."""
    name = state.lower().replace("_", " ")
    if name in PHASES:
        return name
    if name.endswith("replay"):
        return "replay"
    return "ready" if name in ("leader init", "leader ready", "follower ready") else "log replication or catch-up"


def _phrase(reason: str) -> str:
    """Write the name of a reason as words: LOG_LINK_CLOSED is "log link closed"."""
    return fit_label(reason.lower().replace("_", " "), 40)


def _leader_change(row: object) -> str:
    before, after = (getattr(row, name) for name in ("leader_before", "leader_after"))
    return f"{_member(before)} → {_member(after)}"


def _member(member_id: Any) -> str:  # an int, or NaN or None of pandas
    return "?" if pd.isna(member_id) else str(int(member_id))


def _name_rows(axes: Axes, names: list[str]) -> None:
    """Write the names of rows of bars, the first one at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")


def _write_terms(axes: Axes, frame: Frame, begin: np.ndarray, end: np.ndarray, row_of: list[int]) -> None:
    """Write each term's number into its bar, where the bar is wide enough for it."""
    span = max(float(end.max() - begin.min()), 1e-12)
    for term, left, right, row in zip(frame["leadership_term_id"], begin, end, row_of, strict=True):
        text = f"term {term}"
        if (right - left) / span > 0.014 * len(text):
            axes.text((left + right) / 2, row, text, ha="center", va="center", color=PAPER)
