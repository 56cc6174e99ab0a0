"""The standard figures: what is drawn is what the frame says, and every axis says what it shows, with its unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle, StepPatch

from tests.facts import has_facts
from tests.unit.archive.report import frames
from trimaran.archive.report import captions, figures
from trimaran.archive.report.theme import ALARM, REST, SERIES, WIDTH_INCHES

DRAWN: dict[str, tuple[Callable[[], Figure], list[tuple[str, str]]]] = {
    "term_timeline": (lambda: figures.term_timeline(frames.terms()), [("time, UTC", "leader")]),
    "elections": (
        lambda: figures.elections(frames.elections()),
        [("nothing appended for, milliseconds", "change of leadership term")],
    ),
    "election_states": (
        lambda: figures.election_states(frames.states()),
        [("since the election began, milliseconds", "term 1")],
    ),
    "throughput": (lambda: figures.throughput(frames.traffic()), [("time, UTC", "messages per second")]),
    "group_throughput": (
        lambda: figures.group_throughput(frames.group_traffic(3)),
        [("time, UTC", "messages per second")],
    ),
    "inter_arrival": (
        lambda: figures.inter_arrival(frames.arrivals()),
        [("time between messages, logarithmic, from 1 µs, a tick of the clock", "session")],
    ),
    "session_lives": (lambda: figures.session_lives(frames.lives()), [("time, UTC", "session, principal")]),
    "timers": (lambda: figures.timers(frames.timers()), [("fired at, UTC", "timer, correlation id")]),
    "late timers": (
        lambda: figures.timers(frames.timers(with_deadlines=True)),
        [("fired at, UTC", "late by, milliseconds")],
    ),
    "bursts_and_gaps": (
        lambda: figures.bursts_and_gaps(frames.bursts(), frames.gaps()),
        [("", "busiest windows, messages per second"), ("time, UTC", "silent periods, seconds")],
    ),
    "payload_sizes": (
        lambda: figures.payload_sizes(frames.histogram()),
        [("length of a message, SBE header included, bytes", "messages")],
    ),
    "divergence": (lambda: figures.divergence(frames.pairs()), [("position in the log, bytes", "compared")]),
}


@pytest.mark.parametrize("name", DRAWN)
def test_every_axis_says_what_it_shows(name: str) -> None:
    draw, names = DRAWN[name]

    figure = draw()

    assert [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes] == names
    assert figure.get_size_inches()[0] == WIDTH_INCHES


@pytest.mark.parametrize("name", DRAWN)
def test_the_same_frame_gives_the_same_svg_whatever_the_users_settings_are(name: str) -> None:
    draw, _ = DRAWN[name]

    first = figures.to_svg(draw(), "figure", "title")
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "axes.grid": False, "text.usetex": True}):
        second = figures.to_svg(draw(), "figure", "title")

    assert first == second


@pytest.mark.parametrize("name", DRAWN)
def test_no_text_lies_over_another(name: str) -> None:
    """Texts of rows and ticks have room; what is written into bars is for their figures' own tests."""
    figure = DRAWN[name][0]()
    figures.to_png(figure)  # lays it out
    for axes in figure.axes:
        names = [axes.xaxis.label, axes.yaxis.label, axes.xaxis.offsetText]
        ticks = [
            tick.label1
            for axis in (axes.xaxis, axes.yaxis)
            for tick in axis.get_major_ticks()
            if min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        ]
        legend = axes.get_legend()
        texts = [*names, *ticks, *(legend.get_texts() if legend else [])]
        boxes = [(text, text.get_window_extent()) for text in texts if text.get_visible() and text.get_text()]
        width, height = figure.bbox.width, figure.bbox.height
        assert [t.get_text() for t, b in boxes if b.x0 < -1 or b.y0 < -1 or b.x1 > width + 1 or b.y1 > height + 1] == []
        shrunk = [(text.get_text(), box.padded(-1.0)) for text, box in boxes]
        pairs = [(a, b) for i, (a, box) in enumerate(shrunk) for b, other in shrunk[i + 1 :] if box.overlaps(other)]
        assert pairs == []


