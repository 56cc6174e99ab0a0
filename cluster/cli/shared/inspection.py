"""The common part of `trimaran member list`, `sessions` and `timers`: ask the members, show the leader's answer.

All members are asked at once, so a member that is down costs nothing but its row. The leader's answer is shown, because
the leader knows most.

Exit status: 0 a leader answered; 2 wrong usage; 3 unreachable; 11 no leader: what one of the members knows is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel
from rich.console import RenderableType
from rich.text import Text

from ....archive.tool.output import (
    EXIT_NO_LEADER,
    EXIT_UNREACHABLE,
    OutputFormat,
    fail,
    print_object,
    print_rows,
)
from ....service_api.documents.member_status import find_leader, leads, term_order
from ....service_api.errors import ClusterError
from ...core.vocabulary.configuration import MEMBER_LIMIT
from ...documents.inspection import ROW_LIMIT, MembersView, SessionOrder, View, ViewT, inspect_member
from ...documents.query import StatusQueryError
from .setting_flags import AskedCluster, load_asked_cluster
from .watching import watch

LEADER_STYLE: Final = "bold green"
DOWN_STYLE: Final = "red"
_ASK_TIMEOUT_S: Final = 2.0

MemberOption = Annotated[
    int | None,
    typer.Option(
        "--ask",
        metavar="ID",
        help="Ask only this member, even if it is not the leader. [default: all]",
        show_default=False,
    ),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=ROW_LIMIT, help="Show at most this many rows.")]
OffsetOption = Annotated[int, typer.Option("--offset", min=0, help="Skip this many rows first.")]


class UnreachableError(ClusterError):
    """No member answered."""


@dataclass(slots=True, frozen=True)
class Inspection:
    """How one of the commands was called."""

    settings: dict[str, Any]
    """The flags that name the members."""
    output: OutputFormat
    interval_s: float | None
    timeout_s: float
    member_id: int | None
    offset: int = 0
    limit: int = ROW_LIMIT
    order: SessionOrder = SessionOrder.ID

    def show(
        self, view: type[ViewT], draw: Callable[[ViewT], RenderableType], rows: Callable[[ViewT], Sequence[BaseModel]]
    ) -> None:
        """Ask the members and print the answer: drawn for people, as one object, or a row a line.

        Raises:
            Exit: no member answers, or none of them leads.
        """
        cluster = load_asked_cluster(self.settings).only(self.member_id)

        async def ask() -> ViewT:
            rows = {"offset": self.offset, "limit": self.limit}
            return await ask_for_best(cluster, view, self.timeout_s, **rows, order=self.order)

        try:
            if self.interval_s is not None:
                watch(ask, draw, interval_s=self.interval_s, output=self.output)
                return
            answer = asyncio.run(ask())
        except UnreachableError as error:
            fail(str(error), EXIT_UNREACHABLE)
        if self.output is OutputFormat.JSONL:
            print_rows((row.model_dump(mode="json") for row in rows(answer)), self.output)
        else:
            print_object(answer.model_dump(mode="json"), self.output, lambda: draw(answer))
        if self.member_id is None and not leads(answer):
            fail(f"no leader: member {answer.answered_by} answers, {answer.state}", EXIT_NO_LEADER)


async def ask_for_best(
    cluster: AskedCluster,
    view: type[ViewT],
    timeout_s: float,
    *,
    offset: int = 0,
    limit: int = ROW_LIMIT,
    order: SessionOrder = SessionOrder.ID,
) -> ViewT:
    """Ask every member at once; return the leader's answer, or without a leader the one of the highest term.

    Raises:
        UnreachableError: no member answers; the error has the reason of each.
    """
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(
                _ask(cluster, member_id, view, timeout_s, offset, limit, order), name=f"inspect-{member_id}"
            )
            for member_id in cluster.endpoints
        ]
    results = [task.result() for task in asked]
    views = [result for result in results if not isinstance(result, str)]
    if not views:
        raise UnreachableError(f"no member answers: {'; '.join(r for r in results if isinstance(r, str))}")
    return find_leader(views) or max(views, key=term_order)


async def ask_who_belongs(cluster: AskedCluster) -> MembersView:
    """Ask who the members of a cluster are, and who leads.

    Raises:
        Exit: nobody answers.
    """
    try:
        return await ask_for_best(cluster, MembersView, _ASK_TIMEOUT_S, limit=MEMBER_LIMIT)
    except UnreachableError as error:
        fail(str(error), EXIT_UNREACHABLE)


async def _ask(
    cluster: AskedCluster,
    member_id: int,
    view: type[ViewT],
    timeout_s: float,
    offset: int,
    limit: int,
    order: SessionOrder,
) -> ViewT | str:
    endpoint = cluster.endpoints[member_id]
    try:
        answer = await inspect_member(
            *(endpoint, view, timeout_s),
            offset=offset,
            limit=limit,
            order=order,
            cluster_id=cluster.cluster_id,
            network=cluster.network,
        )
    except StatusQueryError as error:
        return f"member {member_id}: {error}"
    if answer.answered_by != member_id:
        return f"member {member_id}: {endpoint} answers as member {answer.answered_by}"
    return answer


def heading(view: View, facts: str, shown_count: int, noun: str) -> Text:
    """Draw the line above a table: how many rows there are, `facts`, and which member answered."""
    term = "no term" if view.leadership_term_id is None else f"term {view.leadership_term_id}"
    count = f"{view.total_count:,} {noun if view.total_count != 1 else noun[:-1]}"
    if shown_count < view.total_count:
        count = f"{shown_count:,} of {count} (--offset, --limit)"
    cluster = "" if view.cluster_id is None else f" of cluster {view.cluster_id}"
    text = f"{count}, {facts}; answered by member {view.answered_by}{cluster}, {view.state} in {term}"
    return Text(text, style=LEADER_STYLE if leads(view) else "bold yellow")
