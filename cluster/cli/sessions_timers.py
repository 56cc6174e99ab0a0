"""`trimaran sessions` and `trimaran timers`: what the leader knows, a page of it at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pydantic import BaseModel
from rich.console import Group, RenderableType
from rich.text import Text

from ...archive.tool.output import ABSENT, OutputFormat, OutputOption, format_duration, new_table
from ..documents.inspection import SessionsView, TimersView, ViewT
from .shared.every_group import of_every_group
from .shared.inspection import DOWN_STYLE, Inspection, LimitOption, MemberOption, OffsetOption, heading
from .shared.setting_flags import with_member_flags
from .shared.watching import TimeoutOption, WatchOption


def _build(
    help_text: str,
    view: type[ViewT],
    draw: Callable[[ViewT], RenderableType],
    rows: Callable[[ViewT], Sequence[BaseModel]],
) -> Callable[..., None]:
    def command(
        output: OutputOption = OutputFormat.TABLE,
        watch_every: WatchOption = None,
        timeout: TimeoutOption = 1.0,
        ask: MemberOption = None,
        limit: LimitOption = 100,
        offset: OffsetOption = 0,
        **settings: Any,
    ) -> None:
        Inspection(settings, output, watch_every, timeout, ask, offset=offset, limit=limit).show(view, draw, rows)

    command.__doc__ = f"{help_text}\n\n-o json prints one object, -o jsonl a row per line, --watch an object per line."
    return with_member_flags(of_every_group(command))


def sessions_table(view: SessionsView) -> RenderableType:
    """Draw the sessions that are open."""
    table = new_table(
        *("session", "state", "opened at", "idle", "connected", "principal"), numbers=["session", "opened at", "idle"]
    )
    for session in view.sessions:
        table.add_row(
            str(session.cluster_session_id),
            session.state,
            f"{session.opened_log_position:,}",
            ABSENT if session.idle_s is None else format_duration(session.idle_s),
            Text("yes") if session.is_connected else Text("no", style=DOWN_STYLE),
            Text(session.principal or ABSENT),
        )
    return Group(heading(view, f"delivered {view.delivered_position:,}", len(view.sessions), "sessions"), "", table)


def timers_table(view: TimersView) -> RenderableType:
    """Draw the timers that are set."""
    table = new_table(
        *("correlation id", "service", "deadline", "due in"), numbers=["correlation id", "service", "deadline"]
    )
    for timer in view.timers:
        due = format_duration(timer.due_in_s) if timer.due_in_s >= 0 else f"{format_duration(-timer.due_in_s)} ago"
        service = "all" if timer.service_id is None else str(timer.service_id)
        table.add_row(str(timer.correlation_id), service, str(timer.deadline), due)
    return Group(heading(view, f"cluster time {view.cluster_time}", len(view.timers), "timers"), "", table)


sessions: Final = _build(
    "Show the open client sessions, ordered by id.", SessionsView, sessions_table, lambda view: view.sessions
)
timers: Final = _build(
    "Show the timers that the services have set, ordered by deadline.",
    TimersView,
    timers_table,
    lambda view: view.timers,
)
