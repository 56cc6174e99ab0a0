"""`trimaran sessions` and `trimaran timers`: what the leader knows, a page of it at a time; and the end of sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel
from rich.console import Group, RenderableType
from rich.text import Text

from ...archive.tool.output import (
    ABSENT,
    EXIT_USAGE,
    OutputFormat,
    OutputOption,
    fail,
    format_duration,
    new_group,
    new_table,
)
from ..documents.inspection import SessionsView, TimersView, ViewT
from ..documents.operations import Operation, SessionsRequest
from .shared import operation
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
    @of_every_group
    def show(
        *,
        output: OutputFormat,
        watch_every: float | None,
        timeout: float,
        ask: int | None,
        limit: int,
        offset: int,
        **settings: Any,
    ) -> None:
        Inspection(settings, output, watch_every, timeout, ask, offset=offset, limit=limit).show(view, draw, rows)

    def command(
        ctx: typer.Context,
        output: OutputOption = OutputFormat.TABLE,
        watch_every: WatchOption = None,
        timeout: TimeoutOption = 1.0,
        ask: MemberOption = None,
        limit: LimitOption = 100,
        offset: OffsetOption = 0,
        **settings: Any,
    ) -> None:
        if ctx.invoked_subcommand is None:
            show(
                output=output,
                watch_every=watch_every,
                timeout=timeout,
                ask=ask,
                limit=limit,
                offset=offset,
                **settings,
            )

    command.__doc__ = f"{help_text}\n\n-o json prints one object, -o jsonl a row per line, --watch an object per line."
    return with_member_flags(command)


def sessions_table(view: SessionsView) -> RenderableType:
    """Draw the sessions that are open."""
    table = new_table(
        *("session", "state", "opened at", "idle", "connected", "address", "principal"),
        numbers=["session", "opened at", "idle"],
    )
    for session in view.sessions:
        table.add_row(
            str(session.cluster_session_id),
            session.state,
            f"{session.opened_log_position:,}",
            ABSENT if session.idle_s is None else format_duration(session.idle_s),
            Text("yes") if session.is_connected else Text("no", style=DOWN_STYLE),
            Text(session.address),
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
        table.add_row(str(timer.correlation_id), str(timer.service_id), str(timer.deadline), due)
    return Group(heading(view, f"cluster time {view.cluster_time}", len(view.timers), "timers"), "", table)


sessions: Final = new_group("Show the open client sessions, ordered by id; or close some.")
sessions.callback(invoke_without_command=True, no_args_is_help=False)(
    _build(
        "Show the open client sessions, ordered by id; or close some.",
        SessionsView,
        sessions_table,
        lambda view: view.sessions,
    )
)


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


timers: Final = _build(
    "Show the timers that the services have set, ordered by deadline.",
    TimersView,
    timers_table,
    lambda view: view.timers,
)
