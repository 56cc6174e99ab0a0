"""`trimaran sessions`: the client sessions that are open."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ...archive.tool.output import ABSENT, OutputFormat, OutputOption, format_duration, new_table
from ..documents.inspection import SessionsView
from .shared.every_group import of_every_group
from .shared.inspection import DOWN_STYLE, Inspection, LimitOption, MemberOption, OffsetOption, heading
from .shared.setting_flags import with_member_flags
from .shared.watching import TimeoutOption, WatchOption


@with_member_flags
@of_every_group
def sessions(
    output: OutputOption = OutputFormat.TABLE,
    watch_every: WatchOption = None,
    timeout: TimeoutOption = 1.0,
    ask: MemberOption = None,
    limit: LimitOption = 100,
    offset: OffsetOption = 0,
    **settings: Any,
) -> None:
    """Show the open client sessions, ordered by id.

    -o json prints one object, -o jsonl a session per line, --watch an object per line.
    """
    asked = Inspection(settings, output, watch_every, timeout, ask, offset=offset, limit=limit)
    asked.show(SessionsView, sessions_table, lambda view: view.sessions)


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
