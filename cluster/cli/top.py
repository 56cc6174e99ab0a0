"""`trimaran top`: one screen of a cluster that runs: its members, and the sessions that send the most.

Every member is asked for its status, the leader for its sessions. What a member records in a second is the difference
of two statuses; what clients send is what the leader counts (`runtime.links.session_traffic`). The screen is 80 columns
wide at least. It ends with q or Ctrl-C, which is its proper end: 0. With `--once`, as `trimaran status`.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel, ConfigDict
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...archive.tool.output import (
    ABSENT,
    OutputFormat,
    OutputOption,
    fail,
    format_duration,
    format_number,
    format_rate,
    new_table,
    print_object,
)
from ...service_api.errors import ConfigurationError
from ..documents.inspection import SessionOrder, SessionsView, SessionView
from .shared.cluster_report import ClusterReport, MemberReport, ask_cluster, exit_status
from .shared.cluster_table import ROLES_OF_KINDS, draw_member_state, draw_sync_p99
from .shared.inspection import DOWN_STYLE, UnreachableError, ask_for_best
from .shared.setting_flags import AskedCluster, load_asked_cluster, load_groups_from_flags, with_member_flags
from .shared.watching import TimeoutOption, watch

_MS_PER_S: Final = 1_000
_UNITS: Final = ("", "K", "M", "G", "T")


class TopFrame(BaseModel):
    """One look at a cluster."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    schema_version: int = 1
    report: ClusterReport
    log_bytes_per_s: dict[int, float]
    """Bytes of the log that each member recorded in a second, since the look before; empty at the first look."""
    sessions: list[SessionView]
    """The sessions that send the most, as the leader says it."""
    session_count: int | None
    """Number of open sessions; None if no member says it."""


class Top:
    """Looks at a cluster again and again."""

    def __init__(self, cluster: AskedCluster, timeout_s: float, row_count: int) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._row_count = row_count
        self._before: ClusterReport | None = None

    def __repr__(self) -> str:
        return f"<Top members={len(self._cluster.endpoints)}>"

    async def look(self) -> TopFrame:
        """Ask the members once."""
        endpoints, cluster_id, network = self._cluster
        report = await ask_cluster(endpoints, self._timeout_s, cluster_id=cluster_id, network=network)
        view = await self._ask_sessions() if self._row_count and report.leader_member_id is not None else None
        before, self._before = self._before, report
        return TopFrame(
            report=report,
            log_bytes_per_s={} if before is None else find_log_rates(before, report),
            sessions=[] if view is None else view.sessions,
            session_count=None if view is None else view.total_count,
        )

    async def _ask_sessions(self) -> SessionsView | None:
        try:
            return await ask_for_best(
                self._cluster, SessionsView, self._timeout_s, limit=self._row_count, order=SessionOrder.BYTES
            )
        except UnreachableError:
            return None


def find_log_rates(before: ClusterReport, after: ClusterReport) -> dict[int, float]:
    """Compute what each member recorded in a second between two looks; without those that started between them."""
    duration_s = (after.asked_at_ms - before.asked_at_ms) / _MS_PER_S
    known = {member.member_id: member.status for member in before.members if member.status is not None}
    rates = {}
    for member in after.members:
        status, older = member.status, known.get(member.member_id)
        if status is not None and older is not None and status.pid == older.pid and duration_s > 0:
            rates[member.member_id] = max(0, status.append_position - older.append_position) / duration_s
    return rates


@with_member_flags
def top(
    output: OutputOption = OutputFormat.TABLE,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="Ask again at this interval.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one look, after one interval, and end.")] = False,
    sessions: Annotated[int, typer.Option("--sessions", min=0, max=100, help="Show at most this many sessions.")] = 10,
    timeout: TimeoutOption = 1.0,
    **settings: Any,
) -> None:
    """Show the members of a cluster and the sessions that send the most, again and again; q or Ctrl-C ends it.

    log/s is what a member records, messages/s what clients send. lag is how far a member is behind the leader. One sync
    in a hundred took `sync p99` or longer, as in `trimaran status`. loop is the longest that a member's event loop was
    busy with one thing, since its process began.

    Exit status: 0; with --once as `trimaran status`.
    """
    group_count, group_index = load_groups_from_flags(settings)
    if group_count > 1 and group_index is None:
        raise ConfigurationError(f"top of groups={group_count}: give --group, from 0 to {group_count - 1}")
    shown = Top(load_asked_cluster(settings), timeout, sessions)
    if not once:
        watch(shown.look, top_table, interval_s=interval, output=output, has_screen=True)
        return
    frame = asyncio.run(_look_twice(shown, interval))
    print_object(frame.model_dump(mode="json"), output, lambda: top_table(frame))
    if not frame.report.has_quorum:
        fail(frame.report.verdict, exit_status(frame.report))


async def _look_twice(shown: Top, interval_s: float) -> TopFrame:
    await shown.look()
    await asyncio.sleep(interval_s)
    return await shown.look()


def top_table(frame: TopFrame) -> RenderableType:
    """Draw one look: the verdict, the members, the sessions."""
    report = frame.report
    verdict = Text(report.verdict, style="bold green" if report.has_quorum else "bold red")
    parts: list[RenderableType] = [verdict, "", _members(frame)]
    if frame.session_count is not None:
        count = f"{len(frame.sessions)} of {frame.session_count:,} sessions, those that send the most first"
        parts += ["", Text(count, style="dim"), _sessions(frame)]
    return Group(*parts)


def _members(frame: TopFrame) -> Table:
    numbers = ["id", "term", "lag", "log/s", "messages/s", "sync p99", "loop", "errors"]
    table = new_table("id", "role", "state", *numbers[1:], numbers=numbers, folding=["state"])
    for member in frame.report.members:
        table.add_row(str(member.member_id), *_member_cells(member, frame.log_bytes_per_s.get(member.member_id)))
    return table


def _member_cells(member: MemberReport, log_bytes_per_s: float | None) -> tuple[str | Text, ...]:
    status, role = member.status, ROLES_OF_KINDS.get(member.kind)
    if status is None:
        return role or ABSENT, Text(member.outcome, style=DOWN_STYLE), *[ABSENT] * 7
    return (
        role or status.role,
        draw_member_state(status),
        format_number(status.leadership_term_id),
        ABSENT if member.append_lag_bytes is None else _short(member.append_lag_bytes),
        ABSENT if log_bytes_per_s is None else _short(log_bytes_per_s),
        format_rate(status.messages_per_s),
        draw_sync_p99(status),
        format_duration(status.stall_max_s),
        format_number(status.error_count),
    )


def _sessions(frame: TopFrame) -> Table:
    numbers = ["session", "messages/s", "bytes/s"]
    table = new_table(*numbers, "address", "principal", "client", numbers=numbers, folding=["principal", "client"])
    for session in frame.sessions:
        table.add_row(
            str(session.cluster_session_id),
            format_rate(session.messages_per_s),
            ABSENT if session.bytes_per_s is None else _short(session.bytes_per_s),
            session.address or ABSENT,
            Text(session.principal or ABSENT),
            Text(session.client_info or ABSENT),
        )
    return table


def _short(value: float) -> str:
    """Write a number of bytes in at most six characters: `999`, `12.5K`, `1.0M`."""
    unit = 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{value:.1f}{_UNITS[unit]}" if unit else f"{value:.0f}"