@pytest.mark.parametrize(
    ("draw", "columns"),
    [
        (figures.term_timeline, frames.terms()),
        (figures.elections, frames.elections()),
        (figures.election_states, frames.states()),
        (figures.throughput, frames.traffic()),
        (figures.inter_arrival, frames.arrivals()),
        (figures.session_lives, frames.lives()),
        (figures.timers, frames.timers()),
        (figures.payload_sizes, frames.histogram()),
        (figures.divergence, frames.pairs()),
    ],
)
def test_a_frame_without_rows_gives_axes_that_say_so(draw: Callable[[Any], Figure], columns: pd.DataFrame) -> None:
    (axes,) = draw(columns.iloc[:0]).axes

    assert [text.get_text() for text in axes.texts] == ["nothing to show"]
    assert axes.get_xlabel()
    assert axes.get_ylabel()


def test_bursts_without_gaps_and_gaps_without_bursts_are_drawn() -> None:
    assert len(figures.bursts_and_gaps(frames.bursts(), frames.gaps().iloc[:0]).axes) == 2
    assert len(figures.bursts_and_gaps(frames.bursts().iloc[:0], frames.gaps()).axes) == 2
    assert len(figures.bursts_and_gaps(frames.bursts().iloc[:0], frames.gaps().iloc[:0]).axes) == 1


def legend(axes: Axes) -> list[str]:
    """The names in the legend."""
    found = axes.get_legend()
    return [text.get_text() for text in found.get_texts()] if found else []


def bars(figure: Figure, axes: int = 0) -> list[tuple[float, float, float, str]]:
    """Left end, width and middle of each bar, and its colour."""
    return [
        (bar.get_x(), bar.get_width(), bar.get_y() + bar.get_height() / 2, mpl.colors.to_hex(bar.get_facecolor()))
        for container in figure.axes[axes].containers
        if isinstance(container, BarContainer)
        for bar in container.patches
    ]


def test_the_timeline_has_a_bar_for_each_term_and_each_hand_over() -> None:
    drawn = bars(figures.term_timeline(frames.terms()))

    days = 1 / 86_400
    assert [round(width / days, 3) for _, width, _, _ in drawn] == [2, 6.5, 1, 0.5, 1]
    assert [row for _, _, row, _ in drawn] == [0, 1, 0, 2, 2]
    assert [color for *_, color in drawn] == [SERIES[0]] * 3 + [ALARM] * 2
    assert pd.Timestamp(drawn[1][0], unit="D").round("ms") == frames.at(2.5)


def test_a_term_without_a_known_leader_has_a_row_of_its_own() -> None:
    figure = figures.term_timeline(frames.terms(leader_member_id=[None, 2, 0]))

    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["member 0", "member 2", "not known", "hand-over"]


def test_a_term_without_a_time_is_left_out() -> None:
    frame = frames.terms(
        first_timestamp=[pd.NaT, frames.at(2.5), pd.NaT], last_timestamp=[pd.NaT, frames.at(9), pd.NaT]
    )

    assert len(bars(figures.term_timeline(frame))) == 2
    assert has_facts(captions.term_timeline(frame), "Member 2", "term 1", "6.5 s", "only")
    assert "no leadership" in captions.term_timeline(frame.head(1))


def test_a_gap_is_written_beside_its_bar_with_the_reason() -> None:
    figure = figures.elections(frames.elections(with_reasons=True))

    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["term 1: 0 → 2", "term 3: 2 → 0"]
    assert [text.get_text() for text in axes.texts] == [
        "0.31 s, log link closed",
        "42 ms, leader heartbeat timeout",
    ]
    assert [width for _, width, _, _ in bars(figure)] == [310, 42, 12, 8]


def test_states_of_an_election_are_drawn_from_when_its_first_member_began() -> None:
    figure = figures.election_states(frames.states())

    drawn = bars(figure)[:8]
    assert [round(left, 3) for left, *_ in drawn] == [0, 1, 3, 9, 10, 11, 12, 2]
    assert [round(width, 3) for _, width, *_ in drawn] == [1, 2, 6, 1, 1, 1, 1, 2]
    assert [row for _, _, row, _ in drawn] == [1] * 7 + [0]


def test_throughput_is_stacked_and_an_interval_without_a_row_is_empty() -> None:
    (axes,) = figures.throughput(frames.traffic()).axes

    steps: list[Any] = [patch.get_data() for patch in axes.patches if isinstance(patch, StepPatch)]
    assert [list(data.values) for data in steps] == [[20, 12, 0, 16], [28, 12, 0, 16], [28, 12, 0, 20]]
    assert [list(np.atleast_1d(data.baseline)) for data in steps[1:]] == [[20, 12, 0, 16], [28, 12, 0, 16]]
    assert legend(axes) == ["session 1", "session 2", "service 0"]


