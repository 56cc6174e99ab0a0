"""`trimaran shutdown`: every member stops at one log position, with a snapshot; or one member stops alone.

`shared.operation` says how it ends.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ....archive.tool.output import OutputFormat, OutputOption
from ....service_api.member_id import MEMBER_ID_MAX
from ...documents.operations import Operation
from ..shared.every_group import of_every_group
from ..shared.operation import TimeoutOption, carry_out
from ..shared.setting_flags import with_member_flags


@with_member_flags
@of_every_group
def shutdown(
    member: Annotated[
        int | None,
        typer.Option(
            "--member",
            min=0,
            max=MEMBER_ID_MAX,
            metavar="ID",
            help="Stop this member alone, after a hand-over if it leads; no snapshot.",
        ),
    ] = None,
    timeout: TimeoutOption = 60.0,
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Stop every member at one log position, with a snapshot from which the next start begins; or one member alone."""
    if member is None:
        carry_out(Operation.SHUTDOWN, timeout, output, settings)
    else:
        carry_out(Operation.STOP_MEMBER, timeout, output, settings, asked_member_id=member)
