"""`trimaran abort`: every member stops at one log position, without a snapshot. `shared.operation` says how it ends."""

from __future__ import annotations

from typing import Any

from ....archive.tool.output import OutputFormat, OutputOption
from ...documents.operations import Operation
from ..shared.every_group import of_every_group
from ..shared.operation import TimeoutOption, carry_out
from ..shared.setting_flags import with_member_flags


@with_member_flags
@of_every_group
def abort(timeout: TimeoutOption = 60.0, output: OutputOption = OutputFormat.TABLE, **settings: Any) -> None:
    """Stop every member at one log position, without a snapshot."""
    carry_out(Operation.ABORT, timeout, output, settings)
