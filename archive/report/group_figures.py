"""The figure of groups: how their messages share the time and the cluster."""

from __future__ import annotations

from typing import Final

import numpy as np

from .theme import Chart, Frame, new_empty_chart, style
from .traffic_figures import SESSION_LIMIT, draw_stacks, stack_by_name

OTHER_GROUPS: Final = "other groups"


def group_throughput(frame: Frame) -> Chart:
    """Draw how many messages each group logged in each second, stacked: those with the most, and the rest as one.

    Takes the rows of `analyses.group_traffic`: group, from_timestamp, to_timestamp, messages. An interval without a row
    had no message.
    """
    with style():
        if frame.empty:
            return new_empty_chart("time, UTC", "messages per second")
        stacks, edges, width_s = stack_by_group(frame)
        return draw_stacks(stacks, edges, width_s, OTHER_GROUPS)


def stack_by_group(frame: Frame) -> tuple[dict[str, np.ndarray], np.ndarray, float]:
    """Lay the rows of `group_traffic` on a grid of all intervals, as `stack_by_name` does; in the order of the groups.

    Of more than `SESSION_LIMIT` groups those with the fewest messages are one.
    """
    totals = frame.groupby("group")["messages"].sum().sort_values(ascending=False, kind="stable")
    kept = sorted(totals.index[:SESSION_LIMIT])
    names = frame["group"].map({index: f"group {index}" for index in kept}).fillna(OTHER_GROUPS)
    return stack_by_name(frame, names, [f"group {index}" for index in kept], OTHER_GROUPS)
