"""`trimaran sessions` and `trimaran timers`: what the leader knows, a page of it at a time; and the end of sessions."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...archive.tool.output import (
    ABSENT,
    EXIT_USAGE,
    OutputFormat,
    OutputOption,
    fail,
    format_duration,
    format_rate,
    new_group,
    new_table,
)
from ..documents.inspection import SessionOrder, SessionsView, TimersView
from ..documents.operations import Operation, SessionsRequest
from .shared import operation
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
        service = "all" if timer.service_id is None else str(timer.service_id)
        table.add_row(str(timer.correlation_id), service, str(timer.deadline), due)
    return Group(heading(view, f"cluster time {view.cluster_time}", len(view.timers), "timers"), "", table)


SortOption = Annotated[
    SessionOrder, typer.Option("--sort", help="Show first the sessions that send most, or that were silent longest.")
]


sessions: Final = new_group("Show the open client sessions, or close some.")


@sessions.callback(invoke_without_command=True, no_args_is_help=False)
@with_member_flags
def show_sessions(
    ctx: typer.Context,
    output: OutputOption = OutputFormat.TABLE,
    watch_every: WatchOption = None,
    timeout: TimeoutOption = 1.0,
    ask: MemberOption = None,
    limit: LimitOption = 100,
    offset: OffsetOption = 0,
    sort: SortOption = SessionOrder.ID,
    **settings: Any,
) -> None:
    """Show the open client sessions: whose they are, and how much each one sends; or close some.

    -o json prints one object, -o jsonl a row per line, --watch an object per line.
    """

    @of_every_group
    def show(*, output: OutputFormat, watch_every: float | None, **settings: Any) -> None:
        inspection = Inspection(settings, output, watch_every, timeout, ask, offset=offset, limit=limit, order=sort)
        inspection.show(SessionsView, sessions_table, lambda view: view.sessions)

    if ctx.invoked_subcommand is None:
        show(output=output, watch_every=watch_every, **settings)


@sessions.command(
    "close", epilog="Example: trimaran sessions close --principal importer --config trimaran-data/cluster.toml"
)
@with_member_flags
def close_sessions(
    session: Annotated[
        int | None, typer.Argument(metavar="ID", min=0, help="The session, as `trimaran sessions` shows it.")
    ] = None,
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="NAME", help="All sessions of this principal.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="ADDRESS", help="All sessions of clients at this address, as shown there."),
    ] = None,
    timeout: operation.TimeoutOption = 30.0,
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Close one session, or all of a principal or an address; clients are told, and the log says so on every member.

    A client may open another session at once. To keep it out, end its right first (docs/security.md): remove its
    principal from the secrets files, or its certificate.
    """
    given = [each for each in (session, principal, address) if each is not None]
    if len(given) != 1 or not str(given[0]):
        fail("expected one of ID, --principal NAME and --address ADDRESS", EXIT_USAGE)
    wanted = SessionsRequest(cluster_session_id=session, principal=principal, address=address)

    def close(*, timeout: float, output: OutputFormat, **settings: Any) -> None:
        operation.carry_out(Operation.CLOSE_SESSIONS, timeout, output, settings, sessions=wanted)

    # Ids are given by each group for itself.
    of_groups = close if session is not None else of_every_group(close)
    of_groups(timeout=timeout, output=output, **settings)


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
