"""`trimaran snapshot take`: every member takes a snapshot at one log position. `shared.operation` says how it ends."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trimaran.archive.tool.output import OutputFormat, OutputOption

from ...documents.operations import Operation
from ..shared.operation import TimeoutOption, carry_out
from ..shared.setting_flags import with_member_flags


@with_member_flags
def take(
    timeout: TimeoutOption = 60.0,
    output: OutputOption = OutputFormat.TABLE,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby", help="Let standby nodes take it. Refused (exit status 12): a cluster has no standby nodes."
        ),
    ] = False,
    **settings: Any,
) -> None:
    """Take a snapshot on every member; wait until each member has its snapshot durably.

    The members come from flags, TRIMARAN_* variables and a TOML file, as for `trimaran node`.
    """
    carry_out(Operation.STANDBY_SNAPSHOT if standby else Operation.SNAPSHOT, timeout, output, settings)
