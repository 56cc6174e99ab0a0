"""`trimaran log skip`: no service is given one entry of the log. `shared.operation` says how it ends."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ....archive.tool.output import EXIT_USAGE, OutputFormat, OutputOption, fail
from ...documents.operations import Operation
from ..shared.operation import TimeoutOption, carry_out
from ..shared.setting_flags import with_member_flags


@with_member_flags
def skip(
    log_position: Annotated[
        int,
        typer.Option(
            "--log-position",
            min=0,
            metavar="POSITION",
            help="Where the entry ends: the position that `trimaran health` shows.",
            show_default=False,
        ),
    ],
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm",
            help="Change history: the entry may have been delivered, and answered, under an earlier leader.",
        ),
    ] = False,
    timeout: TimeoutOption = 60.0,
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Skip the entry before which the leader holds: no service is given it, and a request is answered as failed.

    Members hold where their service fails each time for a reason of their own, such as a lack of memory. First give
    them what they lack and start them again. Skip the entry only where that cannot be done: a majority fails there.

    A member that has delivered the entry starts again from before it. What clients were told of later entries under
    another leader may no longer be true.
    """
    if not confirm:
        fail(
            "a skip changes history: look at the entry (`trimaran archive grep DIR --log`), then repeat with --confirm",
            EXIT_USAGE,
        )
    carry_out(Operation.SKIP_ENTRY, timeout, output, settings, log_position=log_position)
