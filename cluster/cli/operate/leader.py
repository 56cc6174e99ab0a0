"""`trimaran leader transfer`: the leader hands its term over to another member. `shared.operation` says how it ends."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Annotated, Any, Final

import typer

from ....archive.tool.output import OutputFormat, OutputOption, format_duration, format_time, new_group
from ....service_api.member_id import MEMBER_ID_MAX
from ...documents.operations import Operation
from ...runtime.ground.system_clock import SystemClock
from ..shared.every_group import asked_groups, of_every_group
from ..shared.inspection import ask_who_belongs
from ..shared.operation import TimeoutOption, carry_out
from ..shared.planned_time import AtOption, read_planned_time, wait_until_planned
from ..shared.setting_flags import load_asked_cluster, with_member_flags

app: Final = new_group("Hand leadership over to another member.")


@app.callback()
def leader() -> None:
    """Hand leadership over to another member."""


@app.command(
    epilog="Example: trimaran leader transfer --to 2 --members 0=10.0.0.1:9000,1=10.0.0.2:9000,2=10.0.0.3:9000"
)
@with_member_flags
def transfer(
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            min=0,
            max=MEMBER_ID_MAX,
            metavar="ID",
            help="The member that is to lead. [default: the one with the highest leader_priority, then with most of "
            "the log]",
        ),
    ] = None,
    source: Annotated[
        int | None,
        typer.Option(
            "--from",
            min=0,
            max=MEMBER_ID_MAX,
            metavar="ID",
            help="Hand over only where this member leads. [default: whichever leads]",
            show_default=False,
        ),
    ] = None,
    at: AtOption = None,
    timeout: TimeoutOption = 60.0,
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Have the leader hand over: it takes no input until the other member has the whole log, and that one leads.

    Clients stay connected, and wait for some milliseconds. Where the other member is not elected within an election
    timeout, the leader goes on (exit status 1). Where the right member leads already, nothing happens.

    With --at the command waits for the time, and asks for nothing before: if you interrupt it, nothing happens.
    """
    if at is not None:
        _wait_for(at, (to, source), settings)
    _hand_over(to=to, source=source, timeout=timeout, output=output, **settings)


@of_every_group
def _hand_over(*, to: int | None, source: int | None, timeout: float, output: OutputFormat, **settings: Any) -> None:
    carry_out(Operation.TRANSFER, timeout, output, settings, target_member_id=to, source_member_id=source)


def _wait_for(at: str, member_ids: tuple[int | None, ...], settings: dict[str, Any]) -> None:
    """Say who leads now, and return when the time has come.

    Raises:
        Exit: the time or a member cannot be used, or nobody answers: now rather than at the planned time.
    """
    clock_ms = SystemClock().epoch_time
    planned_ms = read_planned_time(at, clock_ms())
    for group in asked_groups(settings):
        cluster = load_asked_cluster(settings | {"group": str(group.index)})
        for member_id in member_ids:
            cluster.only(member_id)
        view = asyncio.run(ask_who_belongs(cluster))
        leader_id, where = view.leader_member_id, f"{group}: " if group.count > 1 else ""
        typer.echo(f"{where}{'no leader' if leader_id is None else f'member {leader_id} leads'} now", err=True)
    left_s = (planned_ms - clock_ms()) / 1_000
    typer.echo(f"waits until {format_time(planned_ms)}, for {format_duration(max(left_s, 0.0))}", err=True)
    wait_until_planned(planned_ms, clock_ms=clock_ms, sleep=Event().wait)
