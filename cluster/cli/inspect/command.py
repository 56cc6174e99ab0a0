"""`trimaran members`, `sessions` and `timers`: ask the members, show the leader's answer, once or again and again.

Exit status: 0 a leader answered; 2 wrong usage; 3 no member can be reached; 11 members answer and none leads: what one
of them knows is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.console import RenderableType

from trimaran.archive.tool.output import (
    EXIT_NO_LEADER,
    EXIT_UNREACHABLE,
    OutputFormat,
    OutputOption,
    fail,
    print_object,
    print_rows,
)
from trimaran.service_api.errors import ConfigurationError

from ...documents.inspection import ROW_LIMIT, MembersView, SessionsView, TimersView, ViewT
from ..setting_flags import load_members_from_flags, with_member_flags
from ..watching import TimeoutOption, WatchOption, watch
from .asking import UnreachableError, ask_for_best
from .view import draw_members, draw_sessions, draw_timers

MemberOption = Annotated[
    int | None,
    typer.Option("--ask", metavar="ID", help="Ask this member, leader or not. [default: all]", show_default=False),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=ROW_LIMIT, help="At most so many rows.")]
OffsetOption = Annotated[int, typer.Option("--offset", min=0, help="Leave out so many rows in front.")]


@with_member_flags
def members(
    output: OutputOption = OutputFormat.TABLE,
    watch_every: WatchOption = None,
    timeout: TimeoutOption = 1.0,
    ask: MemberOption = None,
    **settings: Any,
) -> None:
    """Show the members as their leader sees them: roles, links, positions, lag, endpoints.

    Other than `trimaran status`, which asks each member about itself, this is one member's view of all.

    With -o json one object; with -o jsonl a member in each line; with --watch an object in each line.
    """
    asked = _Asked(output=output, interval_s=watch_every, timeout_s=timeout, member_id=ask)
    _show(asked, settings, MembersView, draw_members, lambda view: view.members)


@with_member_flags
def sessions(
    output: OutputOption = OutputFormat.TABLE,
    watch_every: WatchOption = None,
    timeout: TimeoutOption = 1.0,
    ask: MemberOption = None,
    limit: LimitOption = 100,
    offset: OffsetOption = 0,
    **settings: Any,
) -> None:
    """Show the client sessions that are open, in order of their ids.

    With -o json one object; with -o jsonl a session in each line; with --watch an object in each line.
    """
    asked = _Asked(output=output, interval_s=watch_every, timeout_s=timeout, member_id=ask, offset=offset, limit=limit)
    _show(asked, settings, SessionsView, draw_sessions, lambda view: view.sessions)


@with_member_flags
def timers(
    output: OutputOption = OutputFormat.TABLE,
    watch_every: WatchOption = None,
    timeout: TimeoutOption = 1.0,
    ask: MemberOption = None,
    limit: LimitOption = 100,
    offset: OffsetOption = 0,
    **settings: Any,
) -> None:
    """Show the timers that the services have set, the one that is due first in front.

    With -o json one object; with -o jsonl a timer in each line; with --watch an object in each line.
    """
    asked = _Asked(output=output, interval_s=watch_every, timeout_s=timeout, member_id=ask, offset=offset, limit=limit)
    _show(asked, settings, TimersView, draw_timers, lambda view: view.timers)


@dataclass(slots=True, frozen=True, kw_only=True)
class _Asked:
    """How a command was called."""

    output: OutputFormat
    interval_s: float | None
    timeout_s: float
    member_id: int | None
    offset: int = 0
    limit: int = ROW_LIMIT

    def endpoints(self, settings: dict[str, Any]) -> dict[int, str]:
        """Give the consensus endpoints of the members to ask.

        Raises:
            ConfigurationError: the user's: there is no such member.
        """
        endpoints = {member.member_id: member.consensus for member in load_members_from_flags(settings)}
        if self.member_id is None:
            return endpoints
        if self.member_id not in endpoints:
            raise ConfigurationError(f"no such member: --ask {self.member_id} expected one of {[*endpoints]}")
        return {self.member_id: endpoints[self.member_id]}


def _show(
    asked: _Asked,
    settings: dict[str, Any],
    view: type[ViewT],
    draw: Callable[[ViewT], RenderableType],
    rows: Callable[[ViewT], Sequence[BaseModel]],
) -> None:
    endpoints = asked.endpoints(settings)

    async def ask() -> ViewT:
        return await ask_for_best(endpoints, view, asked.timeout_s, offset=asked.offset, limit=asked.limit)

    try:
        if asked.interval_s is not None:
            watch(ask, draw, interval_s=asked.interval_s, output=asked.output)
            return
        answer = asyncio.run(ask())
    except UnreachableError as error:
        fail(str(error), EXIT_UNREACHABLE)
    if asked.output is OutputFormat.JSONL:
        print_rows((row.model_dump(mode="json") for row in rows(answer)), asked.output)
    else:
        print_object(answer.model_dump(mode="json"), asked.output, lambda: draw(answer))
    if asked.member_id is None and answer.role != "LEADER":
        fail(f"no leader: member {answer.answered_by} answers, {answer.role}", EXIT_NO_LEADER)
