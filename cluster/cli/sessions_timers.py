"""`trimaran sessions` and `trimaran timers`: what the leader knows, a page of it at a time."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...archive.tool.output import ABSENT, OutputFormat, OutputOption, format_duration, format_rate, new_table
from ..documents.inspection import SessionOrder, SessionsView, TimersView
from .shared.every_group import of_every_group
from .shared.inspection import DOWN_STYLE, Inspection, LimitOption, MemberOption, OffsetOption, heading
from .shared.setting_flags import with_member_flags
from .shared.watching import TimeoutOption, WatchOption


def sessions_table(view: SessionsView) -> RenderableType:
    """Draw the sessions that are open."""
    numbers = ["session", "opened at", "idle", "messages/s", "bytes/s"]
    table = new_table(
        *("session", "state", *numbers[1:3], "connected", *numbers[3:], "address", "principal", "client"),
        numbers=numbers,
        folding=["principal", "client"],
    )
    for session in view.sessions:
        table.add_row(
            str(session.cluster_session_id),
            session.state,
            f"{session.opened_log_position:,}",
            ABSENT if session.idle_s is None else format_duration(session.idle_s),
            Text("yes") if session.is_connected else Text("no", style=DOWN_STYLE),
            format_rate(session.messages_per_s),
            format_rate(session.bytes_per_s),
            session.address or ABSENT,
            Text(session.principal or ABSENT),
            Text(session.client_info or ABSENT),
        )
    return Group(heading(view, f"delivered {view.delivered_position:,}", len(view.sessions), "sessions"), "", table)


def timers_table(view: TimersView) -> RenderableType:
    """Draw the timers that are set."""
    table = new_table(
        *("correlation id", "service", "deadline", "due in"), numbers=["correlation id", "service", "deadline"]
    )
    for timer in view.timers:
        due = format_duration(timer.due_in_s) if timer.due_in_s >= 0 else f"{format_duration(-timer.due_in_s)} ago"
        table.add_row(str(timer.correlation_id), str(timer.service_id), str(timer.deadline), due)
    return Group(heading(view, f"cluster time {view.cluster_time}", len(view.timers), "timers"), "", table)


SortOption = Annotated[
    SessionOrder, typer.Option("--sort", help="Show first the sessions that send most, or that were silent longest.")
]


@with_member_flags
@of_every_group
def show_sessions(
    output: OutputOption = OutputFormat.TABLE,
    watch_every: WatchOption = None,
    timeout: TimeoutOption = 1.0,
    ask: MemberOption = None,
    limit: LimitOption = 100,
    offset: OffsetOption = 0,
    sort: SortOption = SessionOrder.ID,
    **settings: Any,
) -> None:
    """Show the open client sessions: whose they are, and how much each one sends.

    -o json prints one object, -o jsonl a row per line, --watch an object per line.
    """
    inspection = Inspection(settings, output, watch_every, timeout, ask, offset=offset, limit=limit, order=sort)
    inspection.show(SessionsView, sessions_table, lambda view: view.sessions)


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

    -o json prints one object, -o jsonl a row per line, --watch an object per line.
    """
    inspection = Inspection(settings, output, watch_every, timeout, ask, offset=offset, limit=limit)
    inspection.show(TimersView, timers_table, lambda view: view.timers)
