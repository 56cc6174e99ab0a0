"""`trimaran snapshot take`: every member has a snapshot of one log position, taken there or by a standby.

`shared.operation` says how it ends.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ....archive.tool.output import OutputFormat, OutputOption
from ...documents.operations import Operation
from ..shared.every_group import of_every_group
from ..shared.operation import TimeoutOption, carry_out
from ..shared.setting_flags import with_member_flags


@with_member_flags
@of_every_group
def take(
    timeout: TimeoutOption = 60.0,
    output: OutputOption = OutputFormat.TABLE,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="Have the standbys take it: the members copy it, none stands still. Refused (exit status 12) while "
            "no standby takes part.",
        ),
    ] = False,
    **settings: Any,
) -> None:
    """Have every member take a snapshot, or the standbys for all; wait until each member has it durably."""
    carry_out(Operation.STANDBY_SNAPSHOT if standby else Operation.SNAPSHOT, timeout, output, settings)
