"""`trimaran timers`: the timers that the services have set."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType

from ...archive.tool.output import OutputFormat, OutputOption, format_duration, new_table
from ..documents.inspection import TimersView
from .shared.every_group import of_every_group
from .shared.inspection import Inspection, LimitOption, MemberOption, OffsetOption, heading
from .shared.setting_flags import with_member_flags
from .shared.watching import TimeoutOption, WatchOption


@with_member_flags
@of_every_group
def show_timers(
    output: OutputOption = OutputFormat.TABLE,
    watch_every: WatchOption = None,
    timeout: TimeoutOption = 1.0,
    ask: MemberOption = None,
    limit: LimitOption = 100,
    offset: OffsetOption = 0,
    **settings: Any,
) -> None:
    """Show the timers that the services have set, ordered by deadline.

    -o json prints one object, -o jsonl a timer per line, --watch an object per line.
    """
    asked = Inspection(settings, output, watch_every, timeout, ask, offset=offset, limit=limit)
    asked.show(TimersView, timers_table, lambda view: view.timers)


def timers_table(view: TimersView) -> RenderableType:
    """Draw the timers that are set."""
    table = new_table(
        *("correlation id", "service", "deadline", "due in"), numbers=["correlation id", "service", "deadline"]
    )
    for timer in view.timers:
        due = format_duration(timer.due_in_s) if timer.due_in_s >= 0 else f"{format_duration(-timer.due_in_s)} ago"
        table.add_row(str(timer.correlation_id), str(timer.service_id), str(timer.deadline), due)
    return Group(heading(view, f"cluster time {view.cluster_time}", len(view.timers), "timers"), "", table)
