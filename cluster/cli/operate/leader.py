"""`trimaran leader transfer`: the leader hands its term over to another member. `shared.operation` says how it ends."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from ....archive.tool.output import OutputFormat, OutputOption, new_group
from ....service_api.member_id import MEMBER_ID_MAX
from ...documents.operations import Operation
from ..shared.operation import TimeoutOption, carry_out
from ..shared.setting_flags import with_member_flags

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
    timeout: TimeoutOption = 60.0,
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Have the leader hand over: it takes no input until the other member has the whole log, and that one leads.

    Clients stay connected, and wait for some milliseconds. Where the other member is not elected within an election
    timeout, the leader goes on (exit status 1).
    """
    carry_out(Operation.TRANSFER, timeout, output, settings, target_member_id=to)
