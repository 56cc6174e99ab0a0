"""Draws what a member said: a line of what it is about, and a row for each member, session or timer."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from trimaran.archive.tool.output import ABSENT, new_table

from ...documents.inspection import MembersView, SessionsView, TimersView, View
from ..status.view import format_duration

_DOWN_STYLE: Final = "red"
_LEADER_STYLE: Final = "bold green"


def draw_members(view: MembersView) -> RenderableType:
    """Draw the members as the one that answered sees them."""
    table = new_table(
        *("member", "role", "link", "append", "lag", "heard", "ingress", "archive"),
        numbers=["member", "append", "lag", "heard"],
        folding=["ingress", "archive"],
    )
    for member in view.members:
        role = Text("LEADER", style=_LEADER_STYLE) if member.is_leader else Text("FOLLOWER")
        link = Text("self" if member.member_id == view.answered_by else "up" if member.is_connected else "down")
        link.stylize("" if member.is_connected else _DOWN_STYLE)
        heard = ABSENT if member.silent_s is None else format_duration(member.silent_s)
        catching_up = " catching up" if member.is_catching_up else ""
        table.add_row(
            str(member.member_id),
            role,
            link,
            _number(member.append_position),
            _number(member.lag_bytes) + catching_up,
            heard,
            Text(member.ingress),
            Text(member.archive),
        )
    leader = "no leader" if view.leader_member_id is None else f"leader {view.leader_member_id}"
    return Group(_heading(view, f"{leader}, commit {view.commit_position:,}", len(view.members), "members"), "", table)


def draw_sessions(view: SessionsView) -> RenderableType:
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
            Text("yes") if session.is_connected else Text("no", style=_DOWN_STYLE),
            Text(session.principal or ABSENT),
        )
    facts = f"delivered {view.delivered_position:,}"
    return Group(_heading(view, facts, len(view.sessions), "sessions"), "", table)


def draw_timers(view: TimersView) -> RenderableType:
    """Draw the timers that are set."""
    table = new_table(
        *("correlation id", "service", "deadline", "due in"), numbers=["correlation id", "service", "deadline"]
    )
    for timer in view.timers:
        due = f"{format_duration(timer.due_in_s)}" if timer.due_in_s >= 0 else f"{format_duration(-timer.due_in_s)} ago"
        table.add_row(str(timer.correlation_id), str(timer.service_id), str(timer.deadline), due)
    return Group(_heading(view, f"cluster time {view.cluster_time}", len(view.timers), "timers"), "", table)


def _heading(view: View, facts: str, shown_count: int, noun: str) -> Text:
    term = "no term" if view.leadership_term_id is None else f"term {view.leadership_term_id}"
    count = f"{view.total_count:,} {noun if view.total_count != 1 else noun[:-1]}"
    if shown_count < view.total_count:
        count = f"{shown_count:,} of {count} (--offset, --limit)"
    text = f"{count}, {facts}; answered by member {view.answered_by}, {view.role} in {term}"
    return Text(text, style=_LEADER_STYLE if view.role == "LEADER" else "bold yellow")


def _number(value: int | None) -> str:
    return ABSENT if value is None else f"{value:,}"