def test_sessions_beyond_those_with_a_colour_are_one() -> None:
    many = pd.concat([frames.traffic().head(1).assign(cluster_session_id=i, messages=100 - i) for i in range(9)])

    (axes,) = figures.throughput(many).axes

    assert legend(axes) == [*(f"session {i}" for i in range(5)), "other sessions"]
    last = axes.patches[-1]
    assert isinstance(last, StepPatch)
    assert mpl.colors.to_hex(last.get_facecolor()) == REST
    assert list(last.get_data()[0]) == [2 * sum(100 - i for i in range(9))]


def test_times_between_messages_are_drawn_by_session() -> None:
    (axes,) = figures.inter_arrival(frames.arrivals()).axes

    assert axes.get_xscale() == "log"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["session 1", "session 2", "service 0"]
    assert {line.get_label(): list(np.asarray(line.get_xdata())) for line in axes.lines} == {
        "median": [150, 2_000, 30_000],
        "99th percentile": [900, 50_000, 60_000],
        "maximum": [4_000, 2_300_000, 70_001],
    }


def test_a_clock_of_milliseconds_has_ticks_of_a_millisecond() -> None:
    frame = frames.arrivals().assign(gap_us_p50=0, gap_us_p99=1_000, gap_us_max=5_000)

    (axes,) = figures.inter_arrival(frame).axes

    assert "from 1 ms" in axes.get_xlabel()
    assert list(np.asarray(axes.lines[0].get_xdata())) == [1_000] * 4


def test_a_session_is_drawn_from_open_to_close_in_the_colour_of_its_end() -> None:
    figure = figures.session_lives(frames.lives())

    days = 1 / 86_400
    drawn = bars(figure)
    assert [round(width / days, 3) for _, width, _, _ in drawn] == [10, 3, 0.5, 6, 8]
    assert [color for *_, color in drawn] == [SERIES[2], SERIES[0], SERIES[4], ALARM, SERIES[0]]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["1, alice", "2, bob", "3", "4, $x^2$ <b>", "5, \\xff\\x00"]


def test_timers_are_drawn_by_correlation_id_or_by_how_late_they_were() -> None:
    by_id = figures.timers(frames.timers()).axes[0]
    late = figures.timers(frames.timers(with_deadlines=True)).axes[0]

    assert [label.get_text() for label in by_id.get_yticklabels()] == ["3", "7"]
    assert list(np.asarray(by_id.lines[0].get_ydata())) == [1, 1, 0, 1]
    assert list(np.asarray(late.lines[0].get_ydata())) == [1, 3, 250, 2]


def test_the_latest_timer_is_drawn_however_many_there_are() -> None:
    many = pd.DataFrame(
        {"correlation_id": 1, "fired_timestamp": [frames.at(i) for i in range(5_000)], "late_us": 1_000.0}
    )
    many.loc[1_234, "late_us"] = 99_000.0

    drawn = np.asarray(figures.timers(many).axes[0].lines[0].get_ydata())

    assert len(drawn) <= 2_001
    assert drawn.max() == 99


def test_gaps_at_a_change_of_term_are_told_from_the_others() -> None:
    figure = figures.bursts_and_gaps(frames.bursts(), frames.gaps())

    busy, silent = ([bar for bar in axes.patches if isinstance(bar, Rectangle)] for axes in figure.axes)
    assert [bar.get_height() for bar in busy] == [120, 480]
    assert {(bar.get_height(), mpl.colors.to_hex(bar.get_facecolor())) for bar in silent} == {(0.5, REST), (2, ALARM)}
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()


def test_lengths_are_stacked_by_kind() -> None:
    figure = figures.payload_sizes(frames.histogram())

    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["32–63", "64–127"]
    stacks = [container.patches for container in axes.containers if isinstance(container, BarContainer)]
    assert [[bar.get_height() for bar in stack] for stack in stacks] == [[30, 60], [6, 0], [0, 4]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "SessionMessageHeader",
        "TimerEvent",
        "other",
    ]


def test_logs_without_a_common_position_are_rows_without_bars() -> None:
    nothing = dict.fromkeys(("start_position", "stop_position", "identical_to", "diverges_at"), None)
    frame = pd.DataFrame([{"member_a": "a", "member_b": "b", "stop_a": 320, "stop_b": None, **nothing}])

    figure = figures.divergence(frame)

    assert bars(figure) == []
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["a and b"]


def test_a_notebook_shows_a_figure_by_itself() -> None:
    figure = figures.term_timeline(frames.terms())

    png = figure._repr_png_()

    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20]) == 900
